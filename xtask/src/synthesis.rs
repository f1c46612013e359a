//! The area of the gateware's designs on an FPGA, against `firmware/gateware/synthesis.csv`: cells
//! after yosys' synthesis, before placing.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::netlist::{Netlist, Path};
use crate::table::{self, Row, Table, Tolerance};
use crate::tools::{output, root, run, target};

const FOLDER: &str = "firmware/gateware";
const HEAD: &str = "\
# Cells of the gateware's designs by yosys 0.23, without placing, and the lookup tables of the longest path (levels). Compared by
# `cargo xtask synthesis DESIGN` with a tolerance of 5%; written anew by `cargo xtask synthesis --refresh DESIGN`.
design,family,cell,cells
";
const TOLERANCE: Tolerance = Tolerance { part: 0.05, least: 0.5 };
const ENGINES: &[&str] = &["gw_compressor", "gw_decompressor"];
/// The designs that are synthesised if none is named.
const DESIGNS: &[&str] = &["gw_compressor", "gw_decompressor", "gw_egress", "gw_ingress", "gw_nic"];

/// A family, yosys' command for it, and what stands in the table: names, and the cells that are
/// added up to each.
struct Family {
    name: &'static str,
    command: &'static str,
    /// Which designs are synthesised for it.
    designs: &'static [&'static str],
    cells: &'static [(&'static str, &'static [&'static str])],
    /// The path on which the tables of its longest path are counted.
    path: Option<Path>,
}

const XILINX_MEMORIES: &[&str] = &["RAM32M", "RAM32M16", "RAM64M", "RAM64M8", "RAM32X1D", "RAM64X1D"];
const XILINX_CARRY: &[&str] = &["CARRY4", "CARRY8"];
const XILINX_MUXES: &[&str] = &["MUXF7", "MUXF8", "MUXF9"];

const FAMILIES: [Family; 2] = [
    Family {
        name: "ecp5",
        command: "synth_ecp5",
        designs: DESIGNS,
        cells: &[
            ("lut4", &["LUT4"]),
            ("carry", &["CCU2C"]),
            ("lutram", &["TRELLIS_DPR16X4"]),
            ("blockram", &["DP16KD", "PDPW16KD"]),
            ("flipflop", &["TRELLIS_FF"]),
        ],
        // Its carry cells have tables of their own. Place and route says how fast it is.
        path: None,
    },
    Family {
        name: "ultrascale+",
        command: "synth_xilinx -family xcup -flatten",
        designs: ENGINES,
        cells: &[
            ("lut1", &["LUT1"]),
            ("lut2", &["LUT2"]),
            ("lut3", &["LUT3"]),
            ("lut4", &["LUT4"]),
            ("lut5", &["LUT5"]),
            ("lut6", &["LUT6"]),
            ("mux", XILINX_MUXES),
            ("carry", XILINX_CARRY),
            ("lutram", XILINX_MEMORIES),
            ("shiftregister", &["SRL16E", "SRLC32E"]),
            ("blockram", &["RAMB18E2", "RAMB36E2"]),
            ("ultraram", &["URAM288"]),
            ("flipflop", &["FDRE", "FDSE", "FDCE", "FDPE"]),
        ],
        path: Some(Path {
            tables: &["LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6"],
            memories: (XILINX_MEMORIES, "ADDR"),
            free: &["CARRY4", "CARRY8", "MUXF7", "MUXF8", "MUXF9", "INV"],
        }),
    },
];

/// Synthesises the named designs, or all of them, and compares their cells with the committed
/// table, or writes them there: a run that names designs leaves the others' rows as they are.
///
/// # Errors
/// A figure is off; yosys is missing, or refuses a design.
pub fn synthesis(designs: &[String], refresh: bool) -> Result {
    let mut measured = Vec::new();
    let all: Vec<String> = DESIGNS.iter().map(|name| (*name).to_owned()).collect();
    let chosen = if designs.is_empty() { &all[..] } else { designs };
    if let Some(design) = chosen.iter().find(|design| !DESIGNS.contains(&design.as_str())) {
        return Err(format!("{design}: not one of {DESIGNS:?}").into());
    }
    for design in chosen {
        for family in FAMILIES.iter().filter(|family| family.designs.contains(&design.as_str())) {
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
    let path = root().join(target()).join("gateware");
    fs::create_dir_all(&path)?;
    let path = path.join(format!("{design}-{}.json", family.name));
    let script = format!(
        "read_verilog -sv rtl/gw_pkg.sv rtl/gw_nic_pkg.sv {sources}; {} -top {design}; write_json {}",
        family.command,
        path.display()
    );
    run(Command::new("yosys").args(["-q", "-p", &script]).current_dir(&folder))?;
    let netlist = Netlist::parse(&fs::read_to_string(&path)?, design)?;
    let mut rows: Vec<Row> =
        family.cells.iter().map(|(name, kinds)| ((*name).to_owned(), netlist.count(kinds) as f64)).collect();
    if rows.iter().all(|(_, cells)| *cells == 0.0) {
        return Err(format!("{design}: yosys made no cells of {}", family.name).into());
    }
    if let Some(path) = family.path {
        rows.push(("levels".to_owned(), netlist.levels(path)? as f64));
    }
    Ok(rows.into_iter().map(|(name, cells)| (format!("{design},{},{name}", family.name), cells)).collect())
}
