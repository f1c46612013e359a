//! The most stack that the soft core's image can use: frames added up along the calls, from its
//! disassembly alone.
//!
//! What is assumed, and checked if it can be:
//! - A function's frame is the sum of all that it subtracts from the stack pointer.
//! - Only formatting (`core::fmt` and its implementations) calls through registers:
//!   `core::fmt::write` whatever formatting function's address stands in the image, all others the
//!   methods of what is written to.
//! - `core::fmt::write` nests at most `NESTING` deep, since no type that is formatted contains
//!   itself.
//! - No other recursion: a cycle is an error.
//! - On top comes one trap, which interrupts at the deepest point; traps do not nest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use crate::Result;
use crate::tools::output;

/// A problem of the console that is a problem of the codec's parameters that is a number: write,
/// and twice within.
const NESTING: usize = 4;
const WRITE: &str = "core3fmt5write";
const METHODS: [&str; 3] = ["9write_str", "10write_char", "9write_fmt"];
const FORMATS: [&str; 2] = ["3fmt", "8flow_key9write_end"];
const TRAP: &str = "_start_trap";
/// They set the stack pointer for the first time.
const SETS_IT: [&str; 2] = ["_start", "_abs_start"];

fn contains(name: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| name.contains(pattern))
}

fn is_method(name: &str) -> bool {
    contains(name, &METHODS)
}

fn is_format(name: &str) -> bool {
    is_method(name) || contains(name, &FORMATS)
}

/// Functions, words of constants and symbols of an ELF file of 32 bits.
#[derive(Debug, Default)]
struct Image {
    symbols: BTreeMap<String, u32>,
    functions: BTreeMap<u32, String>,
    constants: BTreeMap<u32, u32>,
}

impl Image {
    fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = object::File::parse(&*bytes)?;
        if file.is_64() || !file.is_little_endian() {
            return Err(format!("{}: no ELF file of 32 bits, little-endian", path.display()).into());
        }
        let mut image = Self::default();
        for symbol in file.symbols() {
            let address = u32::try_from(symbol.address())?;
            let name = symbol.name()?.to_owned();
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() {
                image.functions.insert(address, name.clone());
            }
            image.symbols.entry(name).or_insert(address);
        }
        for name in ["_start", TRAP, "_default_start_trap"] {
            if let Some(address) = image.symbols.get(name) {
                image.functions.entry(*address).or_insert_with(|| name.to_owned());
            }
        }
        let constants = [SectionKind::Data, SectionKind::ReadOnlyData, SectionKind::ReadOnlyString];
        for section in file.sections().filter(|section| constants.contains(&section.kind())) {
            let address = u32::try_from(section.address())?;
            let words = section.data()?.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
            image.constants.extend((address..).step_by(4).zip(words));
        }
        Ok(image)
    }
}

/// An address, an operation and its operands.
#[derive(Debug, PartialEq, Eq)]
struct Instruction<'a> {
    pc: u32,
    operation: &'a str,
    operands: &'a str,
}

/// An instruction of a line of llvm-objdump's; other lines have none.
fn instruction(line: &str) -> Option<Instruction<'_>> {
    let (address, rest) = line.trim_start().split_once(':')?;
    let pc = u32::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let (operation, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let operands = operands.split('<').next().unwrap_or_default().trim().trim_end_matches(',');
    (!operation.is_empty()).then_some(Instruction { pc, operation, operands })
}

/// A number as the assembler writes it.
fn number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    Some(sign * value.ok()?)
}

/// `8(a0)` as the offset and the register; a register alone has no offset.
fn place(operand: &str) -> (Option<i64>, &str) {
    let in_brackets = operand.strip_suffix(')').and_then(|text| text.split_once('('));
    in_brackets.map_or((None, operand), |(offset, register)| (number(offset), register))
}

/// By function: its frame, the functions that it calls, whether it calls through registers; and all
/// addresses that are made.
#[derive(Debug, Default)]
struct Analysis {
    frames: BTreeMap<u32, u64>,
    calls: BTreeMap<u32, BTreeSet<u32>>,
    /// The first one's address.
    indirect: BTreeMap<u32, u32>,
    made: BTreeSet<u32>,
}

/// The known values of registers between two functions' starts.
#[derive(Default)]
struct Registers<'a> {
    /// The upper part of an address, from `auipc` or `lui`.
    upper: BTreeMap<&'a str, u32>,
    known: BTreeMap<&'a str, u32>,
    /// Entries of a table of constants: where the table is.
    tables: BTreeMap<&'a str, u32>,
}

impl<'a> Registers<'a> {
    fn forget(&mut self, register: &str) {
        self.upper.remove(register);
        self.known.remove(register);
        self.tables.remove(register);
    }

    fn set(&mut self, register: &'a str, value: u32) {
        self.known.insert(register, value);
    }
}

/// Whether the first operand is no register that is written.
fn writes_nothing(operation: &str) -> bool {
    matches!(operation, "sb" | "sh" | "sw")
        || operation.starts_with(['b', 'j'])
        || operation.starts_with("ret")
}

fn analyse<'a>(image: &Image, instructions: impl Iterator<Item = Instruction<'a>>) -> Result<Analysis> {
    let mut found = Analysis::default();
    let mut registers = Registers::default();
    let mut current = None;
    for Instruction { pc, operation, operands } in instructions {
        let Some((&function, name)) = image.functions.range(..=pc).next_back() else { continue };
        let end = image.functions.range(pc + 1..).next().map_or(u32::MAX, |(start, _)| *start);
        if current != Some(function) {
            current = Some(function);
            registers = Registers::default();
        }
        let frame = found.frames.entry(function).or_default();
        let calls = found.calls.entry(function).or_default();
        let parts: Vec<&str> = operands.split(',').map(str::trim).collect();
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let immediate = |index: usize| {
            number(part(index)).ok_or_else(|| format!("{name}: no number at {pc:#x}: {operation} {operands}"))
        };
        let mut target = None;

        match operation {
            "auipc" | "lui" => {
                let base = (immediate(1)? << 12) as u32;
                let value = if operation == "auipc" { base.wrapping_add(pc) } else { base };
                registers.upper.insert(part(0), value);
                registers.set(part(0), value);
            }
            "li" => registers.set(part(0), immediate(1)? as u32),
            // `mv` is the disassembler's way to write an `addi` of 0.
            "addi" | "mv" if registers.upper.contains_key(part(1)) => {
                let lower = if operation == "mv" { 0 } else { immediate(2)? as u32 };
                let value = registers.upper[part(1)].wrapping_add(lower);
                found.made.insert(value);
                registers.set(part(0), value);
                if part(0) != part(1) {
                    registers.upper.remove(part(0));
                }
            }
            _ if !writes_nothing(operation) => {
                // An entry of a table of constants: its address, then what stands there.
                let table = match operation {
                    "add" => parts.iter().skip(1).find_map(|part| registers.known.get(part).copied()),
                    // The offset makes up for cases that the table lacks: it belongs to the index.
                    "lw" => registers.tables.get(place(part(1)).1).copied(),
                    _ => None,
                };
                registers.forget(part(0));
                if let Some(table) = table {
                    registers.tables.insert(part(0), table);
                }
            }
            _ => {}
        }

        let of_the_stack = part(0) == "sp" && part(1) == "sp";
        match operation {
            "addi" | "c.addi16sp" if of_the_stack => *frame += u64::try_from(-immediate(2)?).unwrap_or(0),
            "sub" if of_the_stack => {
                let size = registers.known.get(part(2));
                *frame +=
                    u64::from(*size.ok_or_else(|| format!("{name}: a frame of unknown size at {pc:#x}"))?);
            }
            "addi" | "add" | "lui" | "auipc" | "sb" | "sh" | "sw" => {}
            _ if operation.starts_with("fs")
                || operation.starts_with("c.s")
                || operation.starts_with('b') => {}
            _ if part(0) == "sp" && !SETS_IT.contains(&&**name) => {
                return Err(
                    format!("{name}: {operation} {operands} at {pc:#x} changes the stack pointer").into()
                );
            }
            _ => {}
        }

        match operation {
            "jalr" | "jr" => {
                let (offset, register) = place(parts.last().copied().unwrap_or_default());
                let known =
                    registers.known.get(register).filter(|address| image.functions.contains_key(address));
                let branch = registers.tables.get(register).and_then(|table| image.constants.get(table));
                if let (Some(offset), Some(upper)) = (offset, registers.upper.get(register)) {
                    target = Some(upper.wrapping_add(offset as u32));
                } else if let (None, Some(address)) = (offset, known) {
                    target = Some(*address);
                } else if operation == "jr" && branch.is_some_and(|branch| (function..end).contains(branch)) {
                    // The branches of a `match`.
                } else {
                    found.indirect.entry(function).or_insert(pc);
                }
            }
            "jal" | "j" => {
                target = number(parts.last().copied().unwrap_or_default()).map(|address| address as u32);
            }
            _ if operation.starts_with('b') => {
                target = number(parts.last().copied().unwrap_or_default()).map(|address| address as u32);
            }
            _ => {}
        }
        calls.extend(target.filter(|target| !(function..end).contains(target)));
    }
    Ok(found)
}

/// Bytes of stack, and the calls that use them.
type Depth = (u64, Vec<u32>);

struct Search<'a> {
    image: &'a Image,
    analysis: &'a Analysis,
    writes: &'a BTreeSet<u32>,
    known: BTreeMap<(u32, usize), Depth>,
    path: Vec<(u32, usize)>,
}

impl Search<'_> {
    fn deepest(&mut self, function: u32, nesting: usize) -> Result<Depth> {
        let nesting = nesting + usize::from(self.writes.contains(&function));
        if nesting > NESTING {
            return Ok((0, Vec::new()));
        }
        let place = (function, nesting);
        if let Some(depth) = self.known.get(&place) {
            return Ok(depth.clone());
        }
        if let Some(start) = self.path.iter().position(|other| *other == place) {
            let cycle: Vec<&str> =
                self.path[start..].iter().map(|(address, _)| &*self.image.functions[address]).collect();
            return Err(format!("recursion: {}", cycle.join(" -> ")).into());
        }
        self.path.push(place);
        let mut below = Depth::default();
        for to in &self.analysis.calls[&function] {
            if self.analysis.calls.contains_key(to) {
                below = below.max(self.deepest(*to, nesting)?);
            }
        }
        self.path.pop();
        let (bytes, mut chain) = below;
        chain.insert(0, function);
        let depth = (self.analysis.frames[&function] + bytes, chain);
        self.known.insert(place, depth.clone());
        Ok(depth)
    }
}

/// The most stack that is used.
#[derive(Debug)]
struct Bound {
    from_the_start: Depth,
    in_a_trap: Depth,
}

fn bound(image: &Image, analysis: &mut Analysis) -> Result<Bound> {
    let name = |address: &u32| image.functions.get(address).map_or("", |name| name);
    let addresses: BTreeSet<u32> = image.constants.values().chain(&analysis.made).copied().collect();
    let taken: BTreeSet<u32> = addresses.into_iter().filter(|address| is_format(name(address))).collect();
    let methods: BTreeSet<u32> = taken.iter().filter(|address| is_method(name(address))).copied().collect();
    let writes: BTreeSet<u32> =
        analysis.calls.keys().filter(|address| name(address).contains(WRITE)).copied().collect();
    for (function, pc) in &analysis.indirect {
        if !is_format(name(function)) {
            return Err(format!("{}: a call through a register at {pc:#x}", name(function)).into());
        }
        let reached = if writes.contains(function) { &taken } else { &methods };
        analysis.calls.entry(*function).or_default().extend(reached);
    }
    let analysis = &*analysis;
    let mut search = Search { image, analysis, writes: &writes, known: BTreeMap::new(), path: Vec::new() };
    let mut from = |symbol: &str| -> Result<Depth> {
        let address = image.symbols.get(symbol).filter(|address| analysis.calls.contains_key(address));
        search.deepest(*address.ok_or_else(|| format!("no function {symbol}"))?, 0)
    };
    Ok(Bound { from_the_start: from("_start")?, in_a_trap: from(TRAP)? })
}

/// Prints the deepest calls of `image`, and fails if they take more than its linker script reserves
/// (`_stack_reserved`).
///
/// # Errors
/// The stack may not suffice; a frame's size cannot be told; a call, or a recursion, that the
/// assumptions do not allow.
pub fn stack(path: &Path) -> Result {
    let image = Image::read(path)?;
    let text = output(Command::new("llvm-objdump").args(["-d", "--no-show-raw-insn"]).arg(path))?;
    let mut analysis = analyse(&image, text.lines().filter_map(instruction))?;
    let bound = bound(&image, &mut analysis)?;
    for (what, (bytes, chain)) in [("from the start", &bound.from_the_start), ("in a trap", &bound.in_a_trap)]
    {
        println!("stack: {what}: {bytes} bytes");
        for function in chain.iter().filter(|function| analysis.frames[function] > 0) {
            println!("  {:6} {}", analysis.frames[function], image.functions[function]);
        }
    }
    let total = bound.from_the_start.0 + bound.in_a_trap.0;
    let reserved = *image.symbols.get("_stack_reserved").ok_or("no symbol _stack_reserved")?;
    if total == 0 {
        return Err("no function has a frame: is the disassembly another tool's?".into());
    }
    if total > u64::from(reserved) {
        return Err(format!("{total} bytes of stack, more than the {reserved} reserved").into());
    }
    println!("stack: {total} bytes at most, {reserved} reserved");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of functions at these addresses, and its analysis.
    fn analysed(functions: &[(u32, &str)], listing: &str) -> Result<(Image, Analysis)> {
        let mut image = Image::default();
        for (address, name) in functions {
            image.functions.insert(*address, (*name).to_owned());
            image.symbols.insert((*name).to_owned(), *address);
        }
        let analysis = analyse(&image, listing.lines().filter_map(instruction))?;
        Ok((image, analysis))
    }

    fn depths(functions: &[(u32, &str)], listing: &str) -> Result<[u64; 2]> {
        let (image, mut analysis) = analysed(functions, listing)?;
        let bound = bound(&image, &mut analysis)?;
        Ok([bound.from_the_start.0, bound.in_a_trap.0])
    }

    const TRAP_AT_80: (u32, &str) = (0x80, TRAP);

    #[test]
    fn lines_of_the_disassembler_are_read() {
        let line = "80000010:      \tjal\t0x80000040 <softcore::main>";
        assert_eq!(
            instruction(line),
            Some(Instruction { pc: 0x8000_0010, operation: "jal", operands: "0x80000040" })
        );
        assert_eq!(
            instruction("80000010: ret"),
            Some(Instruction { pc: 0x8000_0010, operation: "ret", operands: "" })
        );
        for line in
            ["", "80000010 <main>:", "image: file format elf32-littleriscv", "Disassembly of section .text:"]
        {
            assert_eq!(instruction(line), None, "{line}");
        }
    }

    #[test]
    fn frames_are_added_up_along_the_deepest_calls() {
        let functions = [(0, "_start"), (0x20, "shallow"), (0x40, "deep"), (0x60, "deeper"), TRAP_AT_80];
        let listing = "0: addi sp, sp, -16\n4: jal 0x20 <shallow>\n8: jal 0x40 <deep>\nc: addi sp, sp, 16\n\
            20: addi sp, sp, -100\n40: addi sp, sp, -64\n44: j 0x60\n60: addi sp, sp, -48\n80: addi sp, sp, -32\n";
        assert_eq!(depths(&functions, listing).unwrap(), [16 + 64 + 48, 32]);
    }

    #[test]
    fn a_frame_of_a_register_counts() {
        let listing = "0: lui a0, 0x10\n4: addi a0, a0, 16\n8: sub sp, sp, a0\n80: ret\n";
        assert_eq!(depths(&[(0, "_start"), TRAP_AT_80], listing).unwrap(), [0x1_0010, 0]);
        let unknown = "0: lw a0, 0(a1)\n4: sub sp, sp, a0\n";
        let error = depths(&[(0, "_start"), TRAP_AT_80], unknown).unwrap_err().to_string();
        assert!(error.contains("unknown size"), "{error}");
    }

    /// The lower part of the table's address may be 0, and its first entry may not be that of
    /// case 0.
    #[test]
    fn the_branches_of_a_match_are_no_calls() {
        let listing = "0: slli a2, a2, 2\n4: lui s1, 0x1\n8: mv s1, s1\nc: add a2, a2, s1\n10: lw a2, -8(a2)\n\
            14: li a1, 10\n18: jr a2\n80: ret\n";
        for (entry, is_branch) in [(0x1c, true), (0x84, false)] {
            let mut image = Image::default();
            for (address, name) in [(0, "_start"), TRAP_AT_80] {
                image.functions.insert(address, name.to_owned());
            }
            image.constants.insert(0x1000, entry);
            let analysis = analyse(&image, listing.lines().filter_map(instruction)).unwrap();
            assert_eq!(analysis.indirect, if is_branch { [].into() } else { BTreeMap::from([(0, 0x18)]) });
        }
    }

    #[test]
    fn a_far_call_is_followed() {
        let functions = [(0, "_start"), TRAP_AT_80, (0x1100, "far")];
        let listing = "0: auipc ra, 0x1\n4: jalr 256(ra)\n80: ret\n1100: addi sp, sp, -8\n";
        assert_eq!(depths(&functions, listing).unwrap(), [8, 0]);
    }

    #[test]
    fn unbounded_stacks_are_errors() {
        let functions = [(0, "_start"), (0x20, "a"), TRAP_AT_80];
        for (listing, expected) in [
            ("0: jal 0x20\n20: jal 0x0\n80: ret\n", "recursion: _start -> a"),
            ("0: jal 0x20\n20: jalr a0\n80: ret\n", "a: a call through a register"),
            ("0: jal 0x20\n20: mv sp, a0\n80: ret\n", "changes the stack pointer"),
            ("0: ret\n", "no function _start_trap"),
            ("", "no function _start"),
        ] {
            let error = depths(&functions, listing).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn formatting_may_call_any_method_and_nests_so_deep() {
        // `write` calls a formatting function, which calls `write`.
        let functions = [(0, "_start"), (0x20, "_ZN4core3fmt5write"), (0x40, "_ZN1a3fmt"), TRAP_AT_80];
        let listing = "0: lui a0, 0x0\n4: addi a0, a0, 64\n8: jal 0x20\n20: addi sp, sp, -100\n24: jalr a1\n\
            40: addi sp, sp, -10\n44: jal 0x20\n80: ret\n";
        assert_eq!(depths(&functions, listing).unwrap()[0], NESTING as u64 * 110);
    }
}
