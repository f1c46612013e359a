//! `gradwire allreduce` as a user calls it.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn gradwire(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradwire"))
        .arg("allreduce")
        .args(args.split_whitespace())
        .output()
        .unwrap()
}

fn json(args: &str) -> Value {
    let output = gradwire(&format!("{args} --values 3000 --rounds 2 --json"));
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn threads_and_processes_exchange_and_check() {
    for args in
        ["--local 4", "--local 3 --processes --strategy servers --codec q8:256", "--local 1 --codec f16"]
    {
        let report = json(args);
        assert_eq!(report["ok"], true, "{args}: {report}");
        assert_eq!((&report["values"], &report["rounds"]), (&3000.into(), &2.into()));
    }
    let ring = json("--local 4");
    assert_eq!(ring["checks"]["sum"], true);
    // 2 (N-1)/N of the gradient, and six headers.
    assert_eq!(ring["sent_bytes"], 2 * 3 * 3000 + 6 * 96);
}

#[test]
fn every_pair_of_strategy_and_codec_works_or_says_why_not() {
    let strategies = [
        "ring",
        "servers",
        "servers:1",
        "hierarchy:2",
        "hierarchy:2:servers",
        "butterfly",
        "halving-doubling",
        "all-gather",
    ];
    let codecs = ["f32", "q8:64", "wire:2:10"];
    for strategy in strategies {
        for codec in codecs {
            let output =
                gradwire(&format!("--local 3 --strategy {strategy} --codec {codec} --values 500 --rounds 1"));
            let sense = match codec {
                "f32" => true,
                "q8:64" => strategy != "butterfly",
                _ => strategy == "ring",
            };
            assert_eq!(output.status.code(), Some(if sense { 0 } else { 2 }), "{strategy} {codec}");
        }
    }
}

/// Tensors of a file, and what a plan says of them: one alone, one in parts, and small ones
/// together.
#[test]
fn a_models_tensors_go_as_the_plan_says() {
    let scratch = std::env::temp_dir().join(format!("gradwire-model-{}", std::process::id()));
    let (model, plan) = (scratch.with_extension("csv"), scratch.with_extension("toml"));
    std::fs::write(&model, "name,values\nwords,40000\nnorm,100\nhead,5000\nbias,50\n").unwrap();
    let text = "strategy = \"servers\"\ncodec = \"terngrad:2\"\nsmall = 1000\n[[tensor]]\nname = \"head\"\ncodec = \"dgc:1\"\npartitions = 1\n";
    std::fs::write(&plan, text).unwrap();
    for how in ["", "--processes"] {
        let args = format!(
            "--local 3 {how} --rounds 2 --json --model {} --plan {}",
            model.display(),
            plan.display()
        );
        let output = gradwire(&args);
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["values"], &report["tensors"]), (&45_150.into(), &4.into()));
        assert_eq!((&report["ok"], &report["checks"]["given"]), (&true.into(), &true.into()), "{report}");
        // Rank 0 sends of `words` parts to two owners, and its own sum to two ranks; of `head` one
        // message to its owner, rank 2. The small ones are its own: it sends their sum to two.
        assert_eq!(report["sent_messages"], 4 + 1 + 2);
    }
    let output = gradwire(&format!("--local 2 --model {} --rounds 1", model.display()));
    assert!(String::from_utf8_lossy(&output.stdout).contains("45150 values in 4 tensors"), "{output:?}");
    std::fs::write(&model, "name,values\na,1\na,1\n").unwrap();
    for (args, says) in [
        (format!("--model {}", model.display()), "two tensors have the name 'a'"),
        ("--model alexnet".into(), "no model is called alexnet"),
        ("--model vgg16 --values 3".into(), "cannot be used with"),
    ] {
        let output = gradwire(&format!("--local 2 {args}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {error}");
        assert!(error.contains(says), "{args}: {error}");
    }
    std::fs::remove_file(&model).unwrap();
    std::fs::remove_file(&plan).unwrap();
}

#[test]
fn any_order_of_big_messages_works() {
    for order in ["turns", "free", "coordinated"] {
        // Larger than what need not wait.
        let output =
            gradwire(&format!("--local 3 --processes --order {order} --values 300k --rounds 2 --checks 1"));
        assert!(output.status.success(), "{order}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Two ranks in processes of their own, with what `more` gives each.
fn two_ranks(more: impl Fn(usize) -> Vec<String>) -> [Output; 2] {
    // Many containers have no IPv6.
    let at = |at| std::net::TcpListener::bind(at);
    let bind = || at("[::1]:0").or_else(|_| at("127.0.0.1:0")).unwrap();
    // Free ports are anybody's until ranks listen there: if one was taken, others are tried.
    loop {
        // Both at once, so that they differ.
        let ranks = [bind(), bind()].map(|listener| listener.local_addr().unwrap());
        let list = format!("{},{}", ranks[0], ranks[1]);
        let started = [0, 1].map(|rank| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_gradwire"));
            command.args(["allreduce", "--ranks", &list, "--listen", &ranks[rank].to_string()]);
            command.args(["--rounds", "1", "--json"]).args(more(rank)).env("GRADWIRE_TOKEN", "07".repeat(32));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let ended = started.map(|child| child.wait_with_output().unwrap());
        let stderr = ended.each_ref().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        if !stderr.concat().contains("Address already in use") {
            return ended;
        }
    }
}

#[test]
fn ranks_find_each_other_by_addresses() {
    let ended = two_ranks(|_| vec!["--values".into(), "1000".into()]);
    assert!(ended.iter().all(|output| output.status.success()), "{ended:?}");
    assert!(!ended[0].stdout.is_empty() && ended[1].stdout.is_empty(), "rank 0 reports");
}

/// Files that differ in what this gradient does not need.
#[test]
fn ranks_with_different_plan_files_are_told() {
    let scratch = std::env::temp_dir().join(format!("gradwire-different-{}", std::process::id()));
    let files = [0, 1].map(|rank| scratch.with_extension(format!("{rank}.toml")));
    let text = |codec: &str| {
        format!(
            "# of one rank\nstrategy = \"servers\"\ncodec = \"q8\"\n[[tensor]]\nvalues = \"500000..\"\ncodec = \"{codec}\"\n"
        )
    };
    for (codecs, alike) in [(["q4", "dgc:1"], false), (["q4", "q4"], true)] {
        for (file, codec) in files.iter().zip(codecs) {
            // What a comment says is no difference.
            std::fs::write(file, text(codec).replace("one rank", codec)).unwrap();
        }
        let plan = |rank: usize| {
            vec!["--plan".into(), files[rank].display().to_string(), "--values".into(), "2000".into()]
        };
        for output in two_ranks(plan) {
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), alike, "{error}");
            assert!(
                alike || error.contains("different plans: give all of them the same --plan file"),
                "{error}"
            );
        }
    }
    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

/// The planner's file, for four colocated servers, 10 us and 1 ns a byte to send, and a codec of
/// ratio 32 that takes 2.001 us and 0.25 ns a byte to encode, and 1 us and 1 ns a compressed byte
/// to decode. By Eq. 1 and 2, K parts of m us of bytes take 6 (10 + m/K) us as f32, and with the
/// codec 60 + 6 m/32K + 2.001 K + 0.25 m + 4 + 4 m/32K us.
///
/// f32 is best with 4 parts: 60 + 1.5 m. One part with the codec, 66.001 + 0.5625 m, is less if
/// m > 6.001/0.9375, which is 1600.3 values. K + 1 parts are better than K if 0.3125 m > 2.001 K
/// (K + 1): from 3201.6, 9604.8 and 19,209.6 values on.
#[test]
fn the_planners_file_is_what_ranks_run() {
    let scratch = std::env::temp_dir().join(format!("gradwire-planned-{}", std::process::id()));
    let [model, profile, planned, by_hand] =
        ["csv", "profile.toml", "planned.toml", "hand.toml"].map(|end| scratch.with_extension(end));
    std::fs::write(&model, "name,values\na,100\nb,1600\nc,3201\nd,9604\ne,19209\nf,50000\ng,300\n").unwrap();
    std::fs::write(
        &profile,
        "send = [[0, 10e-6], [1e6, 1010e-6]]\n[[codecs]]\nname = \"onebit\"\nlost = 0.9\nratio = 32\n\
         encode = [[0, 2.001e-6], [1e6, 252.001e-6]]\ndecode = [[0, 1e-6], [1e6, 1001e-6]]\n",
    )
    .unwrap();
    let plan = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gradwire"))
            .args([
                "plan",
                &model.display().to_string(),
                "--ranks",
                "4",
                "--codec",
                "onebit",
                "--threshold",
                "0",
            ])
            .args(["--profile", &profile.display().to_string(), "--out", &planned.display().to_string()])
            .args(more)
            .output()
            .unwrap()
    };
    let output = plan(&["--strategy", "ps-colocated"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&planned).unwrap();
    let file: toml::Table = text.parse().unwrap();
    let field = |table: &toml::Table| {
        let partitions = table["partitions"].as_integer().unwrap();
        (
            table["strategy"].as_str().unwrap().to_owned(),
            table["codec"].as_str().unwrap().to_owned(),
            partitions,
        )
    };
    let rows: Vec<(String, _)> = file["tensor"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["values"].as_str().unwrap().to_owned(), field(row.as_table().unwrap())))
        .collect();
    let expected = |codec: &str, partitions| ("servers".to_owned(), codec.to_owned(), partitions);
    assert_eq!(
        rows,
        [
            ("1024..1601".into(), expected("f32", 4)),
            ("1601..3202".into(), expected("onebit", 1)),
            ("3202..9605".into(), expected("onebit", 2)),
            ("9605..19210".into(), expected("onebit", 3)),
        ],
        "{text}"
    );
    assert_eq!((field(&file), file["small"].as_integer()), (expected("onebit", 4), Some(1024)));
    // The same by names.
    let rows =
        [("b", "f32", 4), ("c", "onebit", 1), ("d", "onebit", 2), ("e", "onebit", 3), ("f", "onebit", 4)];
    let rows = rows.map(|(name, codec, partitions)| {
        format!("[[tensor]]\nname = \"{name}\"\ncodec = \"{codec}\"\npartitions = {partitions}\n")
    });
    std::fs::write(&by_hand, format!("strategy = \"servers\"\ncodec = \"f32\"\n{}", rows.concat())).unwrap();
    let [planned_run, hand_run] = [&planned, &by_hand].map(|plan| {
        let args =
            format!("--local 4 --rounds 2 --json --model {} --plan {}", model.display(), plan.display());
        let output = gradwire(&args);
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    for field in ["sent_messages", "sent_bytes", "ok"] {
        assert_eq!(planned_run[field], hand_run[field], "{field}");
    }
    assert_eq!((&planned_run["ok"], &planned_run["codec"]), (&true.into(), &"onebit".into()));
    for (more, says) in [
        (&["--strategy", "ps"][..], "expected the strategy ring, or ps-colocated"),
        (&["--strategy", "ring", "--in-nic"], "wire:C:B"),
    ] {
        let output = plan(more);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{more:?}: {error}");
    }
    [model, profile, planned, by_hand].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

#[test]
fn bad_arguments_say_what_would_be_right() {
    for (args, says) in [
        ("", "--local N"),
        ("--local 2 --strategy rong", "hierarchy:GROUP"),
        ("--local 2 --order random", "turns, free, or coordinated[:BYTES:MICROSECONDS]"),
        ("--local 2 --codec q7", "there are f32"),
        ("--local 2 --codec wire:2", "wire:C:B"),
        ("--local 2 --strategy servers:3", "expected 1 to 2"),
        ("--local 2 --strategy ring --groups 2", "--strategy hierarchy"),
        ("--local 2 --partitions 0", "expected 1 to"),
        ("--listen 127.0.0.1:1 --ranks 127.0.0.1:2,127.0.0.1:3", "not among --ranks"),
        ("--root 127.0.0.1:1 --rank 2 --world-size 2", "ranks from 0"),
        ("--root 127.0.0.1:1 --rank 1 --world-size 2 --token-file /dev/null", "64 hexadecimal digits"),
        ("--local 2 --plan /dev/null", "/dev/null: plan: 'codec' is missing"),
        ("--local 2 --plan /no/such/file", "plan file /no/such/file: No such file"),
    ] {
        let output = gradwire(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {error}");
        assert!(error.contains(says), "{args}: {error}");
    }
}

#[test]
fn pictures_in_the_documents_are_what_the_command_draws() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/plots");
    let scratch = std::env::temp_dir().join(format!("gradwire-draw-{}", std::process::id()));
    for (file, strategy) in [
        ("graph-ring", "ring"),
        ("graph-servers", "servers"),
        ("graph-hierarchy", "hierarchy:2"),
        ("graph-butterfly", "butterfly"),
        ("graph-halving-doubling", "halving-doubling"),
        ("graph-all-gather", "all-gather"),
    ] {
        let drawn = scratch.with_extension(file);
        let output = gradwire(&format!("--local 4 --strategy {strategy} --draw {}", drawn.display()));
        assert!(output.status.success());
        let (drawn_text, kept) =
            (std::fs::read(&drawn).unwrap(), std::fs::read(folder.join(file).with_extension("svg")).unwrap());
        std::fs::remove_file(&drawn).unwrap();
        assert!(
            drawn_text == kept,
            "{file}: draw it again with gradwire allreduce --local 4 --strategy {strategy} --draw"
        );
    }
}
