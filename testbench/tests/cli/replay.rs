//! `gradwire replay` and its captures.

use super::*;

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
        // Only if SYNs advertised something.
        let mut keys = keys(&report);
        keys.retain(|key| !(*key == "options_added" && handshake == "required"));
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

/// A message names what a capture does not show, with a remedy.
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
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        // Nothing was verified, and who runs this in a script must not take that for a success.
        let expected = if remedy.is_empty() { 0 } else { 2 };
        assert_eq!(code(&output), expected, "{name}: {stderr}");
        assert!(stderr.contains(remedy) && stderr.is_empty() == remedy.is_empty(), "{name}: {stderr}");
        let reason =
            "nothing was verified: no value was compressed; tagged frames with payload went untouched: ";
        assert_eq!(stderr.contains(reason), !remedy.is_empty(), "{name}: {stderr}");
        let held = String::from_utf8_lossy(&output.stdout).contains("every bound and check held");
        assert_eq!(held, remedy.is_empty(), "{name}");
        let output = gradwire(&["replay", path, "--framing", framing, "--codec", "1", "--json"]);
        assert_eq!(code(&output), expected, "{name}");
        let report = json(&output);
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
    assert!(
        stderr(&output).contains("4 of 112 values are nonzero subnormals or above 2^64"),
        "{}",
        stderr(&output)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().last().unwrap().starts_with("NOT values alone, connections"), "{text}");
    assert!(text.contains("1 not-values"), "{text}");

    let output = gradwire(&["replay", path, "--handshake", "off", "--heuristic", "off", "--json"]);
    let report = json(&output);
    assert_eq!(
        (code(&output), &report["compressed"], &report["ok"]),
        (1, &Value::from(1), &Value::from(true))
    );
    assert_eq!(report["mixed"].as_array().unwrap().len(), 1);
}

#[test]
fn a_failed_check_is_code_1() {
    // A rule that says that each payload starts with a value is wrong for these segments. A card
    // that gets the connection in its middle cannot know, and the stream shows it.
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
    let misaligned = ["replay", path.to_str().unwrap(), "--handshake", "off", "--alignment", "payload"];
    // Values that are read from a wrong byte on look like none.
    assert_eq!(code(&gradwire(&misaligned)), 0);
    let trusting = [&misaligned[..], &["--heuristic", "off"]].concat();
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
fn a_capture_of_which_nothing_was_verified_is_code_2() {
    let path = recordings().join("ring4_mtu1450.pcap");
    let path = path.to_str().unwrap();
    for json in [&[][..], &["--json"]] {
        let output = gradwire(&[&["replay", path, "--tos", "0x50"], json].concat());
        assert_eq!((code(&output), output.stdout.len()), (2, 0));
        let message = stderr(&output);
        let expected = "nothing was verified: no frame with payload has a type of service that the rule matches \
                        (0x50 under 0xfc)";
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("0x00 in ") && message.contains("0x28 in "), "{message}");
    }
    let empty = refusal("replay", "empty.pcap", &pcap(&Capture::default()));
    assert!(empty.starts_with("nothing was verified") && empty.contains("there are no frames"), "{empty}");
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

#[test]
fn a_capture_that_ends_within_a_frame_is_verified_up_to_there() {
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
