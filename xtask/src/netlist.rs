//! A netlist as yosys' `write_json` gives it: how many cells of a kind there are, and how many
//! lookup tables follow each other.

use std::collections::HashMap;

use serde_json::Value;

use crate::Result;

/// A cell, with the nets at its pins.
struct Cell {
    kind: String,
    inputs: Vec<(String, u64)>,
    outputs: Vec<u64>,
}

/// A design after synthesis, flat.
pub(crate) struct Netlist(Vec<Cell>);

/// The path of a signal between two registers. All other cells begin and end paths.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    /// Kinds that count as a level.
    pub(crate) tables: &'static [&'static str],
    /// Memories in tables, which count as one from the pins that begin with this.
    pub(crate) memories: (&'static [&'static str], &'static str),
    /// Kinds that do not count: carry chains, and multiplexers behind tables.
    pub(crate) free: &'static [&'static str],
}

impl Netlist {
    /// The module `top` of the text.
    ///
    /// # Errors
    /// It is no netlist, or has no such module.
    pub(crate) fn parse(json: &str, top: &str) -> Result<Self> {
        let netlist: Value = serde_json::from_str(json)?;
        let cells = netlist["modules"][top]["cells"].as_object().ok_or("no netlist")?;
        let cell = |cell: &Value| {
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            for (pin, nets) in cell["connections"].as_object().into_iter().flatten() {
                // Constants are strings.
                let nets = nets.as_array().into_iter().flatten().filter_map(Value::as_u64);
                match cell["port_directions"][pin].as_str() {
                    Some("output") => outputs.extend(nets),
                    _ => inputs.extend(nets.map(|net| (pin.clone(), net))),
                }
            }
            Cell { kind: cell["type"].as_str().unwrap_or_default().to_owned(), inputs, outputs }
        };
        Ok(Self(cells.values().map(cell).collect()))
    }

    /// Cells of these kinds.
    pub(crate) fn count(&self, kinds: &[&str]) -> usize {
        self.0.iter().filter(|cell| kinds.contains(&cell.kind.as_str())).count()
    }

    /// The most levels between two registers, or a register and a port.
    ///
    /// # Errors
    /// A loop without a register.
    pub(crate) fn levels(&self, path: Path) -> Result<usize> {
        // Of each cell within a path: its level, and the nets that it waits for.
        let within = self.0.iter().filter_map(|cell| {
            let kind = cell.kind.as_str();
            let (memories, pins) = path.memories;
            let is_memory = memories.contains(&kind);
            let inputs = cell.inputs.iter().filter(move |(pin, _)| !is_memory || pin.starts_with(pins));
            let inputs: Vec<u64> = inputs.map(|(_, net)| *net).collect();
            let level = usize::from(is_memory || path.tables.contains(&kind));
            (level == 1 || path.free.contains(&kind)).then_some((level, inputs, &cell.outputs))
        });
        let cells: Vec<_> = within.collect();
        let mut users: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut levels: HashMap<u64, usize> = HashMap::new();
        let driven: HashMap<u64, ()> =
            cells.iter().flat_map(|(_, _, outputs)| outputs.iter().map(|net| (*net, ()))).collect();
        let mut waits: Vec<usize> = Vec::new();
        for (number, (_, inputs, _)) in cells.iter().enumerate() {
            let inner = inputs.iter().filter(|net| driven.contains_key(net));
            waits.push(inner.map(|net| users.entry(*net).or_default().push(number)).count());
        }
        let mut ready: Vec<usize> = (0..cells.len()).filter(|number| waits[*number] == 0).collect();
        let mut done = 0;
        while let Some(number) = ready.pop() {
            done += 1;
            let (level, inputs, outputs) = &cells[number];
            let before = inputs.iter().filter_map(|net| levels.get(net)).max().copied().unwrap_or(0);
            for net in outputs.iter() {
                levels.insert(*net, before + level);
                for user in users.get(net).into_iter().flatten() {
                    waits[*user] -= 1;
                    if waits[*user] == 0 {
                        ready.push(*user);
                    }
                }
            }
        }
        if done < cells.len() {
            return Err(format!("{} cells are in loops", cells.len() - done).into());
        }
        Ok(levels.into_values().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path { tables: &["LUT"], memories: (&["RAM"], "R"), free: &["CARRY"] };

    /// Kind, inputs, output.
    type Given<'a> = (&'a str, &'a [(&'a str, u64)], u64);

    fn netlist(cells: &[Given<'_>]) -> Netlist {
        let cells: serde_json::Map<String, Value> = cells
            .iter()
            .enumerate()
            .map(|(number, (kind, inputs, output))| {
                let mut connections: serde_json::Map<String, Value> = inputs
                    .iter()
                    .map(|(pin, net)| ((*pin).to_owned(), serde_json::json!([net, "0"])))
                    .collect();
                connections.insert("O".into(), serde_json::json!([output]));
                let cell = serde_json::json!({
                    "type": kind, "port_directions": {"O": "output"}, "connections": connections
                });
                (number.to_string(), cell)
            })
            .collect();
        let json = serde_json::json!({"modules": {"top": {"cells": cells}}}).to_string();
        Netlist::parse(&json, "top").unwrap()
    }

    #[test]
    fn tables_between_registers_are_counted() {
        let cells: [Given<'_>; 6] = [
            ("LUT", &[("A", 10)], 11),
            ("CARRY", &[("A", 11), ("B", 16)], 12),
            ("LUT", &[("A", 12), ("B", 10)], 13),
            ("FF", &[("A", 13)], 10),
            // What is written ends a path, what is read goes on.
            ("RAM", &[("W", 13), ("R", 11)], 15),
            ("LUT", &[], 16),
        ];
        let found = netlist(&cells);
        assert_eq!(found.levels(PATH).unwrap(), 2);
        assert_eq!((found.count(&["LUT", "FF"]), found.count(&["MUX"])), (4, 0));
    }

    #[test]
    fn a_loop_is_an_error() {
        assert!(netlist(&[("LUT", &[("A", 2)], 1), ("LUT", &[("A", 1)], 2)]).levels(PATH).is_err());
        assert!(Netlist::parse("{}", "top").is_err());
    }
}
