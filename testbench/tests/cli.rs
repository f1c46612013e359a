//! The command as its users meet it: exit codes, streams, messages, the shape of JSON.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use etherparse::{IpHeaders, IpNumber, PacketBuilder};
use gradwire::kernels::Kernel;
use gradwire_testbench::bench::shapes;
use gradwire_testbench::input::{Capture, Frame, Writer, ipv4};
use gradwire_testbench::judge::frame::{Transport, View};
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

/// A capture as a file.
fn pcap(capture: &Capture) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    for frame in &capture.frames {
        writer.frame(frame.time, &frame.bytes).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

/// Runs a subcommand on a file of `bytes`: it has to end with code 2 and name the file in its message.
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
fn check_prints_the_json_of_its_help() {
    let path = recordings().join("cnn_i0300_w0.npy");
    let args =
        ["check", path.to_str().unwrap(), "--bounds", "8,6", "--split", "paper", "--scale", "-2", "--json"];
    let output = gradwire(&args);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let report = json(&output);
    assert_eq!(keys(&report), ["ok", "recordings", "useful"]);
    assert_eq!((&report["ok"], &report["useful"]), (&Value::from(true), &Value::from(true)));
    let rows = report["recordings"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let wanted = [
        "bound",
        "classes",
        "codec",
        "max_error",
        "name",
        "non_finite",
        "norm_lost",
        "ratio",
        "rms_error",
        "values",
        "violations",
    ];
    assert_eq!(keys(&rows[0]), wanted);
    assert_eq!(keys(&rows[0]["classes"]), ["byte", "half", "raw", "zero"]);
    assert_eq!(rows[0]["codec"], 1, "a split is codec 1's");
    assert_eq!((&rows[0]["bound"], &rows[1]["bound"]), (&Value::from(8), &Value::from(6)));
    assert_eq!(rows[0]["name"], "cnn_i0300_w0");
    assert_eq!((&rows[0]["values"], &rows[0]["violations"]), (&Value::from(49672), &Value::from(0)));
}

#[test]
fn check_reads_files_folders_and_standard_input_alike() {
    let file = recordings().join("cnn_i0300_w0.npy");
    let of_file = gradwire(&["check", file.to_str().unwrap(), "--json"]);
    let of_stdin = gradwire_with(&["check", "-", "--json"], &fs::read(&file).unwrap());
    assert_eq!(json(&of_file)["recordings"][0]["ratio"], json(&of_stdin)["recordings"][0]["ratio"]);
    let of_folder = json(&gradwire(&["check", recordings().to_str().unwrap(), "--json"]));
    assert_eq!(of_folder, json(&gradwire(&["check", "--json"])), "the folder is the built-in set");
    let auto = json(&gradwire(&["check", file.to_str().unwrap(), "--scale", "auto", "--json"]));
    assert_eq!(auto["recordings"][0]["scale"], -2, "its peak is 0.232");
}

#[test]
fn bad_gradients_are_refused_with_file_offset_and_what_would_be_right() {
    let good = fs::read(recordings().join("cnn_i0300_w0.npy")).unwrap();
    let with_dtype = |dtype: &str| {
        let at = good.windows(3).position(|bytes| bytes == b"<f4").unwrap();
        let mut bytes = good.clone();
        bytes[at..at + 3].copy_from_slice(dtype.as_bytes());
        bytes
    };
    assert!(refusal("check", "magic.npy", b"GIF89a").starts_with("byte 0: "));
    assert!(
        refusal("check", "big.npy", &with_dtype(">f4")).contains("big-endian dtype '>f4', expected '<f4'")
    );
    assert!(refusal("check", "double.npy", &with_dtype("<f8")).contains("dtype '<f8', expected '<f4'"));
    let cut = refusal("check", "cut.npy", &good[..good.len() - 2]);
    assert!(cut.starts_with(&format!("byte {}: the end of the file", good.len() - 2)), "{cut}");
    assert!(cut.contains("expected 198688 bytes (49672 values)"), "{cut}");
    let mut long = good.clone();
    long.push(0);
    assert!(refusal("check", "long.npy", &long).contains("1 bytes after the last value"));
    assert!(refusal("check", "empty.npy", b"").starts_with("byte 0: "));
}

#[test]
fn what_is_missing_is_code_2() {
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

#[test]
fn replay_prints_the_json_of_its_help_and_writes_both_captures() {
    let path = recordings().join("ring4_mtu1450.pcap");
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (wire, restored) = (tmp.join("wire.pcap"), tmp.join("restored.pcap"));
    // Its listeners are not tagged, as a handshake about in-place framing needs.
    for (framing, handshake) in [("in-place", "off"), ("routed", "required")] {
        let output = gradwire(&[
            "replay",
            path.to_str().unwrap(),
            "--framing",
            framing,
            "--handshake",
            handshake,
            "--write-wire",
            wire.to_str().unwrap(),
            "--write-restored",
            restored.to_str().unwrap(),
            "--json",
        ]);
        assert_eq!((code(&output), stderr(&output)), (0, String::new()));
        let report = json(&output);
        let wanted = [
            "altered_untagged",
            "codec",
            "compressed",
            "dropped",
            "frames",
            "max_error",
            "mixed",
            "norm_lost",
            "ok",
            "tagged",
            "untouched",
            "useful",
            "values",
            "violations",
            "warnings",
            "wire_bytes_in",
            "wire_bytes_out",
        ];
        // Only where SYNs said something.
        let mut keys = keys(&report);
        keys.retain(|key| !(*key == "told" && handshake == "required"));
        assert_eq!(keys, wanted);
        assert_eq!((&report["ok"], &report["frames"]), (&Value::from(true), &Value::from(1280)));

        let (sent, wire, restored) = (capture(&path), capture(&wire), capture(&restored));
        let lens = |frames: &[gradwire_testbench::input::Frame]| {
            frames.iter().map(|frame| (frame.time, frame.bytes.len())).collect::<Vec<_>>()
        };
        assert_eq!(lens(&sent.frames), lens(&restored.frames), "every frame has its length and time back");
        let shorter =
            sent.frames.iter().zip(&wire.frames).filter(|(sent, wire)| wire.bytes.len() < sent.bytes.len());
        assert_eq!(shorter.count() as u64, report["compressed"].as_u64().unwrap());
    }
}

/// A bound can hold where nothing is left of the values.
#[test]
fn values_that_are_lost_are_not_held() {
    // As of a normal distribution of 1e-5, by its quantiles.
    let small: Vec<f32> = (1..1000).map(|i| 1e-5 * ((i as f32 - 500.0) / 250.0)).collect();
    let path = scratch("small.npy", &npy(&small));
    let path = path.to_str().unwrap();
    let lost = gradwire(&["check", path, "--bounds", "10"]);
    let told = String::from_utf8(lost.stdout.clone()).unwrap();
    assert_eq!(code(&lost), 1, "{told}");
    assert!(told.contains("100.0% of the norm is lost") && told.contains("--scale auto"), "{told}");
    assert!(told.lines().last().unwrap().starts_with("NOT useful"), "{told}");
    let report = json(&gradwire(&["check", path, "--bounds", "10", "--json"]));
    assert_eq!((&report["ok"], &report["useful"]), (&Value::from(true), &Value::from(false)));
    // The remedy is one.
    let scaled = gradwire(&["check", path, "--bounds", "10", "--scale", "auto"]);
    assert_eq!(code(&scaled), 0, "{}", String::from_utf8_lossy(&scaled.stdout));

    let path = scratch("nan.npy", &npy(&[1.0, f32::NAN, f32::INFINITY, 0.5]));
    let told = gradwire(&["check", path.to_str().unwrap()]);
    assert_eq!(code(&told), 0);
    assert!(String::from_utf8(told.stdout).unwrap().contains("2 values are NaN or infinite"));

    let ring = recordings().join("ring4_loss.pcap");
    let wide = gradwire(&["replay", ring.to_str().unwrap(), "--bound", "-2"]);
    assert_eq!(code(&wide), 1);
    assert!(stderr(&wide).contains("of the norm is lost"), "{}", stderr(&wide));
    assert!(String::from_utf8(wide.stdout).unwrap().lines().last().unwrap().starts_with("NOT useful"));
}

/// What a capture does not show is said, with what helps.
#[test]
fn captures_without_a_handshake_say_so() {
    let whole = capture(&recordings().join("ring4_loss.pcap"));
    let side = source(&whole);
    let only = |keep: &dyn Fn(&View, &[u8]) -> bool| {
        let mut part = capture(&recordings().join("ring4_loss.pcap"));
        part.frames.retain(|frame| View::of(&frame.bytes).is_some_and(|view| keep(&view, &frame.bytes)));
        part
    };
    let is_syn = |view: &View| {
        view.segment
            .as_ref()
            .is_some_and(|segment| matches!(segment.transport, Transport::Tcp(tcp) if tcp.syn))
    };
    for (name, part, framing, remedy) in [
        ("one-side.pcap", only(&|_, bytes| bytes[6..12] == side), "routed", "--handshake off"),
        ("late.pcap", only(&|view, _| !is_syn(view)), "routed", "begins after the SYN"),
        ("untagged-syn.pcap", only(&|_, _| true), "routed", ""),
        (
            "untagged-listener.pcap",
            capture(&recordings().join("ring4_mtu1450.pcap")),
            "in-place",
            "both directions",
        ),
    ] {
        let path = scratch(name, &pcap(&part));
        let path = path.to_str().unwrap();
        let output = gradwire(&["replay", path, "--framing", framing, "--codec", "1"]);
        let told = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(code(&output), 0, "{name}: {told}");
        assert!(told.contains(remedy) && told.is_empty() == remedy.is_empty(), "{name}: {told}");
        let held = String::from_utf8_lossy(&output.stdout).lines().last().map(str::to_owned).unwrap();
        assert_eq!(held.starts_with("no value was compressed"), !remedy.is_empty(), "{name}: {held}");
        let report = json(&gradwire(&["replay", path, "--framing", framing, "--codec", "1", "--json"]));
        assert_eq!(report["compressed"].as_u64().unwrap() > 0, remedy.is_empty(), "{name}");
        // The remedy of a capture of one direction is one.
        let off = json(&gradwire(&[
            "replay",
            path,
            "--framing",
            framing,
            "--codec",
            "1",
            "--handshake",
            "off",
            "--json",
        ]));
        assert_eq!(off["compressed"].as_u64().unwrap() > 0, name != "late.pcap", "{name}");
    }
}

/// The card that sends the first tagged SYN.
fn source(capture: &Capture) -> [u8; 6] {
    let tagged = capture
        .frames
        .iter()
        .find(|frame| View::of(&frame.bytes).is_some_and(|view| view.tos & 0xfc == 0x28));
    tagged.unwrap().bytes[6..12].try_into().unwrap()
}

#[test]
fn a_capture_of_headers_is_code_1() {
    let segment = |seq, syn: bool, payload: &[u8]| {
        let ip = IpHeaders::Ipv4(ipv4(0x28, IpNumber::TCP, [10, 0, 0, 1], [10, 0, 0, 2]), Default::default());
        let segment = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(ip).tcp(40_000, 5400, seq, 512);
        let segment = if syn { segment.syn() } else { segment.ack(1) };
        let mut bytes = Vec::new();
        segment.write(&mut bytes, payload).unwrap();
        bytes
    };
    // A framework's header, and values.
    let header = [48u32, 0, 1, 0, 7, 0, 0, 0, 400, 0, 0, 0].map(u32::to_le_bytes);
    let values = [0.001f32.to_le_bytes(); 100];
    let payload = [header.as_flattened(), values.as_flattened()].concat();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    for frame in [segment(999, true, &[]), segment(1000, false, &payload)] {
        writer.frame(Duration::ZERO, &frame).unwrap();
    }
    writer.finish().unwrap();
    let path = scratch("headers.pcap", &bytes);
    let path = path.to_str().unwrap();

    let output = gradwire(&["replay", path, "--handshake", "off"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("4 of 112 values are nonzero subnormals"), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().last().unwrap().starts_with("NOT values alone, connections"), "{text}");
    assert!(text.contains("1 not-values"), "{text}");

    let output = gradwire(&["replay", path, "--handshake", "off", "--contents", "trusted", "--json"]);
    let report = json(&output);
    assert_eq!(
        (code(&output), &report["compressed"], &report["ok"]),
        (1, &Value::from(1), &Value::from(true))
    );
    assert_eq!(report["mixed"].as_array().unwrap().len(), 1);
}

#[test]
fn a_failed_check_is_code_1() {
    // A rule that says that each payload starts with a value is wrong for these segments. A card that gets the
    // connection in its middle cannot know, and the stream shows it.
    let mut capture = capture(&recordings().join("ring4_mtu1450.pcap"));
    let mut segments = BTreeMap::new();
    for frame in &mut capture.frames {
        let Some(segment) = View::of(&frame.bytes).and_then(|view| view.segment) else { continue };
        let segments = segments.entry(segment.flow).or_insert(0);
        *segments += usize::from(!segment.payload.is_empty());
        if *segments > 1 {
            frame.bytes[6] ^= 4;
        }
    }
    let path = scratch("two-cards.pcap", &pcap(&capture));
    let off_grid = ["replay", path.to_str().unwrap(), "--handshake", "off", "--grid", "payload"];
    // Values that are read from a wrong byte on look like none.
    assert_eq!(code(&gradwire(&off_grid)), 0);
    let trusting = [&off_grid[..], &["--contents", "trusted"]].concat();
    let output = gradwire(&trusting);
    assert_eq!(code(&output), 1);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("compressed, though its payload starts within a value"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("NOT every bound and check held"));
    let output = gradwire(&[&trusting[..], &["--json"]].concat());
    assert_eq!((code(&output), &json(&output)["ok"]), (1, &Value::from(false)));
    assert!(json(&output)["violations"].as_u64().unwrap() > 0);
}

/// A rule for another type of service must not look like a capture of which everything held.
#[test]
fn a_capture_of_which_nothing_was_judged_is_code_2() {
    let path = recordings().join("ring4_mtu1450.pcap");
    let path = path.to_str().unwrap();
    for json in [&[][..], &["--json"]] {
        let output = gradwire(&[&["replay", path, "--tos", "0x50"], json].concat());
        assert_eq!((code(&output), output.stdout.len()), (2, 0));
        let message = stderr(&output);
        let expected = "nothing was judged: no frame with payload has a type of service that the rule matches \
                        (0x50 under 0xfc)";
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("0x00 in ") && message.contains("0x28 in "), "{message}");
    }
    let empty = refusal("replay", "empty.pcap", &pcap(&Capture::default()));
    assert!(empty.starts_with("nothing was judged") && empty.contains("there are no frames"), "{empty}");
    let arp = Frame { number: 1, time: Duration::ZERO, bytes: vec![0; 60] };
    let arp = refusal("replay", "arp.pcap", &pcap(&Capture { frames: vec![arp], ..Capture::default() }));
    assert!(arp.contains("there are 1 frames, and none of them IP"), "{arp}");
}

#[test]
fn bad_captures_are_refused_with_file_offset_and_what_would_be_right() {
    let good = fs::read(recordings().join("ring4_mtu1450.pcap")).unwrap();
    assert!(refusal("replay", "magic.pcap", b"GIF89a").contains("expected a capture: pcap"));
    let mut cooked = good.clone();
    cooked[20] = 113;
    assert!(
        refusal("replay", "cooked.pcap", &cooked)
            .starts_with("byte 20: link type 113, expected 1 (Ethernet)")
    );
    // Within its first frame.
    let cut = refusal("replay", "cut.pcap", &good[..60]);
    assert!(cut.starts_with("byte 60: the end of the file, expected a frame that reaches"), "{cut}");
}

/// What people have at hand and the tool does not read is named, with what to do.
#[test]
fn files_of_other_formats_are_named() {
    let npy = npy(&[1.0; 8]);
    let pcap = fs::read(recordings().join("ring4_loss.pcap")).unwrap();
    for (bytes, name) in [
        (&b"PK\x03\x04\x14\0\0\0"[..], "zip archive"),
        (b"\x1f\x8b\x08\0", "gunzip"),
        (b"\x80\x02}q\0.", "a pickle"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x40\0\0\0\0\0\0\0{\"w\":{}}", "safetensors"),
        (&pcap, "`gradwire replay` reads it"),
    ] {
        let told = refusal("check", "other.bin", bytes);
        assert!(told.starts_with("byte 0: ") && told.contains(name), "{told}");
    }
    assert!(refusal("replay", "other.bin", &npy).contains("`gradwire check` reads it"));
    let encoded = gradwire_with(&["encode"], &npy);
    assert_eq!((code(&encoded), encoded.stdout.len()), (2, 0));
    assert!(stderr(&encoded).contains("an .npy file"), "{}", stderr(&encoded));
}

#[test]
fn a_folder_goes_on_past_a_bad_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("some-bad");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.npy"), b"GIF89a").unwrap();
    fs::write(folder.join("b.npy"), npy(&[0.5; 8])).unwrap();
    let output = gradwire(&["check", folder.to_str().unwrap(), "--json"]);
    assert_eq!(code(&output), 2);
    assert_eq!(json(&output)["recordings"][0]["name"], "b");
    assert!(stderr(&output).contains("a.npy: byte 0") && stderr(&output).contains("1 of 2 files"));
}

#[test]
fn a_capture_that_ends_within_a_frame_is_judged_up_to_there() {
    let good = fs::read(recordings().join("ring4_loss.pcap")).unwrap();
    let path = scratch("torn.pcap", &good[..good.len() - 2]);
    let output = gradwire(&["replay", path.to_str().unwrap(), "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let frames = capture(&recordings().join("ring4_loss.pcap")).frames.len() as u64;
    assert_eq!(json(&output)["frames"], frames - 1);
    assert!(stderr(&output).contains(&format!("ends within a frame, at byte {}", good.len() - 2)));
}

#[test]
fn frames_cut_by_a_snap_length_are_left_out_with_a_warning() {
    let mut good = capture(&recordings().join("ring4_mtu1450.pcap"));
    let tagged = |frame: &Frame| View::of(&frame.bytes).is_some_and(|view| view.tos == 0x28);
    let start = good.frames.iter().position(tagged).unwrap();
    good.frames.drain(..start);
    good.frames.truncate(40);
    let mut bytes = pcap(&good);
    // The last record says that the frame was longer than what follows.
    let last_len = good.frames.last().unwrap().bytes.len();
    let at = bytes.len() - last_len - 4;
    bytes[at..at + 4].copy_from_slice(&9000u32.to_le_bytes());
    let path = scratch("snapped.pcap", &bytes);
    let output = gradwire(&["replay", path.to_str().unwrap(), "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["frames"], 39);
    let warning = report["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("1 frames cut by a snap length were left out"));
    assert!(stderr(&output).contains(warning));
}

#[test]
fn encode_and_decode_undo_each_other_in_pipes() {
    // All classes, special values, and more than one buffer of either command.
    let specials = [0.0, -0.0, 1e-3, 0.3, -0.9, 1.0, -7.5, f32::NAN, f32::INFINITY, 1e-40];
    let values: Vec<f32> = (0..50_003).map(|i| specials[i % 10] * (1.0 + (i % 97) as f32 / 128.0)).collect();
    let sent: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let options = [
        &["--bound", "10"][..],
        &["--bound", "10", "--codec", "1"],
        &["--bound", "6", "--split", "paper", "--scale", "-3"],
        &["--bound", "6", "--scale", "-3"],
    ];
    for params in options {
        let groups = gradwire_with(&[&["encode"], params].concat(), &sent);
        assert_eq!(code(&groups), 0);
        let count = values.len().to_string();
        let restored = gradwire_with(&[&["decode", "--values", &count], params].concat(), &groups.stdout);
        assert_eq!((code(&restored), stderr(&restored)), (0, String::new()));
        let again = gradwire_with(&[&["encode"], params].concat(), &restored.stdout);
        assert_eq!(again.stdout, groups.stdout, "what is decoded encodes to the same bytes");
        let bound = if params[1] == "10" { 2f64.powi(-10) } else { 2f64.powi(-9) };
        assert_eq!(restored.stdout.len(), sent.len());
        for (sent, got) in values.iter().zip(restored.stdout.as_chunks::<4>().0) {
            let got = f32::from_le_bytes(*got);
            let same = sent.to_bits() == got.to_bits();
            assert!(same || (f64::from(*sent) - f64::from(got)).abs() <= bound, "{sent} {got}");
        }
        if !params.contains(&"--codec") && !params.contains(&"--split") {
            let refused = gradwire_with(&[&["decode"], params].concat(), &groups.stdout);
            assert_eq!((code(&refused), refused.stdout.len()), (2, 0));
            assert!(stderr(&refused).contains("give --values N, or --codec 1"), "{}", stderr(&refused));
            continue;
        }
        let all_lanes = gradwire_with(&[&["decode"], params].concat(), &groups.stdout);
        assert_eq!(all_lanes.stdout.len(), sent.len().next_multiple_of(32), "without --values, whole bursts");
        assert_eq!(all_lanes.stdout[..sent.len()], restored.stdout);
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

/// What a bench measured is no matter for a test; that it measured everything is.
fn assert_positive(rows: &Value, columns: &[&str]) {
    for row in rows.as_array().unwrap() {
        for column in columns {
            assert!(row[column].as_f64().unwrap() > 0.0, "{column} of {row}");
        }
    }
}

#[test]
fn bench_prints_the_json_of_its_help() {
    let output = gradwire(&["bench", "--hasty", "--json"]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let report = json(&output);
    assert_eq!(keys(&report), ["frame_path", "kernels", "memcpy_gbps", "peers"]);
    assert!(report["memcpy_gbps"].as_f64().unwrap() > 0.0);
    assert_eq!(report["peers"], Value::Array(vec![]));

    let rows = report["kernels"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let mut found = rows.iter().map(|row| (text(row, "name"), row["codec"].as_u64(), text(row, "shape")));
    for kernel in Kernel::available() {
        for codec in [1, 2] {
            for shape in shapes::ALL {
                assert_eq!(found.next(), Some((kernel.name().into(), Some(codec), shape.name.into())));
            }
        }
    }
    assert_eq!(found.next(), None);
    let speeds = ["decode_gbps", "encode_gbps"];
    assert_eq!(keys(&rows[0]), [&["codec"], &speeds[..], &["name", "shape"]].concat());
    assert_positive(&report["kernels"], &speeds);

    let rows = report["frame_path"].as_array().unwrap();
    let mut found = rows.iter().map(|row| (row["codec"].as_u64(), text(row, "direction"), text(row, "kind")));
    for codec in [1, 2] {
        for direction in ["egress", "ingress"] {
            for kind in ["routed", "in-place", "kernel", "untagged"] {
                assert_eq!(found.next(), Some((Some(codec), direction.into(), kind.into())));
            }
        }
    }
    assert_eq!(found.next(), None);
    assert_eq!(keys(&rows[0]), ["codec", "direction", "gbps", "kind", "ns"]);
    assert_positive(&report["frame_path"], &["gbps", "ns"]);
}

#[test]
fn bench_measures_the_kernel_asked_for_and_says_what_is_left_of_the_targets() {
    let output = gradwire(&["bench", "--hasty", "--kernel", "portable", "--json"]);
    let report = json(&output);
    let rows = report["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * shapes::ALL.len());
    assert!(rows.iter().all(|row| row["name"] == "portable"));
    let output = gradwire(&["bench", "--hasty", "--kernel", "portable"]);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["recorded", "kernel portable", "untagged", "portable decode 75/4/20/1, GB/s"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn bench_measures_the_codec_asked_for() {
    for codec in [1, 2] {
        let output =
            gradwire(&["bench", "--hasty", "--kernel", "portable", "--codec", &codec.to_string(), "--json"]);
        let report = json(&output);
        for (part, rows) in [("kernels", shapes::ALL.len()), ("frame_path", 8)] {
            let part = report[part].as_array().unwrap();
            assert_eq!(part.len(), rows);
            assert!(part.iter().all(|row| row["codec"] == codec), "{part:?}");
        }
    }
    let output = gradwire(&["bench", "--codec", "3"]);
    assert!(code(&output) == 2 && stderr(&output).contains("3 is not in 1..=2"), "{}", stderr(&output));
}

#[test]
fn bench_measures_peers_where_they_are_built_in() {
    let output = gradwire(&["bench", "--hasty", "--kernel", "portable", "--peers", "--json"]);
    if !cfg!(feature = "peers") {
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("build it with --features peers"), "{}", stderr(&output));
        return;
    }
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let report = json(&output);
    let rows = report["peers"].as_array().unwrap();
    assert_eq!(keys(&rows[0]), ["compress_gbps", "decompress_gbps", "max_error", "name", "ratio"]);
    assert_positive(&report["peers"], &["compress_gbps", "decompress_gbps", "ratio"]);
    let bound = 2f64.powi(-10);
    for recording in ["hdc256_i0040_w0", "lm_i0950_w0", "resnet_i0010_w0"] {
        let row =
            |codec: &str| rows.iter().find(|row| row["name"] == format!("{codec}/{recording}")).unwrap();
        for codec in ["zstd -1", "lz4", "snappy", "pco"] {
            assert_eq!(row(codec)["max_error"], 0.0, "{codec} is lossless");
        }
        for codec in ["gradwire", "quantised pco"] {
            assert!(row(codec)["max_error"].as_f64().unwrap() <= bound, "{codec} keeps the bound");
        }
        for codec in ["f16", "bf16"] {
            assert_eq!(row(codec)["ratio"], 2.0);
        }
    }
}

#[test]
fn encode_and_decode_of_nothing_is_nothing() {
    for args in [&["encode"][..], &["decode", "--codec", "1"], &["decode", "--values", "0"]] {
        let output = gradwire_with(args, &[]);
        assert_eq!((code(&output), output.stdout.len()), (0, 0));
    }
}

#[test]
fn encode_and_decode_refuse_what_is_not_whole() {
    let says = |args: &[&str], input: &[u8], expected: &str| {
        let output = gradwire_with(args, input);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).starts_with(&format!("gradwire: standard input: {expected}")),
            "{}",
            stderr(&output)
        );
    };
    says(&["encode"], &[0; 7], "byte 7: the end of the input within a value, after 3 of its 4 bytes");
    says(
        &["decode", "--codec", "1"],
        &[0],
        "byte 0: 1 bytes and the end of the input, expected a group of 2 bytes or more",
    );
    says(
        &["decode", "--codec", "1"],
        &[0, 0, 0xff, 0xff, 1],
        "byte 2: 3 bytes and the end of the input, expected a group of 34",
    );
    says(
        &["decode", "--codec", "1", "--values", "8"],
        &[0; 4],
        "byte 2: bytes after the last value, expected the end",
    );
    says(&["decode", "--codec", "1", "--values", "9"], &[0; 2], "byte 2: 0 bytes and the end of the input");
    says(
        &["decode", "--codec", "1", "--values", "1"],
        &[4, 0, 0],
        "byte 0: tag vector 0x0004, expected tag 0 in every lane from 1",
    );
    says(&["decode", "--values", "8"], &[0; 4], "byte 1: bytes after the last value, expected the end");
    // A section of zeros, then a mode that there is not, and a flat map whose groups are missing.
    says(&["decode", "--values", "600"], &[0, 4], "byte 1: a section that is cut short, or none");
    says(&["decode", "--values", "8"], &[2, 0xff], "byte 0: a section that is cut short, or none");
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
