//! The parts of the RTL that frames reach, by Verilator's count: every line and branch, and both
//! values of every bit of the engines. Of the path around them every line and branch, and
//! reached.csv says how many bits. What no frame can reach is listed here with its reason.

mod paths;
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use gradwire_gateware::{Batch, Pauses, Simulation};
use paths::nic::{batch, both_ways_through, counts, nic};
use paths::rare;
use paths::settings::{configure, rules};
use paths::traffic::{PAUSES, from_wire, of_host, oversize};
use support::{Engine, Random, recorded, verify};

const README: &str = include_str!("../README.md");
const REACHED: &str = include_str!("reached.csv");

/// Lines and branches of the path that no frame can reach.
const UNREACHABLE_LINES: [&str; 0] = [];

/// The parts of the engines that no frame can reach, as module and signal.
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

/// The number of times that each line, branch and bit of the RTL was reached, by module and name.
/// Those of several instances are one.
#[derive(Default)]
struct Points(BTreeMap<(String, String), u64>);

impl Points {
    /// Adds a file of counts. A line of it is `C '`, for each key `\x01KEY\x02VALUE`, and
    /// `' COUNT`.
    fn add(&mut self, file: &Path) {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let Some((keys, count)) = line.strip_prefix("C '").and_then(|line| line.rsplit_once("' ")) else {
                continue;
            };
            let keys: BTreeMap<&str, &str> =
                keys.split('\x01').filter_map(|key| key.split_once('\x02')).collect();
            let file = Path::new(keys["f"]);
            // A wrapper has ports that the design has not.
            if !file.parent().is_some_and(|folder| folder.ends_with("rtl")) {
                continue;
            }
            let module = file.file_stem().unwrap().to_str().unwrap();
            let mut name = keys["o"].to_owned();
            if !keys["page"].starts_with("v_toggle") {
                name += &format!(", line {}", keys["l"]);
            }
            *self.0.entry((module.to_owned(), name)).or_default() += count.parse::<u64>().unwrap();
        }
    }

    /// Fails if other points were missed than those listed; both have to be in order.
    fn assert_missed(&self, is: impl Fn(&str) -> bool, listed: &[String]) {
        let missed = self.0.iter().filter(|((_, name), count)| is(name) && **count == 0);
        let missed: Vec<String> = missed.map(|((module, name), _)| format!("{module} {name}")).collect();
        let new: Vec<_> = missed.iter().filter(|name| !listed.contains(name)).collect();
        assert!(new.is_empty(), "not reached: {new:?}");
        let reached: Vec<_> = listed.iter().filter(|name| !missed.contains(name)).collect();
        assert!(reached.is_empty(), "listed, but reached: {reached:?}");
    }

    /// `N of M` points of a kind that were reached, in a module or in all.
    fn reached(&self, module: Option<&str>, is: impl Fn(&str) -> bool) -> String {
        let counts =
            self.0.iter().filter(|((of, name), _)| module.is_none_or(|module| module == of) && is(name));
        let counts: Vec<u64> = counts.map(|(_, count)| *count).collect();
        let reached = counts.iter().filter(|count| **count > 0).count();
        format!("{} of {}", grouped(reached), grouped(counts.len()))
    }
}

/// Whether a point is a line or a branch; else it is a bit.
fn is_line(name: &str) -> bool {
    name.contains(", line ")
}

/// With a comma at the thousands.
fn grouped(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}

/// A module that both engines have is reached if either reaches it.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn random_frames_reach_all_that_can_be_reached() {
    let mut points = Points::default();
    for engine in Engine::BOTH {
        let file = counts(&format!("{engine:?}"));
        let mut simulation = engine.design().coverage(&file).start().unwrap();
        verify(&mut simulation, engine, 4, 20_000, &recorded()).unwrap();
        drop(simulation);
        points.add(&file);
    }
    points.assert_missed(|_| true, &unreachable());
    let reached = points.reached(None, |_| true);
    println!("{reached} lines, branches and bits reached");
    assert!(README.contains(&format!(": {reached} |")), "README.md says another number than {reached}");
}

/// A module that both directions have is reached if either reaches it. The engines inside are the
/// test's above.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn frames_through_a_nic_reach_every_line_of_its_path() {
    let mut simulation = nic("nic").start().unwrap();
    use_all_of(&mut simulation);
    drop(simulation);
    let mut points = Points::default();
    points.add(&counts("nic"));
    points.assert_missed(is_line, &UNREACHABLE_LINES.map(str::to_owned));
    let mut modules: Vec<&String> = points.0.keys().map(|(module, _)| module).collect();
    modules.dedup();
    let mut rows = String::new();
    for module in modules {
        let [lines, bits] = [true, false]
            .map(|lines| points.reached(Some(module), |name| is_line(name) == lines).replace(',', ""));
        rows += &format!("{module},{lines},{bits}\n");
    }
    assert!(REACHED.ends_with(&format!(",bits\n{rows}")), "reached.csv has other rows than\n{rows}");
}

/// Registers, frames both ways with all kinds of pauses, frames that are too long, and a reset.
fn use_all_of(simulation: &mut Simulation) {
    for word in [u32::MAX, 0] {
        for address in (0x004..0x180).step_by(4) {
            simulation.write(address, word).unwrap();
        }
        for address in (0..0x1000).step_by(4) {
            simulation.read(address).unwrap();
        }
    }
    for (seed, pauses) in (1..=9).zip(PAUSES.iter().cycle()) {
        let (count, longest, mtu) =
            [(300, 1460, 1500), (300, 1460, 1000), (60, 9000, 9000)][seed as usize / 3 % 3];
        configure(simulation, &rules(), mtu);
        let mut random = Random::new(seed);
        let (from_host, from_wire) =
            (of_host(&mut random, count, longest), from_wire(&mut random, count, longest, mtu));
        if seed == 5 {
            let cut = Batch { reset_at: Some(3000), ..batch(&from_host, &from_wire, *pauses, seed) };
            assert_eq!(simulation.run(&cut).unwrap().broken, "");
            configure(simulation, &rules(), mtu);
        }
        both_ways_through(simulation, &from_host, &from_wire, *pauses, seed);
    }
    both_ways_through(simulation, &rare::of_host(), &rare::from_wire(), Pauses::NONE, 1);
    both_ways_through(simulation, &oversize(), &oversize(), Pauses::NONE, 1);
    for address in (0x200..0x600).step_by(4) {
        simulation.read(address).unwrap();
    }
}
