//! An aggregator, on a switch between hosts:
//!
//! ```text
//! ha, c2 ── bridge ── switch ── bridge ── hb, c3
//!                       │
//!                  gradwire-xdp aggregate
//! ```

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Instant;

use gradwire::codec::bit_plane::{self, Bound};
use gradwire_collectives::{CollectivePlan, Layout, Link, Listening, Options, Residuals, Token};
use gradwire_xdp::system::interface::Attached;
use gradwire_xdp::telemetry::AggregatorSnapshot;
use gradwire_xdp::telemetry::control::{aggregator_socket_path, query};
use rustix::process::Signal;

use support::process::Process;
use support::shim::PATIENT;
use support::traffic::gradients;
use support::{Lab, PATIENCE, Plan};

/// The aggregator's address, which no kernel has, and the one of its machine.
const AGGREGATOR: &str = "10.77.0.9";
const MACHINE: &str = "10.77.0.100";
const PORT: u16 = gradwire::wire::chunk::PORT;
const PLACES: [(&str, [u8; 4]); 4] =
    [("ha", [10, 77, 0, 1]), ("hb", [10, 77, 0, 2]), ("c2", [10, 77, 0, 3]), ("c3", [10, 77, 0, 4])];
/// Ten chunks, the last one short.
const VALUES: usize = 20_000;
/// Exchanges until the aggregator has to have summed one alone: it is left alone for up to 64 of
/// them when it was silent.
const ROUNDS: usize = 1000;

/// A laboratory with four hosts, and a machine for an aggregator on its switch.
fn lab() -> Option<Lab> {
    let lab = Lab::new(Plan::default())?;
    lab.add_container("sa", "c2", "10.77.0.3");
    lab.add_container("sb", "c3", "10.77.0.4");
    lab.add_container("w", "n", MACHINE);
    Some(lab)
}

/// A folder for the aggregator's control socket: interfaces of other laboratories have the same
/// name.
fn run_dir(lab: &Lab) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(lab.netns("n"))
}

fn start(lab: &Lab, words: &str) -> Process {
    start_at(lab, AGGREGATOR, &format!("{PATIENT} {words}"))
}

fn start_at(lab: &Lab, address: &str, words: &str) -> Process {
    launch(lab, &format!("--interface eth0 --address {address} {words}"))
}

fn launch(lab: &Lab, words: &str) -> Process {
    let (program, folder) = (env!("CARGO_BIN_EXE_gradwire-xdp"), run_dir(lab));
    let command = format!("{program} aggregate --run-dir {} {words}", folder.display());
    let mut aggregator = Process::spawn("aggregator", lab.command_in("n", &command));
    aggregator.wait_for("ready");
    aggregator
}

fn status(lab: &Lab) -> AggregatorSnapshot {
    let end = Instant::now() + PATIENCE;
    loop {
        match query::<AggregatorSnapshot>(&aggregator_socket_path(&run_dir(lab), "eth0")) {
            Ok(status) if status.answered => return status,
            answer => assert!(Instant::now() < end, "no answer but {answer:?}"),
        }
    }
}

/// A rank's gradient of a round: its own part of the recordings.
fn gradient(rank: usize, round: usize) -> Vec<f32> {
    let bytes = gradients(4 * VALUES * PLACES.len());
    let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    values.cycle().skip(rank * VALUES + 7 * round).take(VALUES).collect()
}

/// The bits of the sums of what the codec's definition restores of all gradients: sums of so few
/// whole units of 2^-10 are exact in `f64`, and in `f32`.
fn exact(round: usize) -> Vec<u32> {
    let bound = Bound::new(-10).unwrap();
    let mut sums = vec![0f64; VALUES];
    for rank in 0..PLACES.len() {
        let raw: Vec<u8> = gradient(rank, round).into_iter().flat_map(f32::to_le_bytes).collect();
        let mut coded = vec![0; bit_plane::max_encoded_len(raw.len())];
        let len = bit_plane::encode_payload(&raw, &mut coded, bound).unwrap();
        let mut restored = vec![0; raw.len()];
        bit_plane::decode_payload(&coded[..len], &mut restored, bound).unwrap();
        for (sum, bytes) in sums.iter_mut().zip(restored.as_chunks().0) {
            *sum += (f64::from(f32::from_le_bytes(*bytes)) * 1024.0).round_ties_even() / 1024.0;
        }
    }
    sums.into_iter().map(|sum| (sum as f32).to_bits()).collect()
}

/// One exchange of a rank; why the aggregator did not sum all of it, which every rank says alike.
/// The sums are exact, whoever made them.
fn exchange(link: &mut Link, rank: usize, round: usize) -> Option<&'static str> {
    let plan: CollectivePlan =
        format!("strategy = \"in-network:{AGGREGATOR}\"\ncodec = \"wire:2:10\"").parse().unwrap();
    let mut values = gradient(rank, round);
    let layout = Layout::new([("gradient", VALUES)]).unwrap();
    let report = link.exchange(&mut values, &layout, &plan, &mut Residuals::new()).unwrap();
    let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    assert!(bits == exact(round), "rank {rank}, round {round}: {report:?}");
    report.in_network.unwrap().reason
}

/// Exchanges until one does, or does not, get everything from the aggregator; the rounds so far.
fn until(link: &mut Link, rank: usize, mut round: usize, by_aggregator: bool) -> usize {
    for _ in 0..ROUNDS {
        round += 1;
        if exchange(link, rank, round).is_none() == by_aggregator {
            return round;
        }
    }
    panic!("rank {rank}: no exchange of {ROUNDS} ended like this: by the aggregator {by_aggregator}");
}

/// All ranks, each on its host, and a job that all do at the same time.
fn ranks(lab: &Lab, job: impl Fn(&mut Link, usize) + Clone + Send + 'static) -> Vec<JoinHandle<()>> {
    let token = Token::random().unwrap();
    let root: SocketAddr = (PLACES[0].1, 7000).into();
    let rank = |(rank, (place, ip)): (usize, &(&str, [u8; 4]))| {
        let own = if rank == 0 { root } else { (*ip, 0).into() };
        let (token, job) = (token.clone(), job.clone());
        lab.enter(place, move || {
            let options = Options { timeout: PATIENCE, ..Options::new(token) };
            let mut link = Listening::bind(own, options).unwrap().join(rank, PLACES.len(), root).unwrap();
            job(&mut link, rank);
            link.close();
        })
    };
    PLACES.iter().enumerate().map(rank).collect()
}

/// Sums are exact, with the aggregator, when it is killed, when it is back, and when another one
/// takes its place.
#[test]
fn sums_outlive_their_aggregator() {
    let Some(lab) = lab() else { return };
    let mut aggregator = start(&lab, "");
    // Ranks wait here for what happens to the aggregator.
    let gate = Arc::new(Barrier::new(PLACES.len() + 1));
    let of_ranks = Arc::clone(&gate);
    let running = ranks(&lab, move |link, rank| {
        let round = until(link, rank, 0, true);
        of_ranks.wait();
        of_ranks.wait();
        let round = until(link, rank, round, false);
        of_ranks.wait();
        of_ranks.wait();
        let round = until(link, rank, round, true);
        of_ranks.wait();
        of_ranks.wait();
        let round = until(link, rank, round, false);
        until(link, rank, round, true);
    });
    gate.wait();
    let before = status(&lab);
    assert_eq!(before.jobs.iter().map(|job| job.children).collect::<Vec<_>>(), [PLACES.len()]);
    assert!(before.chunks_summed() >= 10, "{before:?}");
    assert!(before.frames["arp"] >= 4, "each host looked the aggregator up: {before:?}");
    assert_eq!((before.interface.xdp, before.frames["checksum"]), (Attached::Native, 0));

    aggregator.signal(Signal::KILL);
    aggregator.wait();
    assert!(!lab.ip_in("n", "link show dev eth0").contains("xdp"));
    gate.wait();
    gate.wait();

    let mut aggregator = start(&lab, "");
    gate.wait();
    gate.wait();
    assert!(status(&lab).chunks_summed() >= 10);

    // It does not let a second one onto its interface, unless that is to take its place.
    let command = format!(
        "{} aggregate --interface eth0 --address {AGGREGATOR} --run-dir {}",
        env!("CARGO_BIN_EXE_gradwire-xdp"),
        run_dir(&lab).display()
    );
    let refused = lab.in_place("n", &command);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("gradwire-xdp unload eth0"), "{refused:?}");
    let mut successor = start(&lab, "--replace");
    assert!(aggregator.wait().success(), "{}", aggregator.log());
    gate.wait();
    for rank in running {
        rank.join().unwrap();
    }
    assert!(status(&lab).chunks_summed() >= 10);
    successor.end();
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}

/// By a multicast group, which ranks join because the aggregator names it: each result is sent
/// once.
#[test]
fn results_come_by_a_group() {
    let Some(lab) = lab() else { return };
    let mut aggregator = start(&lab, "--group 239.129.2.3");
    let gate = Arc::new(Barrier::new(PLACES.len() + 1));
    let is_seen = Arc::new(AtomicBool::new(false));
    let (of_ranks, seen) = (Arc::clone(&gate), Arc::clone(&is_seen));
    let running = ranks(&lab, move |link, rank| {
        let mut round = 0;
        while !seen.load(Ordering::SeqCst) {
            round = until(link, rank, round, true);
            of_ranks.wait();
            of_ranks.wait();
        }
    });
    // Results that got lost on a busy machine are asked for. But if none came by the group, all
    // would be: ten chunks by four ranks.
    let mut repeated = 0;
    for _ in 0..ROUNDS {
        gate.wait();
        let now = status(&lab).datagrams["repeated"];
        let is_by_group = now - repeated < 40;
        repeated = now;
        is_seen.store(is_by_group, Ordering::SeqCst);
        if is_by_group {
            for (place, _) in PLACES {
                let groups = lab.ip_in(place, "maddress show dev eth0");
                assert!(groups.contains("239.129.2.3"), "{place}: {groups}");
            }
        }
        gate.wait();
        if is_by_group {
            break;
        }
    }
    for rank in running {
        rank.join().unwrap();
    }
    assert!(is_seen.load(Ordering::SeqCst), "nobody got results by the group");
    aggregator.end();
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}

/// The aggregator answers pings, and takes nothing that is for its machine.
#[test]
fn other_traffic_is_untouched() {
    let Some(lab) = lab() else { return };
    let mut aggregator = start(&lab, &format!("--metrics {MACHINE}:9407"));
    lab.assert_pings(AGGREGATOR);
    lab.assert_pings(MACHINE);
    let echo = lab.enter("n", || {
        let socket = UdpSocket::bind((MACHINE, PORT)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut packet = [0; 2048];
        let (len, from) = socket.recv_from(&mut packet).unwrap();
        socket.send_to(&packet[..len], from).unwrap();
    });
    let asker = lab.enter("ha", || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        let (message, mut answer) = ([7; 1000], [0; 2048]);
        // Until the other one listens.
        let end = Instant::now() + PATIENCE;
        loop {
            socket.send_to(&message, (MACHINE, PORT)).unwrap();
            match socket.recv(&mut answer) {
                Ok(len) => return answer[..len] == message,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        }
    });
    assert!(asker.join().unwrap());
    echo.join().unwrap();
    let status = status(&lab);
    assert!(status.frames["echo"] >= 50 && status.frames["arp"] >= 1, "{status:?}");
    let other: u64 = status
        .frames
        .iter()
        .filter(|(what, _)| !["echo", "arp"].contains(&what.as_str()))
        .map(|(_, n)| n)
        .sum();
    assert_eq!(other, 0, "{status:?}");
    let sent = status.frames["echo"] + status.frames["arp"];
    assert_eq!((status.sent, status.lost), (sent, 0));

    let page = lab.enter("ha", || {
        let mut client = TcpStream::connect((MACHINE, 9407)).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        client.read_to_string(&mut page).unwrap();
        page
    });
    let echoes = format!(
        "gradwire_aggregator_frames_total{{interface=\"eth0\",what=\"echo\"}} {}\n",
        status.frames["echo"]
    );
    let page = page.join().unwrap();
    assert!(page.contains(&echoes), "{page}");

    // When it has gone, its address has, too; the machine stays.
    aggregator.end();
    assert!(!lab.in_place("ha", &format!("ping -q -c 1 -W 1 {AGGREGATOR}")).status.success());
    lab.assert_pings(MACHINE);
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}

/// With its machine's own address, the aggregator answers as long as it lives, and the kernel when
/// it hangs.
#[test]
fn a_hanging_aggregator_leaves_all_to_the_kernel() {
    let Some(lab) = lab() else { return };
    let mut aggregator = start_at(&lab, MACHINE, "");
    // On a busy machine it may seem to hang before it does.
    let mut answered_by_aggregator = (0..ROUNDS).map(|_| {
        lab.assert_pings(MACHINE);
        status(&lab).frames["echo"] > 0
    });
    assert!(answered_by_aggregator.any(|answered| answered));
    let before = status(&lab).kept.stale;
    aggregator.signal(Signal::STOP);
    lab.assert_pings(MACHINE);
    aggregator.signal(Signal::CONT);
    assert!(status(&lab).kept.stale >= before + 50);
    aggregator.end();
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}

/// A running aggregator has the file's settings, unless an option says otherwise.
#[test]
fn a_file_describes_an_aggregator() {
    let Some(lab) = lab() else { return };
    let file = run_dir(&lab).with_extension("toml");
    let text = "[aggregator]\ninterface = \"eth0\"\naddress = \"10.77.0.8\"\nport = 5000\n[path]\nmode = \"generic\"\n";
    fs::write(&file, text).unwrap();
    let mut aggregator = launch(&lab, &format!("--config {} --address {AGGREGATOR}", file.display()));
    lab.assert_pings(AGGREGATOR);
    let status = status(&lab);
    assert_eq!(
        (status.address.to_string(), status.interface.xdp),
        (format!("{AGGREGATOR}:5000"), Attached::Generic)
    );
    aggregator.end();
    fs::remove_file(file).unwrap();
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}

/// Before an aggregator runs, the doctor says whose its address is.
#[test]
fn the_doctor_knows_whose_an_address_is() {
    let Some(lab) = lab() else { return };
    let checked = |address: &str, check: &str| {
        let words = format!(
            "doctor --json --interface eth0 --address {address} --run-dir {}",
            run_dir(&lab).display()
        );
        let output = lab.in_place("n", &format!("{} {words}", env!("CARGO_BIN_EXE_gradwire-xdp")));
        let findings: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let failed = findings.iter().any(|finding| finding["status"] == "failed");
        assert_eq!(output.status.code(), Some(i32::from(failed)), "{findings:?}");
        findings.into_iter().find(|finding| finding["check"] == check).unwrap()
    };
    let found = checked("10.77.0.3", "address");
    assert_eq!(found["status"], "failed");
    let mac = lab.mac("c2").map(|byte| format!("{byte:02x}")).join(":");
    assert!(found["found"].as_str().unwrap().contains(&mac), "{found}");
    assert_eq!(checked("192.0.2.9", "address")["status"], "unknown");
    assert_eq!(checked(AGGREGATOR, "address")["status"], "ok");
    assert_eq!(checked(MACHINE, "address")["status"], "ok");
    let taken = lab.enter("n", || UdpSocket::bind((MACHINE, PORT)).unwrap()).join().unwrap();
    assert_eq!(checked(MACHINE, "port")["status"], "warning");
    drop(taken);
    assert_eq!(checked(MACHINE, "port")["status"], "ok");
    lab.ip_in("n", "address add 192.0.2.9/32 dev lo");
    let found = checked("192.0.2.9", "address");
    assert!(found["found"].as_str().unwrap().contains("an address of lo"), "{found}");

    // It names the aggregator that runs, and does not take its own address for another's.
    let mut aggregator = start(&lab, "");
    assert_eq!(checked(AGGREGATOR, "address")["status"], "ok");
    let program = checked(AGGREGATOR, "program");
    assert!(program["fix"].as_str().unwrap().contains("unload eth0"), "{program}");
    lab.ip_in("n", "link set dev eth0 mtu 1400");
    assert_eq!(checked(AGGREGATOR, "mtu")["status"], "warning");
    assert_eq!(checked(AGGREGATOR, "packets")["status"], "warning");
    aggregator.end();
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}

#[test]
fn unsupported_features_are_errors() {
    let Some(lab) = lab() else { return };
    let refused = |words: &str| {
        let command = format!(
            "{} aggregate --run-dir {} {words}",
            env!("CARGO_BIN_EXE_gradwire-xdp"),
            run_dir(&lab).display()
        );
        let output = lab.in_place("n", &command);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused("--interface nothere --address 10.0.0.1").contains("no such interface"));
    assert!(refused("--interface eth0 --address 10.0.0.1 --group 224.0.0.5").contains("224.0.1.0"));
    assert!(refused("--interface nothere --address 0.0.0.0").contains("that a host may have"));
    lab.ip_in("n", "link set dev eth0 mtu 600");
    assert!(refused("--interface eth0 --address 10.0.0.1").contains("mtu 777"));
    fs::remove_dir_all(run_dir(&lab)).unwrap();
}
