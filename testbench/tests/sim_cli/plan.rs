//! What `gradwire plan` decides, writes and measures.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{gradwire, json};

#[test]
fn a_measured_profile_can_be_planned_with() {
    let (_, profile) = gradwire(&["plan", "profile", "--bounds", "10,6"]).unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gradwire-{}.toml", std::process::id()));
    std::fs::write(&path, profile).unwrap();
    let profile = path.to_str().unwrap();
    let plan =
        json(&["plan", "resnet101", "--ranks", "7", "--strategy", "ps", "--profile", profile, "--json"]);
    assert_eq!(plan["tensors"].as_array().unwrap().len(), 344);
    assert!(plan["gain_f32"].as_f64().unwrap() >= 1.0);
    let (_, text) = gradwire(&["plan", "vgg16", "--ranks", "4", "--profile", profile, "--in-nic"]).unwrap();
    assert!(text.contains("compression pays") || text.contains("compression does not pay"), "{text}");
    // Another link in place of the measured one, whose figures nobody has to take for a network's.
    let over = |link: &str, latency: &str| {
        let link = ["--profile", profile, "--bandwidth", link, "--latency", latency, "--json"];
        let plan = json(&[&["plan", "vgg16", "--ranks", "4"], &link[..]].concat());
        plan["iteration_f32_s"].as_f64().unwrap()
    };
    // A ring of four sends 1.5 times the model's 6.58 Gb.
    let slow = over("1Gbit/s", "0s");
    assert!((9.0..11.0).contains(&slow), "{slow}");
    assert!(over("100G", "5us") < slow / 5.0 && over("100G", "5ms") > over("100G", "5us"));
    let (_, text) = gradwire(&["plan", "vgg16", "--ranks", "4", "--codec", "q8"]).unwrap();
    assert!(text.contains("this machine's loopback") && text.contains("fastest and slowest sends"), "{text}");
    let plan = json(&["plan", "vgg16", "--ranks", "4", "--codec", "q8", "--json"]);
    let gain = |at: usize| plan["loopback"]["gain_f32"][at].as_f64().unwrap();
    assert!(gain(0) <= gain(1) && plan["loopback"]["pays_always"].is_boolean());
    assert!(json(&["plan", "vgg16", "--ranks", "4", "--profile", profile, "--json"])["loopback"].is_null());
    assert!(gradwire(&["plan", "vgg16", "--ranks", "4", "--latency", "5us"]).is_err(), "of no link");
    std::fs::write(&path, "send = [[1.0, 2.0]]\ncodecs = []\n").unwrap();
    assert!(gradwire(&["plan", "vgg16", "--ranks", "4", "--profile", profile]).is_err());
    std::fs::remove_file(&path).unwrap();
}

/// A profile of a link that takes 5 us and 1 ns a byte, and of codecs that take no time.
fn written_profile(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    let mut text = "send = [[0, 5e-6], [1e9, 1.000005]]\n".to_owned();
    for (name, lost, ratio) in [("q8:256", 0.01, 4.0), ("q4", 0.5, 8.0), ("dgc:1", 0.6, 60.0)] {
        let free = "[[0, 0], [1e9, 0]]";
        text += &format!(
            "[[codecs]]\nname = \"{name}\"\nlost = {lost}\nratio = {ratio}\nencode = {free}\ndecode = {free}\n"
        );
    }
    std::fs::write(&path, text).unwrap();
    path
}

/// Two ranks exchange a megabyte in halves, twice, each of which takes the latency besides.
#[test]
fn a_message_has_a_latency_unless_somebody_says_that_it_has_none() {
    let path = written_profile("latency");
    let model = path.with_extension("csv");
    std::fs::write(&model, "name,values\np,250000\n").unwrap();
    let plain = |more: &[&str]| {
        let args = ["plan", model.to_str().unwrap(), "--ranks", "2", "--json"];
        json(&[&args[..], more].concat())["tensors"][0]["plain_s"].as_f64().unwrap()
    };
    let profile = ["--profile", path.to_str().unwrap()];
    for (more, latency, byte) in [
        (&profile[..], 5e-6, 1e-9),
        (&[&profile[..], &["--bandwidth", "16G"]].concat(), 5e-6, 0.5e-9),
        (&[&profile[..], &["--bandwidth", "16G", "--latency", "80us"]].concat(), 80e-6, 0.5e-9),
        (&["--bandwidth", "16G", "--codec", "q8"], 12e-6, 0.5e-9),
        (&["--bandwidth", "16G", "--codec", "q8", "--latency", "0s"], 0.0, 0.5e-9),
    ] {
        let (got, expected) = (plain(more), 2.0 * (latency + 500_000.0 * byte));
        assert!((got / expected - 1.0).abs() < 1e-9, "{more:?}: {got} s, expected {expected}");
    }
    std::fs::remove_file(&model).unwrap();
    std::fs::remove_file(&path).unwrap();
}

/// As `State.write_profile` makes it: codecs are measured here, and computing is the run's.
#[test]
fn a_profile_of_a_run_has_no_codecs_and_the_times_of_iterations() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{}.toml", std::process::id()));
    let profile = path.to_str().unwrap();
    let run =
        "# A run of 2 ranks, 80 iterations.\nsend = [[0.0, 5e-06], [500000.0, 0.000505]]\n\n[compute]\n";
    std::fs::write(&path, format!("{run}forward = 1.5\nbackward = 2.5\n")).unwrap();
    let plan = |ranks, more: &[&str]| {
        let args = ["plan", "vgg16", "--ranks", ranks, "--profile", profile, "--codec", "q8:256", "--json"];
        json(&[&args[..], more].concat())
    };
    assert_eq!(plan("1", &[])["iteration_f32_s"], 4.0);
    assert_eq!(plan("1", &["--forward", "1s", "--backward", "1s"])["iteration_f32_s"], 2.0);
    let two = plan("2", &[]);
    let tensor = &two["tensors"].as_array().unwrap()[0];
    // 38,208 and less bytes, twice, in halves, at 5 us and 1 ns a byte.
    let expected = 2.0 * (5e-6 + tensor["bytes"].as_f64().unwrap() / 2.0 * 1e-9);
    assert!((tensor["plain_s"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9, "{tensor}");
    assert_eq!(tensor["codec"], "q8:256");
    for (bad, says) in [
        ("forward = -1.0\nbackward = 1.0\n", "expected seconds of an iteration"),
        ("forward = 1.0\n", "State.write_profile"),
        ("forward = 1.0\nbackward = 1.0\nsideways = 1.0\n", "unknown field"),
    ] {
        std::fs::write(&path, format!("{run}{bad}")).unwrap();
        let error =
            gradwire(&["plan", "vgg16", "--ranks", "2", "--profile", profile]).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(profile), "{bad}: {error}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn plans_choose_among_codecs_that_lose_little_or_that_are_named() {
    let path = written_profile("chosen");
    let plan = |more: &[&str]| {
        let args = ["plan", "vgg16", "--ranks", "4", "--profile", path.to_str().unwrap()];
        [&args[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for (more, expected) in [
        (&["--json"][..], "q8:256"),
        (&["--json", "--lost", "0.55"], "q4"),
        (&["--json", "--codec", "dgc:1,q4"], "dgc:1"),
        (&["--json", "--codec", "q8:256"], "q8:256"),
    ] {
        let plan = json(&plan(more).iter().map(String::as_str).collect::<Vec<_>>());
        // The largest tensor.
        let largest =
            plan["tensors"].as_array().unwrap().iter().max_by_key(|tensor| tensor["bytes"].as_u64());
        assert_eq!(largest.unwrap()["codec"], expected, "{more:?}");
    }
    for (more, says) in [
        (
            &["--codec", "onebit"][..],
            "the profile has q8:256, q4, dgc:1; measure it with gradwire plan profile --codec onebit",
        ),
        (&["--codec", "q7"], "there are f32"),
        (&["--codec", "wire:2:10"], "say --in-nic"),
        (&["--codec", "q8:256", "--in-nic"], "wire:C:B"),
        (&["--lost", "2"], "from 0 to 1"),
    ] {
        let error = gradwire(&plan(more).iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err();
        assert!(error.to_string().contains(says), "{more:?}: {error}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_profile_measures_the_codecs_that_are_asked_for() {
    let (_, text) =
        gradwire(&["plan", "profile", "--bounds", "10", "--codec", "q8:256,f16,dgc:0.1"]).unwrap();
    let profile: toml::Table = text.parse().unwrap();
    let codecs: Vec<&toml::Table> =
        profile["codecs"].as_array().unwrap().iter().map(|codec| codec.as_table().unwrap()).collect();
    let number = |at: usize, what: &str| codecs[at][what].as_float().unwrap();
    let names: Vec<&str> = codecs.iter().map(|codec| codec["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["wire:1:10", "wire:2:10", "q8:256", "f16", "dgc:0.1"]);
    // One byte a value and two for each block of 256 and less; 16 bits; 8 bytes for a thousandth.
    assert!((3.8..4.0).contains(&number(2, "ratio")), "{text}");
    assert!((number(3, "ratio") - 2.0).abs() < 1e-3 && number(4, "ratio") > 100.0, "{text}");
    // f16 rounds to 11 bits, at most by 2^-11 of a value that is no subnormal.
    assert!((1e-5..2f64.powi(-11)).contains(&number(3, "lost")), "{text}");
    assert!(number(3, "lost") < number(2, "lost") && number(2, "lost") < number(4, "lost"), "{text}");
    assert!(number(4, "lost") < 1.0, "what arrives is a part of the gradient: {text}");
}

#[test]
fn a_plan_says_whether_an_aggregator_pays_and_why_not() {
    let path = std::env::temp_dir().join(format!("gradwire-aggregator-{}.toml", std::process::id()));
    let mut text = "send = [[0, 0], [1e9, 1]]\n".to_owned();
    // The plan's, on hosts, and the aggregator's.
    for name in ["bounded:10", "wire:2:10"] {
        let bound = if name == "wire:2:10" { "bound = 10\n" } else { "" };
        let curve = "[[0, 0], [1e9, 0.1]]";
        text += &format!(
            "[[codecs]]\nname = \"{name}\"\n{bound}lost = 0\nratio = 6.19\nencode = {curve}\ndecode = {curve}\n"
        );
    }
    std::fs::write(&path, text).unwrap();
    let profile = path.to_str().unwrap().to_owned();
    let plan = |cores: &str| {
        let args = [
            "plan",
            "vgg16",
            "--ranks",
            "16",
            "--profile",
            &profile,
            "--bandwidth",
            "1G",
            "--aggregator-cores",
            cores,
        ];
        let (_, text) = gradwire(&args).unwrap();
        let found = json(&[&args[..], &["--json"]].concat())["in_network"].clone();
        (text, found)
    };
    let (text, slow) = plan("1");
    assert!(text.contains("it does not pay: the aggregator bounds it; with "), "{text}");
    assert_eq!((&slow["pays"], &slow["bottleneck"]), (&Value::Bool(false), &Value::from("aggregator")));
    let cores = slow["cores"].as_u64().unwrap();
    let (text, fast) = plan(&cores.to_string());
    assert!(text.contains("it pays; "), "{text}");
    assert!(fast["pays"].as_bool().unwrap() && fast["gain"].as_f64().unwrap() > 1.1);
    std::fs::remove_file(&path).unwrap();
}
