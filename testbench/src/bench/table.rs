//! The report for people.

use std::io::{self, Write};

use super::distributions::{Distribution, MIXED, RECORDED_DENSE, RECORDED_RAW, RECORDED_VALUES, TYPICAL};
use super::figures::{Figures, FrameRow, KernelRow, SumsRow};
use super::frames::{Direction, FRAME_LEN, Kind};
use super::payloads::PAYLOAD_LEN;
use crate::report::Table;

/// The target of a kernel on the typical distribution, encoding and decoding.
enum Target {
    /// As parts of memcpy's speed.
    OfMemcpy(f64, f64),
    /// GB/s.
    Gbps(f64, f64),
}

/// The same for codec 2, on recorded gradients, as parts of memcpy's speed.
const OF_CODEC_2: [(&str, Distribution, f64, f64); 4] = [
    ("avx512", RECORDED_VALUES, 0.58, 0.56),
    ("avx512", RECORDED_RAW, 0.35, 0.35),
    ("avx2", RECORDED_VALUES, 0.30, 0.32),
    ("avx2", RECORDED_DENSE, 0.25, 0.25),
];

/// The frame path's codecs and directions.
fn paths() -> impl Iterator<Item = (u8, Direction)> {
    [1, 2].into_iter().flat_map(|codec| Direction::ALL.map(|direction| (codec, direction)))
}

fn target(kernel: &str) -> Option<Target> {
    match kernel {
        "avx512" => Some(Target::OfMemcpy(0.36, 0.27)),
        "avx2" => Some(Target::OfMemcpy(0.21, 0.18)),
        "portable" => Some(Target::Gbps(2.5, 2.5)),
        _ => None,
    }
}

/// The frame path in terms of the kernel's own time, at most.
const EGRESS_OF_KERNEL: f64 = 2.0;
const INGRESS_OF_KERNEL: f64 = 1.6;
/// Raw values among the recorded ones, one in a hundred, in terms of none, at least.
const RAW_OF_RECORDED: f64 = 0.7;
/// An untagged frame in terms of a tagged one, at most.
const UNTAGGED_OF_TAGGED: f64 = 1.0 / 20.0;
/// Adding a block in terms of decoding it, and encoding sums in terms of encoding values, at least.
const ADD_OF_DECODE: f64 = 0.80;
const SUMS_OF_ENCODE: f64 = 0.70;
/// The mixed distribution in terms of the typical one, at least.
const MIXED_OF_TYPICAL: f64 = 0.5;

/// Writes `figures` to `out`. `frame_kernel` names the kernel that the frame path was measured
/// with.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, figures: &Figures, frame_kernel: &str) -> io::Result<()> {
    let memcpy = figures.memcpy_gbps;
    writeln!(
        out,
        "Kernels: GB of raw gradient a second, one core, and as a part of memcpy's {memcpy:.1} GB/s\n"
    )?;
    let mut table = Table::new(&["kernel", "codec", "distribution", "encode", "", "decode", ""]);
    for row in &figures.kernels {
        let mut cells = vec![row.name.to_owned(), row.codec.to_string(), row.distribution.to_owned()];
        for speed in [row.encode_gbps, row.decode_gbps] {
            cells.extend([format!("{speed:.2}"), format!("{:.3}", speed / memcpy)]);
        }
        table.row(cells);
    }
    table.write(out)?;

    if !figures.sums.is_empty() {
        writeln!(out, "\nSums: billions of values a second, in blocks of 128; sums of four workers\n")?;
        let header = [
            "kernel",
            "codec",
            "distribution",
            "encode",
            "decode",
            "add",
            "of decode",
            "sums to bytes",
            "of encode",
        ];
        let mut table = Table::new(&header);
        for row in &figures.sums {
            table.row(vec![
                row.name.to_owned(),
                row.codec.to_string(),
                row.distribution.to_owned(),
                format!("{:.2}", row.encode_gvalues),
                format!("{:.2}", row.decode_gvalues),
                format!("{:.2}", row.add_gvalues),
                format!("{:.2}", row.add_gvalues / row.decode_gvalues),
                format!("{:.2}", row.sums_gvalues),
                format!("{:.2}", row.sums_gvalues / row.encode_gvalues),
            ]);
        }
        table.write(out)?;
    }

    writeln!(
        out,
        "\nFrame path: {FRAME_LEN}-byte TCP frames of the distribution recorded, kernel {frame_kernel}\n"
    )?;
    let mut table = Table::new(&["codec", "direction", "kind", "ns/frame", "Gbit/s", "of the kernel alone"]);
    for (codec, direction) in paths() {
        let alone = figures.frame(codec, direction, Kind::KernelAlone).map_or(f64::NAN, |row| row.ns);
        let of_path = |row: &&FrameRow| row.codec == codec && row.direction == direction.name();
        for row in figures.frame_path.iter().filter(of_path) {
            table.row(vec![
                codec.to_string(),
                row.direction.to_owned(),
                row.kind.to_owned(),
                format!("{:.1}", row.ns),
                format!("{:.1}", row.gbps),
                format!("{:.2}", row.ns / alone),
            ]);
        }
    }
    table.write(out)?;

    if !figures.peers.is_empty() {
        writeln!(out, "\nPeers, one core; compress and decompress in GB of raw gradient a second\n")?;
        let mut table =
            Table::new(&["recording", "codec", "ratio", "max error", "2^", "compress", "decompress"]);
        for row in &figures.peers {
            let (codec, recording) = row.name.split_once('/').unwrap_or((&row.name, ""));
            table.row(vec![
                recording.to_owned(),
                codec.to_owned(),
                format!("{:.2}", row.ratio),
                format!("{:.2e}", row.max_error),
                if row.max_error > 0.0 { format!("{:.1}", row.max_error.log2()) } else { "-".into() },
                format!("{:.2}", row.compress_gbps),
                format!("{:.2}", row.decompress_gbps),
            ]);
        }
        table.write(out)?;
    }

    writeln!(out, "\nTargets; whatever is missed, this is information and no check\n")?;
    let mut table = Table::new(&["target", "wanted", "measured", ""]);
    for (name, wanted, measured) in targets(figures) {
        let (sign, met) = match wanted {
            Wanted::AtLeast(limit) => (format!(">= {limit:.2}"), measured >= limit),
            Wanted::AtMost(limit) => (format!("<= {limit:.2}"), measured <= limit),
        };
        let met = if met { "met" } else { "missed" };
        table.row(vec![name, sign, format!("{measured:.3}"), met.to_owned()]);
    }
    table.write(out)?;
    writeln!(out)?;
    writeln!(
        out,
        "payloads of {PAYLOAD_LEN} bytes in L2, bound 2^-10, codec 1 with the dense split;\nbest of many slices, in turn with memcpy"
    )?;
    writeln!(out, "Gbit/s count the payload that hosts see, not what is on the wire")
}

enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

fn targets(figures: &Figures) -> Vec<(String, Wanted, f64)> {
    let mut targets = Vec::new();
    let rows = |codec: u8, distribution: &'static str| {
        figures.kernels.iter().filter(move |row| row.codec == codec && row.distribution == distribution)
    };
    for row in rows(1, TYPICAL.name) {
        let (unit, scale, encode, decode) = match target(row.name) {
            Some(Target::OfMemcpy(encode, decode)) => {
                ("of memcpy", 1.0 / figures.memcpy_gbps, encode, decode)
            }
            Some(Target::Gbps(encode, decode)) => ("GB/s", 1.0, encode, decode),
            None => continue,
        };
        let name = |work: &str| format!("{} {work} {}, {unit}", row.name, row.distribution);
        targets.push((name("encode"), Wanted::AtLeast(encode), row.encode_gbps * scale));
        targets.push((name("decode"), Wanted::AtLeast(decode), row.decode_gbps * scale));
    }
    for (kernel, distribution, encode, decode) in OF_CODEC_2 {
        let is_row =
            |row: &&KernelRow| row.codec == 2 && row.name == kernel && row.distribution == distribution.name;
        let Some(row) = figures.kernels.iter().find(is_row) else { continue };
        let name = |work: &str| format!("{kernel} {work} codec 2 {}, of memcpy", distribution.name);
        let memcpy = figures.memcpy_gbps;
        targets.push((name("encode"), Wanted::AtLeast(encode), row.encode_gbps / memcpy));
        targets.push((name("decode"), Wanted::AtLeast(decode), row.decode_gbps / memcpy));
    }
    let simd =
        |row: &&SumsRow| row.distribution == RECORDED_VALUES.name && matches!(row.name, "avx512" | "avx2");
    for row in figures.sums.iter().filter(simd) {
        let mut part = |name: &str, limit, of: f64| {
            let name = format!("{} {name}, codec {}, {}", row.name, row.codec, row.distribution);
            targets.push((name, Wanted::AtLeast(limit), of));
        };
        part("add of decode", ADD_OF_DECODE, row.add_gvalues / row.decode_gvalues);
        part("sums to bytes of encode", SUMS_OF_ENCODE, row.sums_gvalues / row.encode_gvalues);
    }
    let mut part = |row: &KernelRow, of: &KernelRow, limit| {
        let name = |work| {
            format!("{} {work} codec {} {}, of {}", row.name, row.codec, row.distribution, of.distribution)
        };
        targets.push((name("encode"), Wanted::AtLeast(limit), row.encode_gbps / of.encode_gbps));
        targets.push((name("decode"), Wanted::AtLeast(limit), row.decode_gbps / of.decode_gbps));
    };
    for (mixed, typical) in rows(1, MIXED.name).zip(rows(1, TYPICAL.name)) {
        part(mixed, typical, MIXED_OF_TYPICAL);
    }
    for (raw, recorded) in rows(2, RECORDED_RAW.name).zip(rows(2, RECORDED_VALUES.name)) {
        if matches!(raw.name, "avx512" | "avx2") {
            part(raw, recorded, RAW_OF_RECORDED);
        }
    }
    for (direction, limit) in [(Direction::Egress, 0.85), (Direction::Ingress, 0.80)] {
        let [of_1, of_2] = [1, 2].map(|codec| figures.frame(codec, direction, Kind::Routed));
        if let (Some(of_1), Some(of_2)) = (of_1, of_2) {
            let name = format!("{} routed codec 2, of codec 1", direction.name());
            targets.push((name, Wanted::AtMost(limit), of_2.ns / of_1.ns));
        }
    }
    for (codec, direction) in paths() {
        let of_kernel = match direction {
            Direction::Egress => EGRESS_OF_KERNEL,
            Direction::Ingress => INGRESS_OF_KERNEL,
        };
        let ns = |kind| figures.frame(codec, direction, kind).map(|row| row.ns);
        let (Some(kernel), Some(untagged)) = (ns(Kind::KernelAlone), ns(Kind::Untagged)) else { continue };
        for kind in [Kind::Routed, Kind::InPlace] {
            let Some(tagged) = ns(kind) else { continue };
            let name = format!("{} {}, codec {codec}", direction.name(), kind.name());
            targets.push((
                format!("{name}, of the kernel alone"),
                Wanted::AtMost(of_kernel),
                tagged / kernel,
            ));
            targets.push((
                format!("{} untagged, of {}, codec {codec}", direction.name(), kind.name()),
                Wanted::AtMost(UNTAGGED_OF_TAGGED),
                untagged / tagged,
            ));
        }
    }
    targets
}
