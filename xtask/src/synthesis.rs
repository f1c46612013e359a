//! What the gateware's designs take of an FPGA, against `firmware/gateware/synthesis.csv`: cells after yosys' synthesis, before
//! placing.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::table::{self, Row, Table, Tolerance};
use crate::tools::{output, root};

const FOLDER: &str = "firmware/gateware";
const HEAD: &str = "\
# Cells of the gateware's designs by yosys 0.23, without placing. Compared by `cargo xtask synthesis` with a tolerance of 5%;
# written anew by `cargo xtask synthesis --refresh`.
design,family,cell,cells
";
const TOLERANCE: Tolerance = Tolerance { part: 0.05, least: 2.0 };
/// What is synthesised if no design is named.
const DESIGNS: [&str; 2] = ["gw_compressor", "gw_decompressor"];

/// A family, yosys' command for it, and what stands in the table: a name, and the cells that are added up to it.
struct Family {
    name: &'static str,
    command: &'static str,
    cells: &'static [(&'static str, &'static [&'static str])],
}

const FAMILIES: [Family; 1] = [Family {
    name: "ecp5",
    command: "synth_ecp5",
    cells: &[
        ("lut4", &["LUT4"]),
        ("carry", &["CCU2C"]),
        ("lutram", &["TRELLIS_DPR16X4"]),
        ("blockram", &["DP16KD", "PDPW16KD"]),
        ("flipflop", &["TRELLIS_FF"]),
    ],
}];

/// Synthesises the named designs, or both engines, and compares their cells with the committed table, or writes them there:
/// a run that names designs leaves the others' rows as they are.
///
/// # Errors
/// A figure is off; yosys is missing, or refuses a design.
pub fn synthesis(designs: &[String], refresh: bool) -> Result {
    let mut measured = Vec::new();
    let all: Vec<String> = DESIGNS.iter().map(|name| (*name).to_owned()).collect();
    let chosen = if designs.is_empty() { &all } else { designs };
    for design in chosen {
        for family in &FAMILIES {
            measured.extend(cells(design, family)?);
        }
    }
    let path = root().join(FOLDER).join("synthesis.csv");
    let of_others = |name: &str| !chosen.iter().any(|design| name.starts_with(&format!("{design},")));
    let text = fs::read_to_string(&path).unwrap_or_default();
    let kept = table::parse(&text).unwrap_or_default().into_iter().filter(|(name, _)| of_others(name));
    let mut rows: Vec<Row> = kept.chain(measured.iter().cloned()).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let refresh_command = "cargo xtask synthesis --refresh";
    let table = Table { path: &path, head: HEAD, digits: 0, tolerance: TOLERANCE, refresh: refresh_command };
    if refresh {
        table.write(&rows)?;
    }
    table.compare(&rows)?;
    for (name, figure) in &measured {
        println!("{name},{figure}");
    }
    Ok(())
}

fn cells(design: &str, family: &Family) -> Result<Vec<Row>> {
    let folder = root().join(FOLDER);
    let sources = output(Command::new("synthesis/sources").arg(design).current_dir(&folder))?;
    let sources = sources.split_whitespace().collect::<Vec<_>>().join(" ");
    let script = format!(
        "read_verilog -sv rtl/gw_pkg.sv rtl/gw_nic_pkg.sv {sources}; {} -top {design}; tee -q -o /dev/stdout stat",
        family.command
    );
    let text = output(Command::new("yosys").args(["-q", "-p", &script]).current_dir(&folder))?;
    let rows = added_up(&text, family);
    if rows.iter().all(|(_, cells)| *cells == 0.0) {
        return Err(format!("{design}: yosys counted no cells of {}", family.name).into());
    }
    Ok(rows.into_iter().map(|(name, cells)| (format!("{design},{},{name}", family.name), cells)).collect())
}

/// The cells of a `stat`, by the family's names for them.
fn added_up(stat: &str, family: &Family) -> Vec<Row> {
    let count = |cell: &str| -> f64 {
        let lines = stat.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(cell)).then(|| words.next()?.parse::<f64>().ok()).flatten()
        });
        // A sum of nothing is minus zero.
        0.0 + lines.sum::<f64>()
    };
    let sum = |names: &[&str]| names.iter().map(|name| count(name)).fold(0.0, |sum, cells| sum + cells);
    family.cells.iter().map(|(name, cells)| ((*name).to_owned(), sum(cells))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_added_up_by_name() {
        let stat = "   Number of cells:  9\n     LUT4    3\n     DP16KD   4\n     PDPW16KD 1\n     TRELLIS_FF  2\n     PFUMX 8\n";
        let rows = added_up(stat, &FAMILIES[0]);
        let expected = [("lut4", 3.0), ("carry", 0.0), ("lutram", 0.0), ("blockram", 5.0), ("flipflop", 2.0)];
        assert_eq!(rows, expected.map(|(name, cells)| (name.to_owned(), cells)));
    }
}
