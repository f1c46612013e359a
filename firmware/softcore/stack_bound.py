#!/usr/bin/env python3
"""The most stack that the image can use: frames added up along the calls, from its disassembly alone.

  stack_bound.py IMAGE

What is assumed, and checked where it can be:
- A function's frame is the sum of all that it subtracts from the stack pointer.
- Only formatting (core::fmt and its implementations) calls through registers: `core::fmt::write` whatever formatting
  function's address stands in the image, all others the methods of what is written to.
- `core::fmt::write` nests at most NESTING deep, since no type that is formatted contains itself.
- No other recursion: a cycle is an error.
- On top comes one trap, which interrupts at the deepest point; traps do not nest.
Fails where that is more than the linker script reserves (`_stack_reserved`), or where a frame's size cannot be told.
"""
import re
import struct
import subprocess
import sys
from functools import cache

# A problem of the console that is a problem of the codec's parameters that is a number: write, and twice within.
NESTING = 4
WRITE = re.compile(r"core3fmt5write")
FORMATS = re.compile(r"3fmt|9write_str|10write_char|9write_fmt|5frame9write_end")
METHOD = re.compile(r"9write_str|10write_char|9write_fmt")
TRAP = "_start_trap"
# They set the stack pointer for the first time.
SETS_IT = ("_start", "_abs_start")


def fail(text):
    sys.exit(f"stack_bound: {text}")


class Image:
    """Functions, words of constants and symbols of an ELF file (32 bits, little-endian)."""

    def __init__(self, path):
        data = open(path, "rb").read()
        if data[:6] != b"\x7fELF\x01\x01":
            fail(f"{path}: no ELF file of 32 bits, little-endian")
        offset, = struct.unpack_from("<I", data, 32)
        size, count = struct.unpack_from("<HH", data, 46)
        sections = [struct.unpack_from("<10I", data, offset + size * i) for i in range(count)]
        self.symbols, self.functions, self.constants = {}, {}, {}
        for kind, flags, address, at, length, link in (section[1:7] for section in sections):
            if kind == 2:  # symbols
                names = sections[link][4]
                for place in range(at, at + length, 16):
                    name, value, _, info, _, _ = struct.unpack_from("<IIIBBH", data, place)
                    text = data[names + name:data.index(b"\0", names + name)].decode()
                    self.symbols.setdefault(text, value)
                    if info & 15 == 2:
                        self.functions[value] = text
            if kind == 1 and flags & 2 and not flags & 4:  # loaded, no code
                words = struct.unpack_from(f"<{length // 4}I", data, at)
                self.constants.update((address + 4 * place, word) for place, word in enumerate(words))
        for name in ("_start", TRAP, "_default_start_trap"):
            if name in self.symbols:
                self.functions.setdefault(self.symbols[name], name)


def disassemble(path):
    """Instructions: address, operation, operands."""
    text = subprocess.check_output(["llvm-objdump", "-d", "--no-show-raw-insn", path], text=True)
    for line in text.splitlines():
        if match := re.match(r"^([0-9a-f]+):\s+(\S+)\s*([^<]*)", line):
            yield int(match[1], 16), match[2], match[3].strip().rstrip(",")


def analyse(path, image):
    """By function: frame, functions called, whether calls go through a register; and all addresses that are made."""
    starts = sorted(image.functions)
    frames, calls, indirect, made = {}, {}, set(), set()
    upper, known, tables, function, end = {}, {}, {}, None, 0
    place = -1
    for pc, operation, operands in disassemble(path):
        while place + 1 < len(starts) and starts[place + 1] <= pc:
            place += 1
            function = starts[place]
            end = starts[place + 1] if place + 1 < len(starts) else 1 << 32
            frames[function], calls[function], upper, known, tables = 0, set(), {}, {}, {}
        if function is None:
            continue
        parts = [part.strip() for part in operands.split(",")]
        target = None
        if operation in ("auipc", "lui"):
            base = int(parts[1], 0) << 12
            upper[parts[0]] = (base + (pc if operation == "auipc" else 0)) & 0xFFFFFFFF
            known[parts[0]] = upper[parts[0]]
        elif operation == "li":
            known[parts[0]] = int(parts[1], 0) & 0xFFFFFFFF
        elif operation == "addi" and parts[1] in upper:
            made.add((upper[parts[1]] + int(parts[2], 0)) & 0xFFFFFFFF)
            known[parts[0]] = (upper[parts[1]] + int(parts[2], 0)) & 0xFFFFFFFF
            if parts[0] != parts[1]:
                upper.pop(parts[0], None)
        elif not re.match(r"s[bhw]$|b|j|ret", operation):
            # An entry of a table of constants: its address, then what stands there.
            table = None
            if operation == "add":
                table = next((known[part] for part in parts[1:] if part in known), None)
            elif operation == "lw" and (match := re.match(r"0\((\w+)\)", parts[1])):
                table = tables.get(match[1])
            for registers in (upper, known, tables):
                registers.pop(parts[0], None)
            if table is not None:
                tables[parts[0]] = table
        if operation in ("addi", "c.addi16sp") and parts[:2] == ["sp", "sp"]:
            frames[function] += max(0, -int(parts[2], 0))
        elif operation == "sub" and parts[:2] == ["sp", "sp"]:
            if parts[2] not in known:
                fail(f"{image.functions[function]}: a frame of unknown size at {pc:#x}")
            frames[function] += known[parts[2]]
        elif parts[0] == "sp" and image.functions[function] not in SETS_IT and operation not in ("addi", "add") and not re.match(r"s[bhw]$|fs|c\.s|b|lui|auipc", operation):
            fail(f"{image.functions[function]}: {operation} {operands} at {pc:#x} changes the stack pointer")
        if operation in ("jal", "j") or operation.startswith("b"):
            if match := re.search(r"0x([0-9a-f]+)$", operands):
                target = int(match[1], 16)
        elif operation in ("jalr", "jr"):
            match = re.match(r"(?:(-?\d+)\()?(\w+)\)?$", parts[-1])
            if match[2] in upper and match[1] is not None:
                target = (upper[match[2]] + int(match[1])) & 0xFFFFFFFF
            elif match[1] is None and known.get(match[2]) in image.functions:
                target = known[match[2]]
            elif operation == "jr" and function <= image.constants.get(tables.get(match[2]), 0) < end:
                pass  # the branches of a `match`
            else:
                indirect.add(function)
        if target is not None and not function <= target < end:
            calls[function].add(target)
    return frames, calls, indirect, made


def main(path):
    image = Image(path)
    frames, calls, indirect, made = analyse(path, image)
    names = image.functions
    taken = {address for address in set(image.constants.values()) | made if FORMATS.search(names.get(address, ""))}

    methods = {function for function in taken if METHOD.search(names[function])}
    writes = {function for function in calls if WRITE.search(names[function])}
    for function in indirect:
        if not FORMATS.search(names[function]):
            fail(f"{names[function]}: a call through a register")
        calls[function] |= taken if function in writes else methods

    path_to = []

    @cache
    def deepest(function, nesting):
        """Bytes, and the calls that use them."""
        nesting += function in writes
        if nesting > NESTING:
            return 0, ()
        if (function, nesting) in path_to:
            cycle = [names[f] for f, _ in path_to[path_to.index((function, nesting)):]]
            fail("recursion: " + " -> ".join(cycle))
        path_to.append((function, nesting))
        below = max((deepest(to, nesting) for to in calls[function] if to in calls), default=(0, ()))
        path_to.pop()
        return frames[function] + below[0], (function, *below[1])

    def report(what, bytes_, chain):
        print(f"stack_bound: {what}: {bytes_} bytes")
        for function in chain:
            if frames[function]:
                print(f"  {frames[function]:6} {names[function]}")

    sys.setrecursionlimit(10_000)
    start, trap = image.symbols["_start"], image.symbols[TRAP]
    for address in (start, trap):
        if address not in calls:
            fail(f"no function at {address:#x}")
    deep, chain = deepest(start, 0)
    trapped, trap_chain = deepest(trap, 0)
    report("from the start", deep, chain)
    report("in a trap", trapped, trap_chain)
    total, reserved = deep + trapped, image.symbols["_stack_reserved"]
    if total > reserved:
        fail(f"{total} bytes, more than the {reserved} reserved")
    print(f"stack_bound: {total} bytes at most, {reserved} reserved")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
