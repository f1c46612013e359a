//! `gradwire advise` and the pages of `--html`, as their users meet them. `.ci/pages` loads the
//! pages in a browser.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::recordings;

fn gradwire(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradwire")).args(args).current_dir(folder()).output().unwrap()
}

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("advise");
    fs::create_dir_all(&path).unwrap();
    path
}

fn json(args: &[&str]) -> Value {
    let output = gradwire(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn npy(values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes(), &data].concat()
}

const JOB: [&str; 7] = ["advise", "--bandwidth", "25G", "--latency", "5us", "--ranks", "16"];

#[test]
fn the_advice_has_eleven_lines_and_the_json_of_its_help() {
    let args = [&JOB[..], &["--model", "vgg16"]].concat();
    let output = gradwire(&args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(0), 11), "{text}");
    assert!(text.lines().last().unwrap().contains("compression pays"), "{text}");
    assert!(text.contains("an estimate from a model's times"), "{text}");

    let report = json(&args);
    let help = String::from_utf8(gradwire(&["advise", "--help"]).stdout).unwrap();
    for key in report.as_object().unwrap().keys() {
        assert!(help.contains(&format!("\"{key}\"")) || key == "bound_value", "{key}");
    }
    let number = |pointer: &str| report.pointer(pointer).unwrap().as_f64().unwrap();
    let (f32_s, nic_s) = (number("/iteration/f32_s"), number("/iteration/in_nic_s"));
    assert!((number("/gain_f32") - f32_s / nic_s).abs() < 1e-9);
    assert!(number("/iteration/compute_s") < nic_s && nic_s < f32_s);
    // VGG-16 has 205 million values; a ring of 16 sends 15/8 of them at 25 Gbit/s. Headers come on
    // top.
    let exchange = 205_470_505.0 * 32.0 * 2.0 * 15.0 / 16.0 / 25e9;
    assert!(f32_s > exchange && f32_s < 1.1 * exchange + number("/iteration/compute_s"), "{f32_s}");
    assert!(report["pays"] == true && number("/ratio/wire") < number("/ratio/values"));
    assert!(number("/ratio/sums") < number("/ratio/values"), "sums are larger");
}

/// `check` measures at the advised bound what the advice says, and a bound twice as wide loses too
/// much.
#[test]
fn the_bound_is_the_widest_that_spares_the_norm() {
    let file = recordings().join("resnet_i0010_w0.npy");
    let file = file.to_str().unwrap();
    let report = json(&[&JOB[..], &[file]].concat());
    let (bound, scale) = (report["bound"].as_i64().unwrap(), report["scale"].as_i64().unwrap());
    let check = |bound: i64| {
        let (bound, scale) = (bound.to_string(), scale.to_string());
        json(&["check", file, "--bounds", &bound, "--scale", &scale])["recordings"][0].clone()
    };
    let advised = check(bound);
    let close = |a: &Value, b: &Value| (a.as_f64().unwrap() / b.as_f64().unwrap() - 1.0).abs() < 1e-6;
    assert!(close(&advised["ratio"], &report["ratio"]["values"]), "{advised}");
    assert!(close(&advised["norm_lost"], &report["norm_lost"]["all"]), "{advised}");
    assert!(advised["norm_lost"].as_f64().unwrap() <= 0.01);
    assert!(check(bound - 1)["norm_lost"].as_f64().unwrap() > 0.01);
}

#[test]
fn advice_says_when_compression_does_not_pay() {
    let says = |args: &[&str], pays: bool, why: &str| {
        let report = json(&[&["advise"], args].concat());
        let reason = report["why"].as_str().unwrap();
        assert!(report["pays"] == pays && reason.contains(why), "{args:?}: {reason}");
    };
    says(&["--bandwidth", "400G", "--ranks", "8", "--model", "resnet200"], false, "compute takes");
    says(&["--bandwidth", "1G", "--ranks", "8", "--model", "resnet200"], true, "compression pays");
    says(&["--bandwidth", "25G", "--ranks", "8"], true, "the exchange alone");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulator/recorder/cnn.trace.jsonl");
    says(&["--bandwidth", "100G", "--ranks", "4", "--trace", trace], false, "compute takes");

    // A scale does not help tensors that differ too much.
    let (large, small) = (folder().join("large.npy"), folder().join("zero.npy"));
    fs::write(&large, npy(&[0.5, -0.25, 1000.0, 0.5])).unwrap();
    fs::write(&small, npy(&[0.0; 4])).unwrap();
    let zero = gradwire(&["advise", "zero.npy", "--bandwidth", "25G", "--ranks", "4"]);
    assert_eq!(zero.status.code(), Some(2));
    assert!(String::from_utf8(zero.stderr).unwrap().contains("all values are zero"));
}

/// Rounds of 32 on a slow wire, and none on a fast one; without compute, there is nothing to say.
#[test]
fn advice_says_whether_local_steps_would_pay() {
    let local = |args: &[&str]| json(&[&["advise", "--ranks", "4"], args].concat())["local_steps"].clone();
    let slow = local(&["--bandwidth", "50M", "--model", "vgg16"]);
    assert!(slow["why"].as_str().unwrap().starts_with("would pay: "), "{slow}");
    assert_eq!(slow["every"], 32);
    let fast = local(&["--bandwidth", "400G", "--model", "vgg16", "--handle", "1000"]);
    assert!(fast["why"].as_str().unwrap().starts_with("would not pay: "), "{fast}");
    assert!(fast["every"].as_u64().unwrap() < 4 && fast["utilisation"].as_f64().unwrap() >= 0.9, "{fast}");
    assert_eq!(local(&["--bandwidth", "50M"]), Value::Null);
    let refused =
        gradwire(&["advise", "--ranks", "4", "--bandwidth", "1G", "--model", "vgg16", "--handle", "0"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// The page has the JSON of the same run, nothing that a browser would fetch, and its figures'
/// places exist.
#[test]
fn pages_are_one_file_with_their_json() {
    let ring = recordings().join("ring4_loss.pcap");
    let gradient = recordings().join("cnn_i0300_w0.npy");
    let (ring, gradient) = (ring.to_str().unwrap(), gradient.to_str().unwrap());
    for (args, pictures) in [
        (&["advise", gradient, "--bandwidth", "10G", "--ranks", "4"][..], 5),
        (&["check", gradient, "--bounds", "10,6"], 3),
        (&["replay", ring], 1),
        (&["simulate", "--sweep", "ranks=4..8"], 1),
    ] {
        let name = format!("{}.html", args[0]);
        let report = json(&[args, &["--html", &name]].concat());
        let html = fs::read_to_string(folder().join(&name)).unwrap();
        assert_eq!(html.matches("<svg").count(), pictures, "{name}");
        let (_, rest) = html.split_once(r#"id="report">"#).unwrap();
        let in_page: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(in_page, report, "{name}");
        let mut figures = 0;
        for part in html.split(r#"data-at=""#).skip(1) {
            let (pointer, rest) = part.split_once('"').unwrap();
            let shown = rest[1..].split('<').next().unwrap();
            let figure = report.pointer(pointer).unwrap_or_else(|| panic!("{name}: {pointer}"));
            assert!(figure.is_number() && !shown.is_empty(), "{name}: {pointer}");
            figures += 1;
        }
        assert!(figures >= 9, "{name}: {figures}");
        for asks in ["src=", "url(", "@import", "<script src"] {
            assert!(!html.contains(asks), "{name}: {asks}");
        }
    }
}

/// Nobody waits for a computation whose result cannot be written.
#[test]
fn outputs_are_checked_before_anything_is_computed() {
    for (args, says) in [
        (&["simulate", "--plot", "no/such/x.svg"][..], "there is no folder no/such"),
        (&["simulate", "--html", "no/such/x.html"], "there is no folder no/such"),
        (&["simulate", "--html", "x.pdf"], "a page is .html"),
        (&["check", "--html", "no/such/x.html"], "there is no folder"),
        (&["replay", "x", "--write-wire", "no/such/x.pcap"], "there is no folder"),
        (&["encode", "-o", "/"], "is a folder"),
    ] {
        let output = gradwire(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && stderr.contains(says), "{args:?}: {stderr}");
    }
}

/// Without options, gradwire is compared.
#[test]
fn simulate_compares_gradwire_and_names_what_is_fixed() {
    let report = json(&["simulate", "--mechanism", "ring"]);
    let codecs: Vec<&str> =
        report["runs"].as_array().unwrap().iter().map(|run| run["compression"].as_str().unwrap()).collect();
    assert_eq!(codecs, ["f32", "16bit", "in-nic:b10"]);
    let args =
        ["simulate", "--mechanism", "ring", "--latency", "5us", "--mtu", "1500", "--sweep", "ranks=4,8"];
    assert_eq!(gradwire(&[&args[..], &["--plot", "x.svg"]].concat()).status.code(), Some(0));
    let svg = fs::read_to_string(folder().join("x.svg")).unwrap();
    assert!(svg.contains("vgg16, 25 Gbit/s, latency 5 us, MTU 1500<"), "{}", &svg[..600]);
}
