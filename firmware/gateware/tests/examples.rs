//! The example for LiteX connects the ports that `gw_nic` has. (That for Corundum is SystemVerilog:
//! CI lints it.)

use std::collections::BTreeSet;

#[test]
fn the_litex_example_connects_every_port_in_its_direction() {
    let module = include_str!("../rtl/gw_nic.sv");
    let ports: BTreeSet<String> = module
        .split("\n);")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| {
            let line = line.trim().trim_end_matches(',');
            let direction =
                if line.starts_with("input") { "i" } else { line.strip_prefix("output").map(|_| "o")? };
            Some(format!("{direction}_{}", line.split_whitespace().last()?))
        })
        .collect();
    assert!(ports.len() > 40 && ports.contains("i_clk") && ports.contains("o_m_axis_wire_tlast"));

    let example = include_str!("../examples/litex_like.py");
    let mut connected = BTreeSet::new();
    for word in example.split(|byte: char| !(byte.is_ascii_alphanumeric() || "_{}".contains(byte))) {
        if !(word.starts_with("i_") || word.starts_with("o_")) {
            continue;
        }
        // What Python puts in for the braces.
        for side in ["host", "wire"] {
            for name in ["aw", "ar"] {
                connected.insert(word.replace("{side}", side).replace("{name}", name));
            }
        }
    }
    assert_eq!(connected, ports);
}
