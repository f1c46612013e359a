//! The command as its users meet it: exit codes, streams, messages, the shape of JSON.

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod check;
mod pipes;
mod replay;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use etherparse::{IpHeaders, IpNumber, PacketBuilder};
use gradwire::kernels::Kernel;
use gradwire_testbench::bench::distributions;
use gradwire_testbench::input::{Capture, Frame, Writer, ipv4};
use gradwire_testbench::verify::frame::{Transport, View};
use serde_json::Value;
use support::{capture, recordings};

fn gradwire(args: &[&str]) -> Output {
    gradwire_with(args, &[])
}

/// Starts the command.
fn started(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_gradwire"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the command with `input` on standard input.
fn gradwire_with(args: &[&str], input: &[u8]) -> Output {
    let mut child = started(args);
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // The command may end without having read its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// A file for one test.
fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Values as numpy writes them.
fn npy(values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend([118, 0]); // so that values start at byte 128
    bytes.extend(format!("{header:<117}\n").into_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// Runs a subcommand on a file of `bytes`: it has to end with code 2 and name the file in its
/// message.
fn refusal(subcommand: &str, name: &str, bytes: &[u8]) -> String {
    let path = scratch(name, bytes);
    let output = gradwire(&[subcommand, path.to_str().unwrap()]);
    assert_eq!(code(&output), 2, "{name}: {}", stderr(&output));
    assert!(output.stdout.is_empty());
    assert_eq!(stderr(&output).lines().count(), 1);
    let message = stderr(&output);
    message.strip_prefix(&format!("gradwire: {}: ", path.display())).expect("the file's name first").into()
}

#[test]
fn the_main_job_holds_and_says_so_in_its_last_line() {
    let output = gradwire(&[]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["cnn_i0300_w0", "hdc256_i0040_w0", "lm_i0950_w0", "resnet_i0010_w0"] {
        let lines = text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(lines, 6, "{name} at three bounds, with two codecs");
    }
    for name in ["ring4_loss.pcap", "ring4_mtu1450.pcap"] {
        for replayed in ["in-place framing, codec 1", "routed framing, codec 1", "routed framing, codec 2"] {
            assert!(text.contains(&format!("{name}, {replayed}, bound 2^-10")), "{replayed}");
        }
    }
    assert!(text.lines().last().unwrap().starts_with("every bound and check held"));
}

#[test]
fn missing_files_are_code_2() {
    for subcommand in ["check", "replay"] {
        let output = gradwire(&[subcommand, "no/such/file"]);
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).starts_with("gradwire: no/such/file: cannot read: "), "{}", stderr(&output));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-gradients");
    fs::create_dir_all(&folder).unwrap();
    let output = gradwire(&["check", folder.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("a folder without .npy files"));
}

#[test]
fn wrong_options_are_code_2() {
    for args in [
        &["check", "--split", "paper", "--bounds", "15"][..],
        &["check", "--split", "paper", "--bounds", "0"],
        &["check", "--codec", "1", "--bounds", "15"],
        &["check", "--codec", "1", "--scale", "-81"],
        &["check", "--codec", "2", "--split", "dense"],
        &["check", "--codec", "3"],
        &["check", "--profile", "inceptionn", "--split", "paper"],
        &["replay", "x", "--profile", "inceptionn", "--framing", "routed"],
        &["replay", "x", "--profile", "nic"],
        // 2^(X-B) from 2^-94 to 2^111.
        &["check", "--bounds", "95"],
        &["check", "--bounds", "-112"],
        &["check", "--scale", "-85"],
        &["check", "--scale", "127", "--bounds", "15"],
        &["check", "--split", "fine"],
        &["replay"],
        &["replay", "x", "--tos", "256"],
        &["nonsense"],
        // The rule's own faults are found by the dataplane.
        &["replay", recordings().join("ring4_loss.pcap").to_str().unwrap(), "--tos", "0x30"],
        &["replay", recordings().join("ring4_loss.pcap").to_str().unwrap(), "--mask", "0x0f"],
    ] {
        let output = gradwire(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(!stderr(&output).is_empty() && output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(code(&gradwire(&["--help"])), 0);
}

/// Also if it says what holds anyway.
#[test]
fn no_option_is_ignored() {
    let ring = recordings().join("ring4_mtu1450.pcap");
    let code = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ignored.gw");
    assert_eq!(self::code(&gradwire_with(&["encode", "-o", code.to_str().unwrap()], &[0; 8])), 0);
    for (line, says) in [
        ("replay RING --profile inceptionn --framing routed", "'--framing <FRAMING>'"),
        ("replay RING --profile inceptionn --tos 0x28", "'--tos <TOS>'"),
        ("replay RING --profile inceptionn --mask 0xfc", "'--mask <MASK>'"),
        ("replay RING --profile inceptionn --alignment connection", "'--alignment <ALIGNMENT>'"),
        ("replay RING --profile inceptionn --handshake required", "'--handshake <HANDSHAKE>'"),
        ("replay RING --profile inceptionn --heuristic on", "'--heuristic <HEURISTIC>'"),
        ("replay RING --profile inceptionn --codec 1", "'--codec <1|2>'"),
        ("replay RING --profile inceptionn --split dense", "'--split <SPLIT>'"),
        ("replay RING --engine rtl --handshake required", "without --handshake required"),
        ("replay RING --from-wire --html page.html", "'--html <FILE.html>'"),
        ("replay RING --from-wire --heuristic on", "'--heuristic <HEURISTIC>'"),
        ("softcore RING --interactive --html page.html", "'--html <FILE.html>'"),
        ("decode CODE --codec 2", "leave out --codec"),
        ("decode CODE --split dense", "leave out --split"),
        ("decode CODE --profile inceptionn", "leave out --profile"),
        ("decode CODE --bound 10", "leave out --bound"),
        ("decode CODE --scale 0", "leave out --scale"),
        ("decode CODE --values 2", "leave out --values"),
        ("plan profile --listen 203.0.113.1:1 --bounds 10,8,6", "'--bounds <B,..>'"),
        ("plan profile --listen 203.0.113.1:1 --gradients .", "'--gradients <PATH>'"),
        ("simulate --seed 0", "--jitter <JITTER>"),
        ("simulate --layer 1M,100M", "give --layers N"),
        ("simulate --ranks 4 --sweep ranks=8..16", "goes without --ranks"),
        ("simulate --sweep aggregator-cores=1,2 --aggregator-cores 1", "goes without --aggregator-cores"),
        ("allreduce --local 2 --plan plan.toml --groups 1", "'--groups <G>'"),
        ("allreduce --local 2 --token-file token", "'--token-file <FILE>'"),
    ] {
        let line = line.replace("RING", ring.to_str().unwrap()).replace("CODE", code.to_str().unwrap());
        let output = gradwire(&line.split(' ').collect::<Vec<_>>());
        let stderr = stderr(&output);
        assert_eq!((self::code(&output), output.stdout.len()), (2, 0), "{line}: {stderr}");
        assert!(stderr.contains(says), "{line}: {stderr}");
    }
}

#[test]
fn every_kernel_that_is_available_does_all_the_work_and_others_are_named_in_the_refusal() {
    let gradient = recordings().join("cnn_i0300_w0.npy");
    let pcap = recordings().join("ring4_mtu1450.pcap");
    let (gradient, pcap) = (gradient.to_str().unwrap(), pcap.to_str().unwrap());
    let values: Vec<u8> = (0..40_000u32).flat_map(|i| (i as f32 / 3e4 - 0.2).powi(3).to_le_bytes()).collect();
    let codecs = [&["--codec", "1"][..], &["--codec", "2", "--values", "40000"]];
    let coded = codecs.map(|codec| gradwire_with(&[&["encode"], &codec[..2]].concat(), &values).stdout);
    let restored = [0, 1].map(|i| gradwire_with(&[&["decode"], codecs[i]].concat(), &coded[i]).stdout);
    assert!(restored.iter().all(|restored| restored.len() == values.len()));
    let replayed = gradwire(&["replay", pcap, "--json"]).stdout;
    let checked = gradwire(&["check", gradient, "--json"]).stdout;
    for kernel in Kernel::available() {
        let with = ["--kernel", kernel.name()];
        for ((codec, coded), restored) in codecs.iter().zip(&coded).zip(&restored) {
            let encode = [&["encode"], &with[..], &codec[..2]].concat();
            assert_eq!(gradwire_with(&encode, &values).stdout, *coded, "{with:?} {codec:?}");
            let decode = [&["decode"], &with[..], codec].concat();
            assert_eq!(gradwire_with(&decode, coded).stdout, *restored, "{with:?} {codec:?}");
        }
        assert_eq!(gradwire(&[&["check", gradient, "--json"], &with[..]].concat()).stdout, checked);
        assert_eq!(gradwire(&[&["replay", pcap, "--json"], &with[..]].concat()).stdout, replayed);
    }
    for args in [&["check"][..], &["replay", pcap], &["encode"], &["decode"], &["bench"]] {
        let output = gradwire(&[args, &["--kernel", "abacus"]].concat());
        assert_eq!((code(&output), output.stdout.len()), (2, 0));
        let message = stderr(&output);
        assert!(message.contains("invalid value 'abacus' for '--kernel <K>'"), "{message}");
        for kernel in Kernel::available() {
            assert!(message.contains(kernel.name()), "{message}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let mut child = started(&["encode"]);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // More than any buffer on the way; the command ends before it has read all.
    drop(stdin.write_all(&vec![0x55; 1 << 20]));
    drop(stdin);
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!((child.wait().unwrap().code(), &message[..]), (Some(2), ""));
}

/// With the firmware and QEMU it is tested by `firmware/softcore/test`.
#[test]
fn a_soft_core_that_is_not_built_is_missed() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings/ring4_mtu1450.pcap");
    let output = gradwire(&["softcore", capture, "--image", "/nowhere/softcore"]);
    assert_eq!(code(&output), 2);
    assert_eq!(
        stderr(&output),
        "gradwire: /nowhere/softcore: no such file: firmware/softcore/cargo build --release\n"
    );
}

#[test]
fn manual_pages_and_completions_come_out() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    let output = gradwire(&["man", folder.to_str().unwrap()]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    for page in
        ["gradwire.1", "gradwire-check.1", "gradwire-replay.1", "gradwire-softcore.1", "gradwire-bench.1"]
    {
        assert!(fs::read_to_string(folder.join(page)).unwrap().contains(".TH"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = gradwire(&["completions", shell]);
        assert_eq!(code(&output), 0);
        assert!(String::from_utf8(output.stdout).unwrap().contains("replay"));
    }
}
