//! What the random frames reach of the engines' RTL: every line and branch, and both values of every bit, by Verilator's count.
//! What no frame can reach is listed here with its reason.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{Engine, judge, recorded};

/// What no frame can reach, as module and signal.
fn unreachable() -> Vec<String> {
    let mut names = [
        // The compressor refuses nothing.
        "gw_compressor unused_user",
        // It gathers what is of no use.
        "gw_decompress_lane unused",
        // A group has a first lane.
        "gw_decompressor absent[0]",
        "gw_decompressor absent[1]",
        // A FIFO that is full: credits keep it from that.
        "gw_credits under_way[5]",
        "gw_walk cells[5]",
        "gw_walk cells_more[5]",
        "gw_walk ends[5]",
        "gw_walk ends_more[5]",
        // A beat has at most 31 bytes beyond its first one.
        "gw_front left[5]",
        "gw_front from_before2[31]",
        // A chunk that completes two beats stays until both have left.
        "gw_packer else, line 236",
        // At most 2048 cells begin in a header, and one is counted at once.
        "gw_front headers2[11]",
    ]
    .map(str::to_owned)
    .to_vec();
    // A group that begins below byte 30 ends below byte 64, so that no cell is skipped.
    for at in 0..30 {
        names.push(format!("gw_ahead ends3[{}]", 7 * at + 6));
        for entries in [
            "gw_ahead out_entries",
            "gw_decompressor ahead_entries",
            "gw_walk push_entries",
            "gw_walk head_entries",
            "gw_walk entries",
        ] {
            names.push(format!("{entries}[{}]", 8 * at + 5));
        }
    }
    names.sort();
    names
}

/// Adds the RTL's points of a file of counts: lines, branches and bits. A line of the file is `C '`, for each key
/// `\x01KEY\x02VALUE`, and `' COUNT`.
fn add(counts: &str, points: &mut BTreeMap<String, u64>) {
    for line in counts.lines() {
        let Some((keys, count)) = line.strip_prefix("C '").and_then(|line| line.rsplit_once("' ")) else {
            continue;
        };
        let keys: BTreeMap<&str, &str> =
            keys.split('\x01').filter_map(|key| key.split_once('\x02')).collect();
        let file = Path::new(keys["f"]);
        // The wrapper has ports that the engine has not.
        if !file.parent().is_some_and(|folder| folder.ends_with("rtl")) {
            continue;
        }
        let module = file.file_stem().unwrap().to_str().unwrap();
        let mut name = format!("{module} {}", keys["o"]);
        if !keys["page"].starts_with("v_toggle") {
            name += &format!(", line {}", keys["l"]);
        }
        *points.entry(name).or_default() += count.parse::<u64>().unwrap();
    }
}

/// A module that both engines have is reached if either reaches it.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn random_frames_reach_all_that_can_be_reached() {
    let mut points = BTreeMap::new();
    for engine in Engine::BOTH {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("coverage-{engine:?}.dat"));
        let mut simulation = engine.design().coverage(&file).start().unwrap();
        judge(&mut simulation, engine, 4, 20_000, &recorded()).unwrap();
        drop(simulation);
        add(&std::fs::read_to_string(&file).unwrap(), &mut points);
    }
    let missed: Vec<&String> =
        points.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
    println!("{} of {} lines, branches and bits reached", points.len() - missed.len(), points.len());
    assert!(points.len() > 10_000, "Verilator counted {}", points.len());
    let listed = unreachable();
    let new: Vec<_> = missed.iter().filter(|name| !listed.contains(name)).collect();
    assert!(new.is_empty(), "not reached: {new:?}");
    let reached: Vec<_> = listed.iter().filter(|name| !missed.contains(name)).collect();
    assert!(reached.is_empty(), "listed, but reached: {reached:?}");
}
