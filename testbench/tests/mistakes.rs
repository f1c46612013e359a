//! Mistakes of people, and the command's answers: a table. Each answer names the input and says
//! what helps.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::recordings;

/// A folder for the inputs of one test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn gradwire(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradwire")).args(args).current_dir(folder).output().unwrap()
}

fn npy(values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), &data].concat()
}

/// Arguments, the exit code, and what standard output and standard error have between them.
type Mistake = (&'static str, i32, &'static [&'static str]);

const MISTAKES: &[Mistake] = &[
    // Other formats than a command reads.
    ("check a.npz", 2, &["a.npz: byte 0: a zip archive, as .npz and PyTorch's .pt are", "numpy.save"]),
    ("check a.pt", 2, &["a.pt: byte 0: a zip archive, as .npz and PyTorch's .pt are", "numpy.save"]),
    ("check a.npy.gz", 2, &["a.npy.gz: byte 0: gzip: unpack it with gunzip"]),
    ("check old.pt", 2, &["old.pt: byte 0: a pickle"]),
    ("check ring.pcap", 2, &["a pcap capture: `gradwire replay` reads it"]),
    ("check code.gw", 2, &["a file of `gradwire encode`: `gradwire decode` reads it"]),
    ("replay good.npy", 2, &["an .npy file: `gradwire check` reads it"]),
    ("replay ring.pcap.gz", 2, &["gzip: unpack it with gunzip"]),
    ("encode good.npy", 2, &["good.npy: byte 0: an .npy file", "numpy.load(f).tofile(g)"]),
    ("encode good.npy -o never.gw", 2, &["good.npy: byte 0: an .npy file"]),
    ("encode code.gw", 2, &["code.gw: byte 0: a file of `gradwire encode`"]),
    // Files that are damaged, and folders with some.
    ("check mixed", 2, &["bad.npy: byte 0: a zip archive", "good", "1 of 2 files are no gradients"]),
    ("check none", 2, &["none: byte 0: a folder without .npy files"]),
    ("check cut.npy", 2, &["cut.npy: byte 158: the end of the file, 30 bytes", "32 bytes (8 values)"]),
    ("replay torn.pcap", 0, &["ends within a frame", "what is before it was verified", "every bound"]),
    ("decode cut.gw", 2, &["cut.gw: byte 20: a section that is cut short"]),
    ("decode bare.f32", 2, &["give --values N, or --codec 1"]),
    ("decode stub.gw", 2, &["stub.gw: byte 12: the end of the file, expected a header of 20 bytes"]),
    // Bounds, rates, times, names.
    (
        "check good.npy --bounds ten",
        2,
        &["invalid value 'ten'", "10, a power of two as 2^-10, or a number above"],
    ),
    ("check good.npy --bounds 0", 1, &["2^0", "A bound of 2^-2 would do", "NOT useful"]),
    ("check good.npy --bounds 2^-10,0.001,10", 0, &["2^-10"]),
    ("check good.npy --codec 1 --bounds 0.5e-9", 2, &["codec 1 has bounds from 1 to 14"]),
    ("replay ring.pcap --bound 0", 1, &["of the norm is lost", "NOT useful"]),
    ("replay ring.pcap --tos 0x08", 2, &["nothing was verified", "0x28 in"]),
    ("plan vgg16 --ranks 4 --bandwidth 25", 2, &["25 is 25 bit/s", "25G"]),
    ("simulate --bandwidth 100", 2, &["100 is 100 bit/s", "100G"]),
    ("plan vgg16 --ranks 4 --bandwidth fast", 2, &["invalid value 'fast'", "a number with K, M, G or T"]),
    ("plan vgg16 --ranks 4 --bandwidth 25G --latency 5", 2, &["5 is not a time such as 5us or 0.2s"]),
    ("plan vgg61 --ranks 4 --bandwidth 25G", 2, &["vgg61", "vgg16", "gpt2"]),
    ("simulate --model vgg61", 2, &["vgg61", "vgg16", "gpt2"]),
    ("simulate --mechanism rings", 2, &["rings", "butterfly", "mc+agg"]),
    ("nonsense", 2, &["unrecognized subcommand"]),
];

#[test]
fn each_mistake_has_an_answer_that_helps() {
    let here = folder("mistakes");
    let good = npy(&[0.5, -0.25, 0.75, 0.5, 0.5, 0.5, 0.5, 0.5]);
    let ring = fs::read(recordings().join("ring4_loss.pcap")).unwrap();
    let zip = b"PK\x03\x04\x14\0\0\0\x08\0";
    for (name, bytes) in [
        ("good.npy", &good[..]),
        ("cut.npy", &good[..good.len() - 2]),
        ("a.npz", zip),
        ("a.pt", zip),
        ("a.npy.gz", b"\x1f\x8b\x08\0"),
        ("ring.pcap.gz", b"\x1f\x8b\x08\0"),
        ("old.pt", b"\x80\x02}q\0."),
        ("ring.pcap", &ring),
        ("torn.pcap", &ring[..ring.len() - 2]),
        ("values.f32", &good[128..]),
        ("bare.f32", &good[128..]),
        ("stub.gw", b"\xff\xffGW\0\0\r\n\x02\0\xf6\x01"),
    ] {
        fs::write(here.join(name), bytes).unwrap();
    }
    fs::create_dir_all(here.join("mixed")).unwrap();
    fs::create_dir_all(here.join("none")).unwrap();
    fs::write(here.join("mixed/bad.npy"), zip).unwrap();
    fs::write(here.join("mixed/good.npy"), &good).unwrap();
    assert_eq!(gradwire(&here, &["encode", "values.f32", "-o", "code.gw"]).status.code(), Some(0));
    let code = fs::read(here.join("code.gw")).unwrap();
    fs::write(here.join("cut.gw"), &code[..code.len() - 1]).unwrap();

    for (line, code, wanted) in MISTAKES {
        let output = gradwire(&here, &line.split(' ').collect::<Vec<_>>());
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert_eq!(output.status.code(), Some(*code), "gradwire {line}\n{printed}");
        for part in *wanted {
            assert!(printed.contains(part), "gradwire {line}: no {part:?} in\n{printed}");
        }
    }
    assert!(!here.join("never.gw").exists() && !here.join("never.gw.part").exists());
}

/// A file says what it was made with; a pipe has the same code, bare.
#[test]
fn a_file_of_code_needs_no_parameters() {
    let here = folder("coded");
    let values: Vec<f32> = (0..40_001).map(|i| ((i * 37 % 1000) as f32 / 500.0 - 1.0).powi(3)).collect();
    let sent: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(here.join("values.f32"), &sent).unwrap();
    for (parameters, bound) in [
        (&[][..], 2f64.powi(-10)),
        (&["--bound", "2^-7", "--scale", "-3"], 2f64.powi(-10)),
        (&["--codec", "1", "--bound", "6"], 2f64.powi(-6)),
        (&["--split", "paper", "--scale", "2"], 2f64.powi(-8)),
    ] {
        let run = |args: &[&str]| {
            let output = gradwire(&here, args);
            assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{args:?}");
            output.stdout
        };
        let bare = run(&[&["encode", "values.f32"], parameters].concat());
        assert!(run(&[&["encode", "values.f32", "-o", "code.gw"], parameters].concat()).is_empty());
        let file = fs::read(here.join("code.gw")).unwrap();
        assert_eq!((&file[..4], &file[20..]), (&b"\xff\xffGW"[..], &bare[..]));
        assert!(run(&["decode", "code.gw", "-o", "restored.f32"]).is_empty());
        let restored = fs::read(here.join("restored.f32")).unwrap();
        let with_options = [&["decode", "--values", "40001"], parameters].concat();
        fs::write(here.join("bare"), &bare).unwrap();
        assert_eq!(restored, run(&[&with_options[..], &["bare"]].concat()));
        assert_eq!(restored.len(), sent.len());
        for (sent, got) in values.iter().zip(restored.as_chunks::<4>().0) {
            assert!((f64::from(*sent) - f64::from(f32::from_le_bytes(*got))).abs() <= bound);
        }
        // The output may take the input's place.
        fs::write(here.join("same"), &sent).unwrap();
        run(&[&["encode", "same", "-o", "same"], parameters].concat());
        assert_eq!(fs::read(here.join("same")).unwrap(), file);
    }
}

/// Segments as they are before a card cuts them: the ratio of these is not that of a wire.
#[test]
fn a_capture_before_segmentation_offload_is_marked() {
    use etherparse::{PacketBuilder, TcpOptionElement};
    use gradwire_testbench::input::Writer;

    let here = folder("offload");
    let frame = |ports: (u16, u16), syn, seq, ack, payload: &[u8]| {
        let mac = |port: u16| [2, 0, 0, 0, 0, port as u8];
        let mut ip = etherparse::Ipv4Header::new(
            0,
            64,
            etherparse::IpNumber::TCP,
            [10, 0, 0, ports.0 as u8],
            [10, 0, 0, ports.1 as u8],
        )
        .unwrap();
        ip.dscp = (0x28u8 >> 2).try_into().unwrap();
        let tcp = PacketBuilder::ethernet2(mac(ports.0), mac(ports.1))
            .ip(etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()))
            .tcp(ports.0, ports.1, seq, 60_000);
        let tcp =
            if syn { tcp.syn().options(&[TcpOptionElement::MaximumSegmentSize(1460)]).unwrap() } else { tcp };
        let tcp = if ack > 0 { tcp.ack(ack) } else { tcp };
        let mut bytes = Vec::new();
        tcp.write(&mut bytes, payload).unwrap();
        bytes
    };
    let values: Vec<u8> = (0..8000u32).flat_map(|i| ((i % 97) as f32 * 1e-3).to_le_bytes()).collect();
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    for bytes in [
        frame((1, 2), true, 100, 0, &[]),
        frame((2, 1), true, 900, 101, &[]),
        frame((1, 2), false, 101, 901, &values),
    ] {
        writer.frame(std::time::Duration::from_secs(1), &bytes).unwrap();
    }
    writer.finish().unwrap();
    fs::write(here.join("tso.pcap"), &file).unwrap();
    let output = gradwire(&here, &["replay", "tso.pcap"]);
    let (text, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{text}{stderr}");
    assert!(text.contains("1 compressed") && text.contains("which is too high"), "{text}");
    assert!(
        stderr.contains("1 segments are longer than frames on the wire") && stderr.contains("tso off"),
        "{stderr}"
    );
    let json = gradwire(&here, &["replay", "tso.pcap", "--json"]).stdout;
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap()["oversized"], 1);
}

/// Wide tables wrap in a terminal, and no column stands below its head.
#[test]
fn tables_fit_100_columns_and_say_what_their_names_mean() {
    let here = recordings();
    for (args, says) in [
        (&[][..], "option-added           a SYN that left"),
        (&["check"], "classes    shares by what"),
        (&["check", "--codec", "1"], "half 16 bits"),
        (&["replay", "ring4_loss.pcap"], "resent                 TCP sends these bytes again"),
        // A link that is faster than any machine's codec.
        (
            &["plan", "inceptionv3", "--ranks", "16", "--bandwidth", "10000G"],
            "codec-costs-more  the codec takes longer",
        ),
        (&["simulate", "--model", "resnet200", "--mechanism", "hier-agg,mc+agg"], "iteration s"),
        (&["simulate", "published"], "reproduces"),
    ] {
        let output = gradwire(&here, args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(says), "{args:?}: no {says:?} in\n{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{args:?}: {line}");
        }
    }
    let long = gradwire(&here, &["check", "--long"]).stdout;
    let long = String::from_utf8(long).unwrap();
    assert!(long.contains("rms error") && long.contains("encode") && long.contains("....."), "{long}");
    let plan = ["plan", "inceptionv3", "--ranks", "16", "--bandwidth", "25G"];
    let names = |args: &[&str]| String::from_utf8(gradwire(&here, args).stdout).unwrap();
    let name = "mixed_35x35x256a/branch3x3dbl/Conv_1/BatchNorm/beta";
    assert!(!names(&plan).contains(name) && names(&[&plan[..], &["--long"]].concat()).contains(name));
}
