//! A session at a soft core's console, with its two peers.

use std::time::Duration;

use gradwire::rules::Rule;
use gradwire_testbench::softcore::Pair;
use gradwire_testbench::softcore::interactive::Session;
use softcore::logs::START;

use super::{firmware, recording};

#[test]
fn a_session_sends_frames_and_asks_both_cores() {
    let mut pair = Pair::start(&firmware(), &Rule::DEFAULT).unwrap();
    let capture = recording("ring4_mtu1450");
    let (mut out, mut logs) = (Vec::new(), Vec::new());
    let lines = b"help\n:send 700\ncounters\n:far counters\n:send x\n:nonsense\nnonsense\n:quit\n";
    Session::new(&mut pair, &capture, Some(&mut logs)).run(&mut &lines[..], &mut out).unwrap();
    // Without a cable nothing arrives, however long one waits.
    pair.patience = Duration::from_millis(10);
    let mut cut = Vec::new();
    let lines = b":link network down\n:send\n:quit\n";
    Session::new(&mut pair, &capture, None).run(&mut &lines[..], &mut cut).unwrap();
    let out = String::from_utf8(out).unwrap();
    let answers: Vec<&str> = out.split("gradwire> ").collect();
    assert_eq!(answers.len(), 9, "{out}");
    assert!(answers[1].contains("counters"), "{out}");
    assert!(answers[2].starts_with("700 frames sent, 700 arrived;"), "{out}");
    let count = |answer: &str, name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no '{name}' in {out}")).trim().parse::<u32>().unwrap()
    };
    // Both ends have senders, so each core compresses what the other one restores.
    assert_eq!(count(answers[3], "egress compressed"), count(answers[4], "ingress restored"));
    assert!(answers[5].contains("expected a number of frames"), "{out}");
    assert!(answers[6].contains("`:help` lists them"), "{out}");
    assert!(!answers[7].is_empty(), "{out}");
    let cut = String::from_utf8(cut).unwrap();
    let answers: Vec<&str> = cut.split("gradwire> ").collect();
    assert!(answers[1].is_empty() && answers[2].contains("is a cable out?"), "{cut}");
    assert!(logs.windows(2).any(|bytes| bytes == START), "no log");
}
