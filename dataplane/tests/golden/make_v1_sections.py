#!/usr/bin/env python3
"""Wrote the golden files of codec 2: a second implementation, from FORMAT.md alone, in exact arithmetic.

Usage: make_v1_sections.py DIR. Golden files are never written again; a new version of the format adds new ones.
"""

import math
import struct
import sys
from fractions import Fraction
from pathlib import Path

ZERO, BIN, RAW = range(3)


def encode_value(value, y):
    """(class, sign, index) of a value."""
    e, sign = value >> 23 & 0xFF, value >> 31
    if e < 127 + y:
        return ZERO, 0, 0
    if e >= 141 + y:
        return RAW, 0, 0
    magnitude = Fraction(value & 0x7FFFFF | 1 << 23) * Fraction(2) ** (e - 150)
    return BIN, sign, math.floor(magnitude / Fraction(2) ** (y + 1))


def decode_value(value, y):
    kind, sign, index = encode_value(value, y)
    if kind == ZERO:
        return 0
    if kind == RAW:
        return value
    magnitude = math.ldexp(2 * index + 1, y)
    return struct.unpack("<I", struct.pack("<f", -magnitude if sign else magnitude))[0]


def bit_bytes(bits):
    """Bit i of the byte string is bits[i]."""
    return bytes(sum(bit << i for i, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))


def section(values, y):
    return section_of([(*encode_value(value, y), value) for value in values])


def section_of(coded):
    """The section of items: class, sign, index, four bytes if raw."""
    there = [int(kind != ZERO) for kind, *_ in coded]
    octets = bit_bytes(there)
    present = [int(octet != 0) for octet in octets]
    if not any(there):
        return b"\0"
    dense = all(kind != RAW for kind, *_ in coded) and 16 * sum(there) >= 13 * len(coded)
    items = coded if dense else [one for one in coded if one[0] != ZERO]
    if dense:
        out = b"\3"
    elif math.ceil(len(octets) / 8) + sum(present) < len(octets):
        out = b"\1" + bit_bytes(present) + bytes(octet for octet in octets if octet)
    else:
        out = b"\2" + octets
    groups = [items[at : at + 8] for at in range(0, len(items), 8)]
    planes = [[index + dense if kind == BIN else 0 for kind, _, index, _ in group] for group in groups]
    widths = [max(p).bit_length() for p in planes]
    raw = [[int(kind == RAW) for kind, *_ in group] for group in groups]
    codes = [15 if any(which) else width for which, width in zip(raw, widths)]
    out += b"".join(bit_bytes([sign for _, sign, _, _ in group]) for group in groups)
    nibbles = codes + [0] * (len(codes) % 2)
    out += bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2]))
    for group, p, width, which, code in zip(groups, planes, widths, raw, codes):
        if code == 15:
            out += bit_bytes(which) + bytes([width])
        out += b"".join(bit_bytes([value >> plane & 1 for value in p]) for plane in range(width))
        out += b"".join(struct.pack("<I", value) for kind, _, _, value in group if kind == RAW)
    return out


def random(state):
    while True:
        state = state * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
        yield state >> 20


def cases():
    """Name, y, values: every mode, every width, raw values, short sections and groups, borders."""
    numbers = random(7)

    def value(y, low, high):
        """A value whose exponent lies so many binades above the bound."""
        number = next(numbers)
        return (number & 1) << 31 | (127 + y + low + number // 2 % (high - low)) << 23 | number >> 8 & 0x7FFFFF

    for name, y in {"y_10": -10, "least": -94, "most": 111}.items():
        borders = [0, 1 << 31, 1, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF]
        for exponent in range(126 + y, 143 + y):
            borders += [(exponent << 23) + near for near in (-1, 0, 1, 0x400000, 0x7FFFFF)]
        yield f"borders_{name}", y, borders + [value | 1 << 31 for value in borders]
    sparse = [0] * 1200
    for place in (3, 64, 65, 511, 512, 900):
        sparse[place] = value(-10, 0, 14)
    yield "two_level", -10, sparse
    yield "flat", -10, [value(-10, -6, 9) for _ in range(700)]
    yield "dense", -10, [value(-10, -1, 6) for _ in range(1037)]
    yield "raw", -10, [value(-10, -3, 18) for _ in range(530)]
    yield "zeros", -10, [0] * 1030
    for count in (1, 7, 8, 9, 17):
        yield f"short_{count}", -10, [value(-10, 0, 3) for _ in range(count)]


def pack(words):
    return b"".join(struct.pack("<I", word) for word in words)


def main(folder):
    for name, y, values in cases():
        sections = b"".join(section(values[at : at + 512], y) for at in range(0, len(values), 512))
        decoded = [decode_value(value, y) for value in values]
        header = struct.pack("<bxxxI", y, len(values))
        (folder / f"v1_sections_{name}.bin").write_bytes(header + pack(values) + sections + pack(decoded))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
