//! The documents are true: their figures, what they name, their links.

#[path = "../support/mod.rs"]
mod support;

mod checks;
mod simulated;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use gradwire::codec::{Params, Split};
use gradwire::flow::capabilities::Slot;
use gradwire::flow::{FlowTable, WAYS};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, DEFAULT_TOS, Framing, Rule};
use gradwire_testbench::bench::distributions::RECORDED;
use gradwire_testbench::check::Measured;
use gradwire_testbench::cmd::args::codec::Codec;
use gradwire_testbench::cmd::check::{DEFAULT_BOUNDS, Scale, measure_all};
use gradwire_testbench::input::recordings::{GRADIENTS, builtin};
use support::document::{Table, anchor, code_spans, files_with, prose, root, table, text};
use support::{capture, recordings, replayed};

const README: &str = "README.md";
const PERFORMANCE: &str = "docs/performance.md";
const KERNELS: &str = "docs/kernels.md";
const FIRMWARE: &str = "docs/firmware.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const INVENTORY: &str = "docs/inventory.md";
const HOST_CODECS: &str = "docs/host-codecs.md";

/// The documents whose figures and paths the tests below hold.
const DOCUMENTS: [&str; 7] =
    [README, ARCHITECTURE, INVENTORY, "CONTRIBUTING.md", PERFORMANCE, KERNELS, FIRMWARE];

/// A cell as it would be printed.
fn assert_cell(cell: &str, number: f64, decimals: usize, what: &str) {
    assert_eq!(cell.split(' ').next().unwrap().replace(',', ""), format!("{number:.decimals$}"), "{what}");
}

/// The figures of README for a recording at one bound.
#[derive(Debug)]
struct Saved {
    ratio: f64,
    norm_lost: f64,
    /// As a part of the bound.
    largest_error: f64,
}

/// Sums over values, and over what is left of them.
#[derive(Default)]
struct Sums {
    compressed: u64,
    squared: f64,
    squared_restored: f64,
    largest: f64,
}

impl Sums {
    fn value(&mut self, value: f64, restored: f64) {
        self.squared += value * value;
        self.squared_restored += restored * restored;
        self.largest = self.largest.max((value - restored).abs());
    }

    /// Of so many bytes, under this bound.
    fn saved(&self, len: usize, bound: f64) -> Saved {
        Saved {
            ratio: len as f64 / self.compressed as f64,
            norm_lost: 1.0 - (self.squared_restored / self.squared).sqrt(),
            largest_error: self.largest / bound,
        }
    }
}

/// FORMAT.md sections 3 and 4 in `f64`, by value and not by bit: dense split, scale 0, 45 bursts a
/// payload.
fn saved(values: &[u8], b: u8) -> Saved {
    let half = |n: u8| 2f64.powi(-i32::from(n));
    let k = b.saturating_sub(7);
    let mut sums = Sums::default();
    for burst in values.chunks(32) {
        sums.compressed += 2;
        for value in burst.as_chunks::<4>().0 {
            let value = f64::from(f32::from_le_bytes(*value));
            let (bytes, step) = match value.abs() {
                magnitude if magnitude < half(b) => (0, None),
                magnitude if magnitude < half(k) => (1, Some(half(k + 7))),
                magnitude if magnitude < 1.0 => (2, Some(half(15))),
                _ => (4, None),
            };
            let restored = match (bytes, step) {
                (0, _) => 0.0,
                (_, Some(step)) => (value / step).trunc() * step,
                _ => value,
            };
            sums.compressed += bytes;
            sums.value(value, restored);
        }
    }
    sums.saved(values.len(), half(b))
}

/// FORMAT.md sections 3.7 and 4.2 in `f64`: a payload of 360 values is one section.
fn saved_bit_plane(values: &[u8], b: i16) -> Saved {
    let bound = f64::from(-b).exp2();
    let mut sums = Sums::default();
    for section in values.chunks(4 * 360) {
        let values = section.as_chunks::<4>().0.iter().map(|value| f64::from(f32::from_le_bytes(*value)));
        // The bin of each value that is not zero; the recordings have none that is raw at these
        // bounds.
        let bins: Vec<Option<u32>> = values
            .clone()
            .map(|value| (value.abs() >= bound).then(|| (value.abs() / (2.0 * bound)) as u32))
            .collect();
        assert!(values.clone().all(|value| value.abs() < 16384.0 * bound));
        let nonzero = bins.iter().flatten().count();
        let octets = bins.len().div_ceil(8);
        let present = bins.chunks(8).filter(|octet| octet.iter().any(Option::is_some)).count();
        let (map, planes): (usize, Vec<u32>) = if 16 * nonzero >= 13 * bins.len() {
            (0, bins.iter().map(|bin| bin.map_or(0, |bin| bin + 1)).collect())
        } else {
            let map = octets.min(octets.div_ceil(8) + present);
            (map, bins.iter().flatten().copied().collect())
        };
        let groups =
            planes.chunks(8).map(|group| group.iter().max().map_or(0, |most| 32 - most.leading_zeros()));
        let groups_len: u32 = groups.sum();
        let heads = planes.len().div_ceil(8) + planes.len().div_ceil(16);
        sums.compressed +=
            if nonzero == 0 { 1 } else { 1 + map as u64 + heads as u64 + u64::from(groups_len) };
        for (value, bin) in values.zip(bins) {
            let restored = bin.map_or(0.0, |bin| f64::from(2 * bin + 1) * bound * value.signum());
            sums.value(value, restored);
        }
    }
    sums.saved(values.len(), bound)
}

/// The dataplane's figures, and those of the arithmetic above, are those that README and the
/// performance page print.
#[test]
fn readme_has_the_ratios_norms_and_errors() {
    holds_what_is_saved(README, Codec::BitPlane, saved_bit_plane);
    holds_what_is_saved(PERFORMANCE, Codec::Classes(Split::Dense), |values, b| {
        saved(values, u8::try_from(b).unwrap())
    });
}

fn holds_what_is_saved(document: &str, codec: Codec, by_hand: fn(&[u8], i16) -> Saved) {
    let table = table(document, &["recording", "values", "ratio at 2^-10"]);
    let recordings = builtin().unwrap();
    let report = measure_all(&recordings, &DEFAULT_BOUNDS, codec, Scale::Fixed(0), Kernel::detect()).unwrap();
    assert_eq!(table.rows.len(), recordings.len());
    // The rows are in the order of the recordings, and say of each what its file's name says
    // shortly.
    let words = [("convolutional", "cnn"), ("MLP", "hdc256"), ("transformer", "lm"), ("ResNet", "resnet")];
    for ((row, recording), (word, name)) in table.rows.iter().zip(&recordings).zip(words) {
        let (model, iteration) = recording.name.split_once("_i").unwrap();
        let iteration: u32 = iteration.split('_').next().unwrap().parse().unwrap();
        assert_eq!(model, name);
        assert!(row[0].contains(word) && row[0].ends_with(&format!(" {iteration}")), "{}", row[0]);
        assert_cell(&row[1], (recording.values.len() / 4) as f64, 0, &row[0]);
        let mut largest = 0f64;
        for (place, bound) in DEFAULT_BOUNDS.into_iter().enumerate() {
            let what = format!("{} at 2^-{bound}", recording.name);
            assert_eq!(table.head[2 + 2 * place], format!("ratio at 2^-{bound}"));
            assert_eq!(table.head[3 + 2 * place], "norm lost");
            let by_hand = by_hand(&recording.values, bound);
            let is_it = |row: &&Measured| row.name == recording.name && row.bound == bound;
            let measured = report.recordings.iter().find(is_it).unwrap();
            assert_eq!((measured.ratio, measured.violations), (by_hand.ratio, 0), "{what}");
            assert!((measured.norm_lost - by_hand.norm_lost).abs() < 1e-12, "{what}");
            assert_eq!(measured.max_error * f64::from(bound).exp2(), by_hand.largest_error, "{what}");
            assert_cell(&row[2 + 2 * place], by_hand.ratio, 2, &what);
            // A norm may grow a little: codec 2 restores to the middle of a bin. No zero has a
            // sign.
            let percent = (1000.0 * by_hand.norm_lost).round() / 10.0 + 0.0;
            assert_cell(&row[3 + 2 * place], percent, 1, &what);
            largest = largest.max(by_hand.largest_error);
        }
        // Cut, not rounded: only what reaches the bound may show as 1.
        assert_cell(&row[8], (largest * 1e4).floor() / 1e4, 4, &row[0]);
    }
}

#[test]
fn readme_tags_sockets_as_the_default_rule_asks() {
    let text = text(README);
    assert_eq!(text.matches("0x").count(), text.matches(&format!("{DEFAULT_TOS:#04x}")).count());
    assert!(text.contains("within 2^-10 of") && Params::DEFAULT.b() == 10 && Params::DEFAULT.x() == 0);
    // AF11 is DSCP 10.
    assert_eq!(DEFAULT_TOS >> 2, 10);
}

#[test]
fn the_captures_save_what_performance_says() {
    let table = table(PERFORMANCE, &["capture", "what happens in it", "in-place framing", "routed framing"]);
    assert_eq!(table.rows.len(), 2);
    for row in &table.rows {
        let capture = capture(&recordings().join(row[0].trim_matches('`')).with_extension("pcap"));
        for (framing, cell) in [(Framing::InPlace, &row[2]), (Framing::Routed, &row[3])] {
            let report = replayed(&capture, framing);
            assert!(report.ok && report.compressed > 0);
            let ratio = report.wire_bytes_in as f64 / report.wire_bytes_out as f64;
            assert_cell(cell, ratio, 2, &format!("{} {framing:?}", row[0]));
        }
    }
}

/// Rows of a committed CSV file: what is before the last comma, and the number behind it.
fn csv(path: &str) -> BTreeMap<String, f64> {
    let text = text(path);
    let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(','));
    rows.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?))).collect()
}

/// `.ci/counts` lets the committed counts stand while a fresh count is within this share; so does
/// this.
const COUNTS_TOLERANCE: f64 = 0.02;

#[test]
fn performance_has_the_instruction_counts() {
    let counts = csv("testbench/benches/counts.csv");
    let table = table(PERFORMANCE, &["kernel", "encode, per value"]);
    assert_eq!(table.rows.len(), 3);
    for (name, cells) in table.numbers() {
        let kernel = name.to_lowercase();
        let rows = [
            ("encode,dense,recorded", 0.05),
            ("decode,dense,recorded", 0.05),
            ("egress,frame,routed", 0.5),
            ("ingress,frame,routed", 0.5),
        ];
        for ((row, rounding), cell) in rows.into_iter().zip(cells) {
            let count = counts[&format!("{kernel},{row}")];
            assert!((cell - count).abs() <= COUNTS_TOLERANCE * count + rounding, "{kernel},{row}: {count}");
        }
    }
}

#[test]
fn firmware_has_the_counts() {
    let counts = csv("firmware/softcore/counts.csv");
    let (mut frames, mut bit_plane) = (Vec::new(), Vec::new());
    for (isa, name) in [("rv32imac", "RV32IMAC"), ("rv32imac_zbb", "with Zbb")] {
        for (direction, engine) in [("encode", "egress"), ("decode", "ingress")] {
            let cells = |of: &str| {
                let value = |distance: u8| counts[&format!("{isa},scalar32,{direction},{of},{distance}")];
                let off = (1..4).map(value).fold(0.0, f64::max);
                vec![name.to_owned(), direction.to_owned(), format!("{:.1}", value(0)), format!("{off:.1}")]
            };
            bit_plane.push(cells("bit-plane-value"));
            let frame = counts[&format!("{isa},scalar32,{engine},frame,routed")];
            // 100 million instructions a second, 1514 bytes a frame.
            let rate = 1514.0 * 8.0 * 100.0 / frame;
            let mut cells = cells("value");
            cells.extend([format!("{frame:.0}"), format!("{rate:.0} Mbit/s")]);
            frames.push(cells);
        }
    }
    assert_eq!(table(FIRMWARE, &["codec 1 on", "direction"]).rows, frames);
    assert_eq!(table(FIRMWARE, &["codec 2 on", "direction"]).rows, bit_plane);
    let (mut aggregators, mut whole) = (Vec::new(), Vec::new());
    for (isa, name) in [("rv32imac", "RV32IMAC"), ("rv32imac_zbb", "with Zbb")] {
        for (codec, of) in [("1", ""), ("2", "bit-plane-")] {
            let count = |work: &str, what: &str| counts[&format!("{isa},scalar32,{work},{of}{what}")];
            // Of 32 bits a value, from each of four workers, at 100 million instructions a second.
            let cells = |instructions: f64| {
                [format!("{instructions:.1}"), format!("{:.0} Mbit/s", 100.0 * 32.0 / 4.0 / instructions)]
            };
            let row = |cells: Vec<String>| [vec![name.to_owned(), codec.to_owned()], cells].concat();
            aggregators
                .push(row(["add", "sums"].map(|work| format!("{:.1}", count(work, "block,0"))).to_vec()));
            whole.push(row(["chunk,group", "chunk,copies"]
                .map(|how| cells(count("aggregator", how)))
                .concat()));
        }
    }
    assert_eq!(table(FIRMWARE, &["a whole aggregator on", "codec"]).rows, whole);
    assert_eq!(table(FIRMWARE, &["an aggregator on", "codec"]).rows, aggregators);
}

/// The memory of the image, and of one more connection. No field of a flow has the size of a
/// pointer, so it is as large on 32 bits as here.
#[test]
fn firmware_has_the_memory() {
    let sizes = csv("firmware/softcore/sizes.csv");
    let flow = (size_of::<FlowTable<2>>() - size_of::<FlowTable<1>>()) / WAYS;
    let memory = table(FIRMWARE, &["memory", "bytes"]).rows;
    let found: Vec<f64> = memory.iter().map(|row| Table::number(&row[1])).collect();
    let expected = [
        sizes["softcore,text"],
        sizes["softcore,data"],
        sizes["softcore,bss"],
        flow as f64,
        size_of::<Slot>() as f64,
    ];
    assert_eq!(found, expected, "{memory:?}");
    for (head, image) in
        [("memory of the aggregator", "aggregator"), ("memory of the aggregator with TCP", "management")]
    {
        let memory = table(FIRMWARE, &[head, "bytes"]).rows;
        let found: Vec<f64> = memory.iter().map(|row| Table::number(&row[1])).collect();
        let expected = ["text", "data", "bss"].map(|section| sizes[&format!("{image},{section}")]);
        assert_eq!(found, expected, "{memory:?}");
    }
}

/// A measured table cannot be measured again here. What one of its cells says of another has to be
/// right.
#[test]
fn measured_figures_agree_with_each_other() {
    let machines = table(PERFORMANCE, &["machine", "processor"]);
    let column = |name: &str| machines.head.iter().position(|head| head == name).unwrap();
    let machine = |name: &str| machines.rows.iter().find(|row| row[0] == name).unwrap();
    let memcpy = |name: &str| Table::number(&machine(name)[column("`memcpy`")]);
    // The last figure: B says what it had under load.
    let hertz = |name: &str| {
        let clock = machine(name)[column("clock")].rsplit("; ").next().unwrap().to_owned();
        1e9 * Table::number(&clock)
    };
    let rates_in = |document| table(document, &["kernel", "machine", "encode, GB/s"]).rows;
    let kernels = rates_in(KERNELS);
    let mut rates = BTreeMap::new();
    for row in kernels.iter().chain(&rates_in(PERFORMANCE)) {
        for (direction, at) in [("encode", 2), ("decode", 4)] {
            let rate = Table::number(&row[at]);
            assert_cell(&row[at + 1], rate / memcpy(&row[1]), 2, &format!("{row:?}"));
            let kernel = row[0].replace(" VBMI2", "");
            rates.insert(format!("{kernel} {direction}, {}", row[1]), (rate, row[1].clone()));
        }
    }
    let bounds = table(KERNELS, &["kernel", "bound by", "least", "measured"]);
    let mut seen = 0;
    for row in &bounds.rows {
        if let Some((rate, machine)) = rates.get(&row[0]) {
            let bytes = if row[0].starts_with("portable") { 4.0 } else { 32.0 };
            let cycles = hertz(machine) * bytes / (rate * 1e9);
            // Both are rounded to a tenth.
            assert!(
                (Table::number(&row[3]) - cycles).abs() <= 0.05 + cycles * 0.05 / rate,
                "{row:?}: {cycles}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 5);
    let parts = table(PERFORMANCE, &["part", "egress", "ingress"]);
    for direction in [0, 1] {
        let all: f64 = parts.numbers().iter().map(|(_, shares)| shares[direction]).sum();
        assert!((0.95..=1.0).contains(&all), "{:?}", parts.rows);
    }
    let codecs = table(PERFORMANCE, &["codec", "ratio"]);
    let own: Vec<String> = codecs.rows[0][1..].to_vec();
    let mlp = table(PERFORMANCE, &["recording", "values", "ratio at 2^-10"])
        .rows
        .into_iter()
        .find(|row| row[0].starts_with("MLP"))
        .unwrap();
    assert_eq!(own, [mlp[2].clone(), kernels[0][2].clone(), kernels[0][4].clone()]);
    assert!(text(PERFORMANCE).contains(RECORDED.trim_end_matches(".npy")));
    assert!(GRADIENTS.iter().any(|file| file.name == RECORDED));
    let wires = table(PERFORMANCE, &["wire", "gradients"]);
    for row in &wires.rows {
        let [untagged, tagged, faster] = [2, 3, 4].map(|at| Table::number(&row[at]));
        // The times are rounded to 10 ms.
        let slack = faster * 0.005 * (1.0 / untagged + 1.0 / tagged) + 0.005;
        assert!((untagged / tagged - faster).abs() <= slack, "{row:?}");
    }
}

#[test]
fn training_has_what_auto_assumes() {
    let source = text("host/python/python/gradwire/_auto.py");
    let plans = source.lines().find_map(|line| line.strip_prefix("PLANS = {")?.strip_suffix('}')).unwrap();
    let rows = plans.split(", ").map(|plan| {
        let (name, factor) = plan.split_once(": ").unwrap();
        let factor: f64 = factor.parse().unwrap();
        vec![format!("`{}`", name.trim_matches('"')), format!("{:.0} %", 100.0 * factor - 100.0)]
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(table("docs/training.md", &["plan", "assumed extra iterations"]).rows, rows);
}

/// FORMAT.md's defaults are those of the dataplane.
#[test]
fn format_has_the_defaults() {
    let rule = Rule::DEFAULT;
    let Profile::SizeClass(params) = rule.profile else { panic!("codec 1") };
    let defaults = [
        ("type of service of a rule, and its mask", format!("{:#x}, {:#x}", rule.tos, rule.mask)),
        ("mark", format!("{DEFAULT_MARK:#x}")),
        ("profile", format!("codec 1 with b = {}, k = {}, x = {}", params.b(), params.k(), params.x())),
        ("framing", rule.framing.name().into()),
        ("alignment", format!("by {}", rule.alignment.name())),
        ("handshake", rule.handshake.name().into()),
        ("heuristic", rule.heuristic.name().into()),
        ("UDP offset", rule.udp_offset.to_string()),
    ];
    let table = table("FORMAT.md", &["setting", "default"]);
    // The last row is the receiver's MTU, which whoever makes an engine gives it.
    assert_eq!(table.rows.len(), defaults.len() + 1);
    for (row, (setting, default)) in table.rows.iter().zip(defaults) {
        assert_eq!((&row[0][..], row[1].split(';').next().unwrap()), (setting, &default[..]));
    }
}

/// Each count that the shim's reference explains exists: an outcome of the dataplane, or something
/// that the shim counts itself.
#[test]
fn the_shims_counts_exist() {
    let folders = ["dataplane/src", "firmware/afxdp/src/telemetry"].map(|folder| root().join(folder));
    let sources: String = files_with("rs")
        .iter()
        .filter(|path| folders.iter().any(|folder| path.starts_with(folder)))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for head in ["count", "refused"] {
        let table = table("docs/shim-reference.md", &[head]);
        assert!(table.rows.len() >= 7, "{head}");
        for name in table.rows.iter().flat_map(|row| code_spans(&row[0])) {
            assert!(sources.contains(&format!("\"{name}\"")), "nothing counts {name}");
        }
    }
}

#[test]
fn readme_is_short() {
    let words = text(README).split_whitespace().count();
    assert!(words <= 900, "{words} words; move some to another document");
}

/// docs/README.md has three doors, and leads to every document, if only by way of another one.
#[test]
fn every_document_is_reachable() {
    let index = text("docs/README.md");
    for door in ["Train", "Network", "Hardware"] {
        assert!(index.contains(&format!("\n## {door}\n")), "no door {door}");
    }
    let (mut reached, mut left) =
        (BTreeSet::new(), vec![root().join("docs/README.md").canonicalize().unwrap()]);
    while let Some(path) = left.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let document = fs::read_to_string(&path).unwrap();
        for target in prose(&document).iter().flat_map(|line| line.split("](").skip(1)) {
            let file = path.parent().unwrap().join(target.split([')', '#']).next().unwrap());
            left.extend(
                file.canonicalize().ok().filter(|file| file.extension().is_some_and(|kind| kind == "md")),
            );
        }
    }
    // Tools leave documents of their own in folders like `.pytest_cache`.
    let hidden = |path: &std::path::Path| {
        path.strip_prefix(root()).unwrap().to_str().unwrap().split('/').any(|name| name.starts_with('.'))
    };
    let ours = files_with("md").into_iter().filter(|path| !hidden(path));
    let all: BTreeSet<_> = ours.map(|path| path.canonicalize().unwrap()).collect();
    assert_eq!(reached, all, "reached from docs/README.md, and there");
}

/// Relative links point to files, and their anchors to headings.
#[test]
fn links_lead_somewhere() {
    let mut seen = 0;
    for path in files_with("md") {
        let document = fs::read_to_string(&path).unwrap();
        for target in prose(&document).iter().flat_map(|line| line.split("](").skip(1)) {
            let target = target.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(file.exists(), "{}: {target}", path.display());
            if !heading.is_empty() {
                let there = fs::read_to_string(&file).unwrap();
                let mut headings = prose(&there).into_iter().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| anchor(line) == heading), "{}: {target}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen} links");
}

/// A file or folder that a document names exists. Paths are from the root, or from the folder of
/// the part that the document speaks about.
#[test]
fn paths_that_documents_name_exist() {
    let bases = [
        "",
        "dataplane/src",
        "firmware/afxdp",
        "firmware/afxdp/src",
        "firmware/softcore",
        "firmware/softcore/src",
        "testbench",
        "testbench/src",
    ];
    let endings = [".rs", ".c", ".csv", ".toml", ".md", ".npy", ".pcap", ".py"];
    let is_path = |span: &&str| {
        !span.contains([' ', '*', '<'])
            && !span.contains("NAME")
            && span.contains('/')
            && (span.ends_with('/')
                || span.starts_with(".ci/")
                || endings.iter().any(|end| span.ends_with(end)))
    };
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = text(document);
        for path in prose(&text).iter().flat_map(|line| code_spans(line)).filter(is_path) {
            let exists = bases.iter().any(|base| root().join(base).join(path).exists());
            assert!(exists, "{document} names {path}");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} paths");
}

/// The number of times that a line of code opens something unsafe.
fn unsafe_in(line: &str) -> usize {
    let code = line.split("//").next().unwrap();
    let opens = ["{", "fn", "impl", "extern"];
    code.split("unsafe ")
        .skip(1)
        .filter(|rest| opens.iter().any(|word| rest.trim_start().starts_with(word)))
        .count()
}

#[test]
fn the_list_of_unsafe_code_is_complete() {
    let mut counted = BTreeMap::new();
    for path in files_with("rs") {
        let count: usize = fs::read_to_string(&path).unwrap().lines().map(unsafe_in).sum();
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        // This file has the word in a pattern.
        if count > 0 && !name.ends_with("tests/documents/main.rs") {
            counted.insert(name, count);
        }
    }
    let listed: BTreeMap<String, usize> = table(INVENTORY, &["file", "blocks"])
        .rows
        .iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), row[1].parse().unwrap()))
        .collect();
    assert_eq!(counted, listed, "counted, and as docs/inventory.md lists them");
}

/// ARCHITECTURE.md gives each crate of the workspaces a row, and docs/inventory.md each dependency.
#[test]
fn the_lists_of_crates_and_dependencies_are_complete() {
    let manifests = files_with("toml").into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let (mut packages, mut dependencies) = (BTreeSet::new(), BTreeSet::new());
    for path in manifests {
        let manifest: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let Some(package) = manifest.get("package") else { continue };
        let name = package["name"].as_str().unwrap().to_owned();
        // The proof's own packages are no part of the project's crates.
        if !path.starts_with(root().join(".ci")) {
            packages.insert(name);
        }
        let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
        let platforms = targets.filter_map(|(_, target)| target.as_table());
        for section in platforms.chain([&manifest]) {
            for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
                let listed = section.get(kind).and_then(toml::Value::as_table);
                dependencies.extend(listed.into_iter().flatten().map(|(name, _)| name.clone()));
            }
        }
    }
    dependencies.retain(|name| !packages.contains(name));
    let crates = table(ARCHITECTURE, &["folder", "crate"]);
    let named: BTreeSet<String> = crates.rows.iter().map(|row| row[1].trim_matches('`').to_owned()).collect();
    assert_eq!(named, packages);
    let listed = table(INVENTORY, &["dependency", "used by"]);
    let listed: BTreeSet<String> = listed
        .rows
        .iter()
        .flat_map(|row| row[0].split(", ").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(listed, dependencies);
}

/// CONTRIBUTING.md says so: nobody's run fails by chance, and no find of an earlier run makes it
/// fail. cargo tells proptest by `.cargo/config.toml`, for the tests of all crates; a seed in the
/// environment goes before it.
#[test]
fn property_tests_draw_the_same_cases_in_every_run() {
    use proptest::prelude::any;
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    let config = Config::default();
    assert!(matches!(config.rng_seed, RngSeed::Fixed(_)), "PROPTEST_RNG_SEED is not set: run this by cargo");
    assert!(config.failure_persistence.is_none());
    let drawn = || {
        let mut runner = TestRunner::new(Config::default());
        [(); 8].map(|()| any::<u64>().new_tree(&mut runner).unwrap().current())
    };
    assert_eq!(drawn(), drawn());
}
