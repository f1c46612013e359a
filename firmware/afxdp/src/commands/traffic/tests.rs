//! Both ends over loopback, where nothing compresses; and ends that do wrong. `tests/verified.rs`
//! has them on hosts with shims.

use std::net::{TcpListener, TcpStream};
use std::thread;

use clap::Parser;
use gradwire::codec::bit_plane;
use serde_json::Value;

use super::protocol::{Answer, Control, Plan, Sent, VERSION};
use super::receive::Receiver;
use super::values::Values;
use super::*;
use crate::scratch::Scratch;

/// Longer than any machine, however busy, keeps its processes waiting.
const PATIENCE: &str = "120";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    test: TestArgs,
}

fn parse(words: &str) -> Result<TestArgs, clap::Error> {
    Line::try_parse_from(["test"].into_iter().chain(words.split_whitespace())).map(|line| line.test)
}

fn receive_args(words: &str) -> ReceiveArgs {
    match parse(&format!("receive --once --wait {PATIENCE} --timeout {PATIENCE} {words}")).unwrap().end {
        End::Receive(args) => args,
        End::Send(_) => unreachable!(),
    }
}

/// The output of both ends, as JSON, and their exit codes.
fn both(address: &str, words: &str) -> [(Outcome, Value); 2] {
    let args = receive_args(&format!("--address {address} --port 0 --json"));
    let receiver = Receiver::bind(&args).unwrap();
    let port = receiver.address().unwrap().port();
    let receiving = thread::spawn(move || printed(&receiver.serve(&args).unwrap()[0]));
    let run_dir = Scratch::new();
    let line = format!(
        "send {address} --port {port} --timeout {PATIENCE} --json --run-dir {} {words}",
        run_dir.path().display()
    );
    let mut out = Vec::new();
    let outcome = run(&parse(&line).unwrap(), &mut out).unwrap();
    [(outcome, serde_json::from_slice(&out).unwrap()), receiving.join().unwrap()]
}

fn printed(report: &report::TestReport) -> (Outcome, Value) {
    let mut out = Vec::new();
    show(report, true, String::new, &mut out).unwrap();
    (Outcome::from_good(report.good), serde_json::from_slice(&out).unwrap())
}

/// Over loopback nothing compresses, and no shim is asked: the streams are all the same.
#[test]
fn a_baseline_has_a_stream_by_each_way_in_every_round() {
    for (words, first) in [("--bytes 100k --rounds 2", 0), ("--seconds 0.05", 1)] {
        let args = receive_args("--address 127.0.0.1 --port 0");
        let receiver = Receiver::bind(&args).unwrap();
        let port = receiver.address().unwrap().port();
        let receiving = thread::spawn(move || receiver.serve(&args).unwrap());
        let run_dir = Scratch::new();
        let line = format!(
            "send 127.0.0.1 --port {port} --timeout {PATIENCE} --baseline --json --run-dir {} {words}",
            run_dir.path().display()
        );
        let mut out = Vec::new();
        assert_eq!(run(&parse(&line).unwrap(), &mut out).unwrap(), Outcome::Good);
        let json: Value = serde_json::from_slice(&out).unwrap();
        let streams = json["streams"].as_array().unwrap();
        let ways = streams.iter().map(|stream| stream["way"].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(ways[..4], ["bridge", "shim", "shim", "bridge"], "in turn who is first");
        // One before them says how many bytes they have, if nobody else does.
        assert_eq!(receiving.join().unwrap().len(), streams.len() + first);
        let bytes = json["bytes"].as_u64().unwrap();
        assert!(bytes > 0 && (first == 1 || bytes == 100_000), "{json}");
        for stream in streams {
            let (report, is_tagged) = (&stream["report"], stream["way"] == "shim");
            assert_eq!(report["values"].as_u64().unwrap(), bytes / 4, "{stream}");
            assert_eq!(report["tos"], if is_tagged { 0x28 } else { 0 });
            assert_eq!(report["bound"].is_null(), !is_tagged, "untagged, no bit may change");
            assert!(stream["seconds"].as_f64().unwrap() > 0.0 && stream["card_bytes"].is_null());
        }
    }
}

#[test]
fn sent_values_arrive_and_both_ends_say_so() {
    let folder = Scratch::new();
    let file = folder.path().join("values.f32");
    let values = (0..1001).flat_map(|value| (value as f32).to_le_bytes()).collect::<Vec<_>>();
    std::fs::write(&file, values).unwrap();
    for (address, words) in [
        ("127.0.0.1", "--bytes 5M --exact".to_owned()),
        ("::1", "--bytes 3000001 --connections 3".to_owned()),
        ("127.0.0.1", format!("--bytes 1M --values {}", file.display())),
        ("127.0.0.1", "--seconds 0.05 --connections 2 --seed 7".to_owned()),
    ] {
        // Many containers have no IPv6.
        let address = if TcpListener::bind((address, 0)).is_ok() { address } else { "127.0.0.1" };
        let [(outcome, sender), (at_receiver, receiver)] = both(address, &words);
        assert_eq!((outcome, at_receiver), (Outcome::Good, Outcome::Good), "{words}: {sender}");
        for report in [&sender, &receiver] {
            assert_eq!((&report["changed"], &report["missing_bytes"]), (&0.into(), &0.into()), "{words}");
            assert!(report["values"].as_u64().unwrap() > 0, "{words}");
        }
        assert_eq!(sender["values"], receiver["values"]);
        assert!(sender["wire"].is_null());
    }
    let [(_, sender), _] = both("127.0.0.1", "--bytes 3000001 --connections 3");
    assert_eq!(sender["values"], 750_000);
}

/// A sender of the test's own making, over the real protocol: `harm` changes the bytes of its one
/// stream.
fn sent_by_hand(plan: &Plan, harm: impl FnOnce(&mut Vec<u8>), claimed: u64) -> (Outcome, Value) {
    let args = receive_args("--address 127.0.0.1 --port 0 --json");
    let receiver = Receiver::bind(&args).unwrap();
    let to = receiver.address().unwrap();
    let receiving = thread::spawn(move || printed(&receiver.serve(&args).unwrap()[0]));
    let mut control = Control::new(TcpStream::connect(to).unwrap(), args_patience()).unwrap();
    control.send(plan).unwrap();
    let Answer::Port(port) = control.receive().unwrap() else { panic!("no port") };
    let mut stream = sockets::connect_tagged(sockets::with_port(to, port), 0x28, args_patience()).unwrap();
    assert_eq!(control.receive::<Answer>().unwrap(), Answer::Accepted);
    let mut bytes = Values::generated(plan.seed).bytes()[..400_000].to_vec();
    harm(&mut bytes);
    stream.write_all(&bytes).unwrap();
    drop(stream);
    control.send(&Sent(vec![claimed])).unwrap();
    receiving.join().unwrap()
}

fn args_patience() -> Duration {
    Duration::from_secs(PATIENCE.parse().unwrap())
}

fn plan() -> Plan {
    let bound = Some(DEFAULT_BOUND);
    Plan { gradwire_test: VERSION, seed: 5, connections: 1, tos: 0x28, bound, file_bytes: None, more: false }
}

#[test]
fn one_corrupt_value_among_many_is_found() {
    let (outcome, _) = sent_by_hand(&plan(), |_| {}, 400_000);
    assert_eq!(outcome, Outcome::Good);
    // The top bit of the exponent of value 77,777.
    let (outcome, report) = sent_by_hand(&plan(), |bytes| bytes[4 * 77_777 + 3] ^= 0x40, 400_000);
    assert_eq!(outcome, Outcome::Bad);
    assert_eq!((&report["wrong"], &report["first_wrong"]["place"]), (&1.into(), &77_777.into()));
}

#[test]
fn bytes_that_are_missing_or_too_many_are_found() {
    for (claimed, missing) in [(400_004, 4), (399_996, -4)] {
        let (outcome, report) = sent_by_hand(&plan(), |_| {}, claimed);
        assert_eq!((outcome, &report["missing_bytes"]), (Outcome::Bad, &missing.into()));
    }
}

/// Values that would compress to nothing are not called good.
#[test]
fn a_norm_that_is_gone_is_no_success() {
    let (outcome, report) =
        sent_by_hand(&Plan { bound: Some(1e9), ..plan() }, |bytes| bytes.fill(0), 400_000);
    assert_eq!((outcome, &report["wrong"], &report["norm_lost"]), (Outcome::Bad, &0.into(), &1.0.into()));
}

#[test]
fn errors_name_cause_and_remedy() {
    // No other test listens at this address, so a port that is given back stays free.
    let own = "--address 127.0.77.1 --port 0";
    let port = Receiver::bind(&receive_args(own)).unwrap().address().unwrap().port();
    // Nobody listens any more.
    let error = run(&parse(&format!("send 127.0.77.1 --port {port}")).unwrap(), &mut Vec::new()).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains("gradwire-xdp test receive"), "{error}");

    let error = run(&parse("send 127.0.0.1 --values /missing").unwrap(), &mut Vec::new()).unwrap_err();
    assert_eq!(error.exit_code(), 2);

    let args = ReceiveArgs { wait: Some(Duration::from_millis(10)), ..receive_args(own) };
    let error = Receiver::bind(&args).unwrap().serve(&args).unwrap_err();
    assert!(error.to_string().contains("gradwire-xdp test send"), "{error}");

    let first = Receiver::bind(&args).unwrap().address().unwrap();
    let taken = TcpListener::bind(first).unwrap();
    let error = Receiver::bind(&ReceiveArgs { port: first.port(), ..args }).unwrap_err();
    assert!(error.to_string().contains("choose another --port"), "{error}");
    drop(taken);
}

#[test]
fn an_end_of_another_version_or_none_at_all_is_told_so() {
    for (line, words) in [
        (
            serde_json::to_string(&Plan { gradwire_test: 9, ..plan() }).unwrap(),
            "install the same gradwire-xdp",
        ),
        (serde_json::to_string(&Plan { connections: 9999, ..plan() }).unwrap(), "1 to 64 are served"),
        (serde_json::to_string(&Plan { file_bytes: Some(u64::MAX), ..plan() }).unwrap(), "bytes of values"),
        ("GET / HTTP/1.1".to_owned(), "a gradwire-xdp of the same version"),
    ] {
        let args = receive_args("--address 127.0.0.1 --port 0");
        let receiver = Receiver::bind(&args).unwrap();
        let to = receiver.address().unwrap();
        let serving = thread::spawn(move || receiver.serve(&args).unwrap_err());
        let stream = TcpStream::connect(to).unwrap();
        (&stream).write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut control = Control::new(stream, args_patience()).unwrap();
        let Answer::Failed(reason) = control.receive().unwrap() else { panic!("not refused") };
        let error = serving.join().unwrap().to_string();
        assert!(reason.contains(words) && error.contains(words), "{reason}");
    }
}

#[test]
fn the_default_bound_is_that_of_the_default_rule() {
    let gradwire::profile::Profile::BitPlane(bound) = crate::config::DEFAULT_PROFILE else {
        panic!("codec 2")
    };
    assert_eq!(bit_plane::Bound::new(bound.y()).map(|bound| 2f64.powi(bound.y().into())), Ok(DEFAULT_BOUND));
}

#[test]
fn arguments_are_read_as_people_write_them() {
    for (text, expected) in [("10", 2f64.powi(-10)), ("2^-8", 2f64.powi(-8)), ("0.001", 0.001), ("2^0", 1.0)]
    {
        assert_eq!(bound(text), Ok(expected), "{text}");
    }
    for text in ["-1", "0.0", "nan", "2^x", "", "1e999"] {
        assert!(bound(text).is_err(), "{text}");
    }
    assert_eq!((bytes("2G"), bytes("500k"), bytes("4096")), (Ok(2_000_000_000), Ok(500_000), Ok(4096)));
    assert!(bytes("0").is_err() && bytes("99999999999G").is_err() && bytes("5T").is_err());
    assert_eq!((tos("0x28"), tos("40"), tos("0")), (Ok(0x28), Ok(0x28), Ok(0)));
    assert!(tos("0x29").is_err() && tos("300").is_err());
    for line in [
        "send",
        "send a --bytes 1M --seconds 1",
        "send a --exact --bound 10",
        "send a --connections 65",
        "send a --rounds 2",
        "send a --baseline --rounds 0",
        "receive --port 65535",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}
