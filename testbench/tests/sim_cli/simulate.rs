//! What `gradwire simulate` says and refuses.

use std::path::Path;
use std::process::Command;

use clap::Parser;
use gradwire_testbench::cmd::{Cli, run};
use gradwire_testbench::error::{Error, Outcome};
use serde_json::Value;

use super::{file, gradwire, json};

#[test]
fn every_run_is_compared_with_f32_and_16_bits() {
    let report = json(&[
        "simulate",
        "--model",
        "vgg16,resnet101",
        "--mechanism",
        "ring,mc+agg,graph:hierarchy:4",
        "--compress",
        "in-nic:b10",
        "--compress",
        "on-host:4/3@5,5",
        "--sweep",
        "ranks=8..32",
        "--mtu",
        "1500",
        "--json",
    ]);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 3 * 4 * 3);
    for runs in runs.chunks(4) {
        assert_eq!(runs[0]["compression"], "f32");
        assert_eq!(runs[1]["compression"], "16bit");
        for run in runs {
            let time = run["iteration_s"].as_f64().unwrap();
            for (gain, baseline) in [("gain_f32", &runs[0]), ("gain_16bit", &runs[1])] {
                let expected = baseline["iteration_s"].as_f64().unwrap() / time;
                assert!((run[gain].as_f64().unwrap() - expected).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn every_option_is_taken() {
    let report = json(&[
        "simulate",
        "--mechanism",
        "ps,ring",
        "--ranks",
        "8",
        "--servers",
        "2",
        "--assign",
        "round-robin",
        "--no-barrier",
        "--message",
        "2.5M",
        "--latency",
        "5us",
        "--link",
        "3=1G",
        "--racks",
        "4:2",
        "--jitter",
        "0.1",
        "--seed",
        "7",
        "--late",
        "1=10ms",
        "--compute",
        "2",
        "--layers",
        "2",
        "--layer",
        "1M,1G",
        "--calibrated",
        "--sweep",
        "bandwidth=10G,25G",
        "--json",
    ]);
    assert_eq!(report["runs"].as_array().unwrap().len(), 2 * 2 * 3);
    json(&["simulate", "--mechanism", "ring", "--pipeline", "2", "--full", "--ranks", "4", "--json"]);
    json(&["simulate", "--mechanism", "ring", "--sweep", "pipeline=2..8", "--ranks", "4", "--json"]);
    json(&["simulate", "--mechanism", "mc+agg", "--cut-through", "--json"]);
    json(&["simulate", "--mechanism", "ring", "--compress", "on-host:b8@measured", "--json"]);
    json(&[
        "simulate",
        "--model",
        &file("../simulator/models/vgg16.csv"),
        "--forward",
        "1s",
        "--backward",
        "2s",
        "--json",
    ]);
}

#[test]
fn local_steps_report_what_they_may_cost() {
    let args = ["simulate", "local-steps", "--model", "vgg16", "--ranks", "4,8", "--bandwidth", "200M,10G"];
    let report = json(&[&args[..], &["--every", "4,16", "--plan", "f32,bounded:4@3", "--json"]].concat());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2 * 2);
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    for pair in rows.chunks(2) {
        let [short, long] = pair else { unreachable!() };
        assert_eq!((number(short, "every"), number(long, "every")), (4.0, 16.0));
        assert!(number(long, "iteration_s") < number(short, "iteration_s"), "{pair:?}");
        for row in pair {
            // VGG-16's 0.193 s.
            assert!((number(row, "utilisation") * number(row, "iteration_s") - 0.193).abs() < 1e-6, "{row}");
            let most = number(row, "synchronous_s") / number(row, "iteration_s");
            assert!((number(row, "most_iterations") - most).abs() < 1e-9, "{row}");
        }
    }
    // A ring of 4 sends half as much again as the values, at 200 Mbit/s for 49 s.
    assert_eq!(rows[0]["plan"], "f32");
    let sent = number(&rows[0], "sent_bytes");
    assert!((1.0..1.1).contains(&(sent / (205_470_505.0 * 4.0 * 1.5))), "{sent}");
    let (_, text) = gradwire(&args).unwrap();
    assert!(text.contains("utilisation") && text.contains("bounded:4"), "{text}");
    for refused in [
        &["--plan", "nothing"][..],
        &["--plan", "bounded:4@"],
        &["--plan", "bounded:4@33"],
        &["--plan", "low-rank:4"],
        &["--every", "0"],
        &["--every", "8", "--delay", "9"],
        &["--fragments", "0"],
        &["--handle", "0"],
        &["--model", "gpt2"],
    ] {
        assert!(gradwire(&[&args[..2], refused].concat()).is_err(), "{refused:?}");
    }
}

#[test]
fn impossible_scenarios_are_refused() {
    for args in [
        &["--model", "alexnet"][..],
        &["--mechanism", "star"],
        &["--mechanism", "butterfly", "--ranks", "12"],
        &["--mechanism", "hier-agg:5", "--ranks", "12"],
        &["--ranks", "0"],
        &["--bandwidth", "0"],
        &["--link", "99=1G"],
        &["--racks", "0:2"],
        &["--racks", "4:-1"],
        &["--jitter", "-1"],
        &["--jitter", "NaN"],
        &["--compute", "0"],
        &["--compress", "zip"],
        &["--compress", "on-host:4@measured"],
        &["--compress", "in-nic:1e-300"],
        &["--compress", "on-host:4@1e-300,1"],
        &["--bandwidth", "1"],
        &["--racks", "4:1e300"],
        &["--compute", "1e-300"],
        &["--layers", "1", "--layer", "1000T,1"],
        &["--layers", "4000000000"],
        &["--sweep", "ranks"],
        &["--sweep", "moon=1..2"],
        &["--sweep", "ranks=9..8"],
        &["--pipeline", "1"],
        &["--pipeline", "1001"],
        &["--pipeline", "2", "--mechanism", "ps-async"],
        &["--sweep", "pipeline=1..4"],
        &["--trace", "/nonexistent"],
        &["--plot", "plot.gif", "--mechanism", "ring"],
    ] {
        let args = [&["simulate"], args].concat();
        assert!(gradwire(&args).is_err(), "{args:?}");
    }
}

/// Refused with code 2 before anything is allocated, with the option to blame and what to do about
/// it.
#[test]
fn runs_that_are_too_large_are_refused_by_option() {
    for (args, option, remedy) in [
        ("--message 1", "--message 1: ", "larger messages"),
        ("--mechanism ps --sweep message=2,1M", "--message 2: ", "larger messages"),
        ("--servers 4000000000", "--servers 4000000000: ", "fewer servers"),
        ("--servers 4000000000 --assign round-robin", "--servers 4000000000: ", "fewer servers"),
        ("--mechanism ring --ranks 100000 --full", "--full: ", "one worker stand for all"),
        ("--mechanism ring --ranks 1000000000 --bandwidth 900000T", "--ranks 1000000000: ", "fewer workers"),
        (
            "--mechanism mc --ranks 4000 --layers 100000 --layer 10T,1 --bandwidth 900000T",
            "--ranks 4000: ",
            "fewer workers",
        ),
        (
            "--mechanism ps --ranks 1 --layers 100000 --layer 10T,1 --bandwidth 900000T",
            "--layers 100000: ",
            "fewer",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradwire"));
        let output = command.arg("simulate").args(args.split_whitespace()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(output.stdout.is_empty());
        let rest = message.strip_prefix("gradwire: ").and_then(|message| message.strip_prefix(option));
        assert!(rest.is_some_and(|rest| rest.contains(remedy)), "{args:?}: {message}");
    }
}

#[test]
fn damaged_models_are_refused() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("damaged-{}.csv", std::process::id()));
    for text in [
        "",
        "name,forward_flops\np,1\n",
        "name,values,forward_flops\n",
        "name,values,forward_flops\np,x,1\n",
        "name,values,forward_flops\np,18446744073709551615,1\n",
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(gradwire(&["simulate", "--model", path.to_str().unwrap()]).is_err(), "{text:?}");
        assert!(
            gradwire(&["plan", path.to_str().unwrap(), "--ranks", "4", "--bound", "10"]).is_err(),
            "{text:?}"
        );
    }
    std::fs::remove_file(&path).unwrap();
}

/// A model whose file knows no FLOPs takes the compute time that the options give it.
#[test]
fn compute_times_of_a_model_without_flops_count() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("no-flops-{}.csv", std::process::id()));
    std::fs::write(&path, "name,values\np,1000\nq,1000\n").unwrap();
    let model = path.to_str().unwrap();
    let times = ["--forward", "1s", "--backward", "2s", "--json"];
    let run = [&["simulate", "--model", model, "--mechanism", "ring", "--ranks", "1"], &times[..]].concat();
    assert_eq!(json(&run)["runs"][0]["iteration_s"], 3.0);
    let nothing = json(&["simulate", "--model", model, "--mechanism", "ring", "--ranks", "1", "--json"]);
    assert_eq!(
        (&nothing["runs"][0]["iteration_s"], &nothing["runs"][0]["gain_f32"]),
        (&0.0.into(), &1.0.into())
    );
    let plan = [&["plan", model, "--ranks", "1"], &times[..]].concat();
    assert_eq!(json(&plan)["iteration_f32_s"], 3.0);
    std::fs::remove_file(&path).unwrap();
}

/// A trace has compute times of its own.
#[test]
fn options_that_a_trace_would_ignore_are_refused() {
    let trace = file("../simulator/recorder/cnn.trace.jsonl");
    for option in [&["--forward", "1s"][..], &["--backward", "1s"], &["--calibrated"], &["--model", "vgg16"]]
    {
        let args = [&["simulate", "--trace", &trace, "--mechanism", "ring"], option].concat();
        assert!(gradwire(&args).is_err(), "{args:?}");
    }
}

#[test]
fn the_recorded_trace_simulates() {
    let trace = file("../simulator/recorder/cnn.trace.jsonl");
    let report = json(&["simulate", "--trace", &trace, "--mechanism", "ps", "--bandwidth", "1G", "--json"]);
    let run = &report["runs"][0];
    // The network's architecture: three convolutions, their normalisation and two dense layers.
    let values = [(3, 32), (32, 64), (64, 128)].map(|(from, to)| 9 * from * to + 3 * to).iter().sum::<u64>()
        + (2048 + 1) * 512
        + (512 + 1) * 10;
    assert_eq!(run["sent_bytes"], 4 * values);
    assert_eq!(run["model"], "cnn.trace");
}

/// Li et al., Eq. 2 to 7, by hand: 4 ranks, 10^6 values in 16 bits, 6 messages of 1 ms.
#[test]
fn pipe_sgds_equations_are_those_of_the_paper() {
    let folder = std::env::temp_dir().join(format!("gradwire-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("net.csv");
    std::fs::write(&path, "name,values\nw,1000000\n").unwrap();
    let text = "simulate pipe-sgd --ranks 4 --bandwidth 100M,10G --bits 16 --latency 1ms --sum 4 --sync 2ms --segments 5 \
                --update 10ms --forward 20ms --backward 30ms --json";
    let args =
        [&text.split_whitespace().collect::<Vec<_>>()[..], &["--model", path.to_str().unwrap()]].concat();
    let rows = json(&args)["rows"].clone();
    for (row, wire_s) in rows.as_array().unwrap().iter().zip([0.24, 0.0024]) {
        let near = |key: &str, expected: f64| {
            let found = row[key].as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 1e-9, "{key}: {found}, not {expected}");
        };
        // 1.5 times 2 MB go out, and 0.75 times 4 MB of values are summed.
        let exchange = 0.006 + wire_s + 0.00075 + 0.002;
        near("exchange_s", exchange);
        near("compute_s", 0.06);
        near("synchronous_s", 0.06 + exchange);
        near("pipelined_s", f64::max(0.06, exchange));
        near("segments_s", f64::max(0.06, 0.006 + 5.0 * 0.008 + wire_s + 0.00075));
        near("gain", (0.06 + exchange) / f64::max(0.06, exchange));
        near("efficiency", 0.06 / f64::max(0.06, exchange));
    }
    for refused in
        [["--bits", "0"], ["--sum", "-1"], ["--bandwidth", "0"], ["--ranks", "1"], ["--segments", "0"]]
    {
        assert!(gradwire(&[&["simulate", "pipe-sgd"], &refused[..]].concat()).is_err(), "{refused:?}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What the model says of the MLP, beside what four ranks on two cores took (docs/papers.md). A
/// pipeline takes longer: coding, sums and TCP use the cores that the next iteration computes on.
#[test]
fn pipe_sgds_model_is_near_what_was_measured() {
    let results = std::fs::read_to_string(file("../host/bench/results/mlp-sgd.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let folder = std::env::temp_dir().join(format!("gradwire-pipe-mlp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("mlp.csv");
    std::fs::write(&path, "name,values\nall,1033910\n").unwrap();
    let mut seen = 0;
    for wire in ["200", "1000"] {
        let took = |exchange: &str| {
            let mut ms = [0, 1, 2]
                .map(|round| results[format!("time mlp-sgd {exchange} {wire} {round}")].as_f64().unwrap());
            ms.sort_by(f64::total_cmp);
            ms[1] / 1e3
        };
        let (forward, rate) = (format!("{}s", took("none")), format!("{wire}M"));
        let args = ["simulate", "pipe-sgd", "--model", path.to_str().unwrap(), "--forward", &forward];
        let args = [&args[..], &["--bandwidth", &rate, "--bits", "32,16", "--json"]].concat();
        let report = json(&args);
        for (row, codec) in report["rows"].as_array().unwrap().iter().zip(["f32", "trunc:16"]) {
            for (key, exchange, most) in [("synchronous_s", "/one", 1.25), ("pipelined_s", "+2", 1.6)] {
                let ratio = took(&format!("{codec}{exchange}")) / row[key].as_f64().unwrap();
                assert!((1.0..most).contains(&ratio), "{wire} Mbit/s, {codec}, {key}: {ratio}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 8);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// On a network that takes no time, an iteration takes what the slowest rank computes.
#[test]
fn ranks_of_a_trace_have_their_own_times() {
    let fast = file("../simulator/recorder/cnn.trace.jsonl");
    let mut lines: Vec<Value> = std::fs::read_to_string(&fast)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let jsonl = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let folder = std::env::temp_dir().join(format!("gradwire-traces-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let written = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut slow = lines.clone();
    for line in &mut slow {
        line["time"] = (3.0 * line["time"].as_f64().unwrap()).into();
        for end in ["source", "destination"] {
            if line[end] == "worker0" {
                line[end] = "worker1".into();
            }
        }
    }
    lines.extend_from_slice(&slow);
    lines.sort_by(|a, b| a["time"].as_f64().unwrap().total_cmp(&b["time"].as_f64().unwrap()));
    let (both, slow) = (written("both.jsonl", jsonl(&lines)), written("slow.jsonl", jsonl(&slow)));
    for mechanism in ["ring", "ps"] {
        let seconds = |traces: &[&str], ranks: &str| {
            let mut args =
                vec!["simulate", "--mechanism", mechanism, "--bandwidth", "100T", "--json", "--ranks", ranks];
            args.extend(traces.iter().flat_map(|trace| ["--trace", trace]));
            json(&args)["runs"][0]["iteration_s"].as_f64().unwrap()
        };
        let together = seconds(&[&both], "2");
        assert_eq!(together, seconds(&[&fast, &slow], "2"), "{mechanism}");
        assert_eq!(seconds(&[&fast], "2"), seconds(&[&fast, &fast], "2"), "{mechanism}");
        let three = 3.0 * seconds(&[&fast], "1");
        assert!(
            together > 0.9 * three && together <= seconds(&[&slow], "2"),
            "{mechanism}: {together} of {three}"
        );
        assert!(seconds(&[&both], "4") > together, "{mechanism}");
    }
    let error = gradwire(&["simulate", "--mechanism", "ring", "--ranks", "1", "--trace", &both])
        .unwrap_err()
        .to_string();
    assert!(error.contains("the number of workers, fewer than have compute times"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn published_prints_every_cell_and_the_claims_that_do_not_reproduce() {
    let report = json(&["simulate", "published", "--json"]);
    assert_eq!(report["cells"].as_array().unwrap().len(), 101);
    let claims = report["claims"].as_array().unwrap();
    let not: Vec<&str> = claims
        .iter()
        .filter(|claim| claim["reproduces"] == false)
        .map(|claim| claim["claim"].as_str().unwrap())
        .collect();
    assert_eq!(
        not,
        [
            "the ring beats multicast and aggregation at every bandwidth",
            "Fig. 8: on VGG-16 the ring is 2x multicast and aggregation at 4 workers, 1.3x at 32",
            "a parameter server does not gain from message pipelining",
            "Fig. 10: with 25 compute-heavy modules, the gain of aggregation fades",
            "... and multicast equals the rest",
        ]
    );
    assert_eq!(claims.len(), not.len() + 6);
    // Table 7's own largest shares are our second largest, twice; all others come out.
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 2 * 4 + 2 * 6);
    let off =
        |row: &&Value| (row["ours"].as_f64().unwrap() / row["published"].as_f64().unwrap() - 1.0).abs() > 0.2;
    let off: Vec<_> =
        tables.iter().filter(off).map(|row| (row["model"].as_str(), row["what"].as_str())).collect();
    assert_eq!(
        off,
        [(Some("inceptionv3"), Some("most of 4 servers")), (Some("resnet200"), Some("most of 8 servers"))]
    );
    let (_, text) = gradwire(&["simulate", "published"]).unwrap();
    assert!(text.contains("do NOT reproduce") && text.contains("85 of 85 checked cells reproduce"));
}

/// Every command on the page is one that `gradwire` takes, and every file it names exists.
#[test]
fn the_pages_commands_and_files_are_real() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/simulator.md")).unwrap();
    let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("gradwire ")).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        assert!(Cli::try_parse_from(command.split(' ')).is_ok(), "{command}");
    }
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let files = quoted(&page.replace("```", "")).into_iter().filter(|name| name.starts_with("simulator/"));
    let mechanisms =
        page.lines().filter(|line| line.starts_with("| `")).flat_map(|row| row.rsplit('|').nth(1));
    let of_table = mechanisms.flat_map(quoted).map(|name| format!("simulator/src/mechanisms/{name}"));
    let files: Vec<String> = files.chain(of_table).collect();
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        assert!(root.join(&file).exists(), "{file}");
    }
}

/// The plots of the documentation are what the code draws.
#[test]
fn the_committed_plots_are_current() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gradwire-plots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (_, written) = gradwire(&["simulate", "figures", folder.to_str().unwrap()]).unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = std::fs::read_to_string(docs.join("simulator.md")).unwrap();
    for path in written.lines().map(Path::new) {
        let name = path.file_name().unwrap();
        let (new, committed) =
            (std::fs::read(path).unwrap(), std::fs::read(docs.join("plots").join(name)).unwrap());
        assert!(new == committed, "{name:?} is stale: gradwire simulate figures docs/plots");
        assert!(page.contains(&format!("plots/{}", name.to_str().unwrap())), "{name:?} is not on the page");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_plot_is_written_as_svg() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gradwire-{}.svg", std::process::id()));
    for sweep in [&["--sweep", "ranks=8,16"][..], &[]] {
        let plot = ["simulate", "--mechanism", "ring", "--plot", path.to_str().unwrap()];
        let (outcome, _) = gradwire(&[&plot, sweep].concat()).unwrap();
        assert_eq!(outcome, Outcome::Held);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("<svg"));
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_plot_of_another_kind_is_refused_before_anything_runs() {
    for command in ["simulate --mechanism ring --plot plot.gif", "simulate --mechanism ring --plot plot"] {
        let mut out = Vec::new();
        let result = Cli::try_parse_from(["gradwire"].into_iter().chain(command.split(' ')))
            .map_err(|error| Error::Usage(error.to_string()))
            .and_then(|cli| run(&cli, &mut out));
        let message = result.unwrap_err().to_string();
        assert!(message.contains("--plot") && message.contains(".svg"), "{message}");
        assert!(out.is_empty(), "{command} ran: {}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn a_stack_has_each_step_of_each_codec() {
    fn stack<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["simulate", "stack", "--ranks", "4", "--bandwidth", "1G", "--model"], more].concat()
    }
    let codecs = ["--codec", "terngrad:2@3,10", "--codec", "dgc:1@1,10"];
    let report = json(&stack(&[&["resnet101"], &codecs[..], &["--strategy", "ring", "--json"]].concat()));
    let rows = report["rows"].as_array().unwrap();
    let found: Vec<_> =
        rows.iter().map(|row| (row["codec"].as_str().unwrap(), row["step"].as_str().unwrap())).collect();
    let (first, second) = found.split_at(5);
    assert_eq!(
        first.iter().map(|row| row.1).collect::<Vec<_>>(),
        ["none", "codec", "pipelining", "bulk", "selection"]
    );
    assert!(first.iter().all(|row| row.0 == "terngrad:2") && second.iter().all(|row| row.0 == "dgc:1"));
    assert_eq!(
        second.iter().map(|row| row.1).collect::<Vec<_>>(),
        first[1..].iter().map(|row| row.1).collect::<Vec<_>>()
    );
    assert!(rows.iter().all(|row| row["plan"].as_str().unwrap().contains("strategy = \"ring\"")));
    let batch = json(&stack(&[&["resnet101"], &codecs[..], &["--batch", "--json"]].concat()));
    let plan =
        |report: &serde_json::Value, at: usize| report["rows"][at]["plan"].as_str().unwrap().to_owned();
    assert!(plan(&batch, 3).contains("small_codec = \"terngrad:2\""), "{}", plan(&batch, 3));
    assert!(!plan(&batch, 2).contains("small_codec") && !plan(&report, 3).contains("small_codec"));
    let (_, text) = gradwire(&stack(&["vgg19", "--forward", "60ms", "--backward", "0.1s"])).unwrap();
    assert_eq!(text.lines().count(), 1 + 1 + 3 * 4);
    // Figures 7, 8 and 12 of HiPress: the more ranks and the slower the wire, the less efficient.
    let sweep = "simulate stack --model vgg16 --ranks 4,16 --bandwidth 1G,10G --codec q8@5,5 --json";
    let report = json(&sweep.split(' ').collect::<Vec<_>>());
    let exact: Vec<_> =
        report["rows"].as_array().unwrap().iter().filter(|row| row["step"] == "none").collect();
    let clusters: Vec<_> =
        exact.iter().map(|row| (row["ranks"].as_u64(), row["bandwidth"].as_u64())).collect();
    let cluster = |ranks, gigabits: u64| (Some(ranks), Some(gigabits * 1_000_000_000));
    assert_eq!(clusters, [cluster(4, 1), cluster(4, 10), cluster(16, 1), cluster(16, 10)]);
    let efficiency: Vec<f64> = exact.iter().map(|row| row["efficiency"].as_f64().unwrap()).collect();
    assert!(efficiency[0] < efficiency[1] && efficiency[2] < efficiency[3], "{efficiency:?}");
    assert!(efficiency[2] < efficiency[0] && efficiency[3] < efficiency[1], "{efficiency:?}");
    for (more, says) in [
        (&["vgg19"][..], "--forward"),
        (&["vgg16", "--codec", "terngrad:2"], "CODEC@ENCODE,DECODE"),
        (&["vgg16", "--codec", "zip@1,1"], "there are f32"),
        (&["vgg16", "--codec", "wire:2:10@1,1"], "host codec"),
        (&["vgg16", "--codec", "q8@0,1"], "above 0"),
        (&["vgg16", "--codec", "q8@1e-300,1"], "the time of an iteration"),
        (&["vgg16", "--strategy", "halving-doubling"], "ring or servers"),
        (&["vgg16", "--threshold", "1"], "--threshold"),
    ] {
        let error = gradwire(&stack(more)).unwrap_err().to_string();
        assert!(error.contains(says), "{more:?}: {error}");
    }
}

/// VGG-16 on 16 workers: 2.2 G values that one core of 500 M takes 4.4 s for. With enough cores the
/// aggregator beats a ring.
#[test]
fn an_aggregator_is_as_fast_as_its_cores() {
    let report = json(&[
        "simulate",
        "--mechanism",
        "ring,ina",
        "--ranks",
        "16",
        "--bandwidth",
        "10G",
        "--mtu",
        "1500",
        "--aggregator-rate",
        "500M",
        "--sweep",
        "aggregator-cores=1,64",
        "--json",
    ]);
    let runs = report["runs"].as_array().unwrap();
    let coded = |mechanism: &str, cores: f64| {
        let wanted = |run: &&Value| {
            run["mechanism"] == mechanism && run["sweep"] == cores && run["compression"] == "in-nic:b10"
        };
        runs.iter().find(wanted).unwrap()["iteration_s"].as_f64().unwrap()
    };
    let values = 138_357_544.0;
    assert!(coded("ina", 1.0) > 16.0 * values / 500e6);
    assert!(coded("ina", 64.0) < coded("ring", 64.0) && coded("ring", 1.0) < coded("ina", 1.0));
}
