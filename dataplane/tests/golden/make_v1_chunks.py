#!/usr/bin/env python3
"""Wrote the golden files and examples of aggregation: a second implementation, from docs/aggregation-protocol.md and sections 3 and 4 of
FORMAT.md alone.

Usage: make_v1_chunks.py DIR writes the files, make_v1_chunks.py > v1_packets.txt the examples. Golden files are never written again.

A file of codec 2: y, workers, values (2 bytes, big-endian); for each worker its values and its packet; the result's packet; what
each worker gets. Packets stand behind their length in two bytes. A file of codec 1 has b and k, 4 bits each, before x, which stands
in the place of y.
"""

import math
import struct
import sys
from fractions import Fraction
from pathlib import Path

from make_v1 import groups
from make_v1_sections import BIN, RAW, ZERO, decode_value, random, section, section_of

JOB, EPOCH, KEY = 0x0102, 0xFFFFFFFF, 0x1122334455667788
COOKIE = bytes.fromhex("c0ffee010203")
NOT_A_NUMBER = -(2**31)


def fraction(value):
    """A finite binary32, exactly."""
    return Fraction(struct.unpack("<f", struct.pack("<I", value))[0])


def is_finite(value):
    return value >> 23 & 0xFF != 255


class BitPlane:
    """Codec 2."""

    def __init__(self, y):
        self.unit, self.bytes = y, struct.pack(">Bb", 0, y)

    def code(self, block):
        return section(block, self.unit)

    def restored(self, value):
        return decode_value(value, self.unit)

    def result(self, sums):
        """The code of a block's sums, and their values."""
        return sums_section(sums), [nearest(q, self.unit) for q in sums]


class SizeClass:
    """Codec 1."""

    def __init__(self, b, k, x):
        self.params, self.unit, self.bytes = (b, k, x), x - 15, struct.pack(">Bb", b << 4 | k, x)

    def code(self, block):
        return groups(block, self.params)[0]

    def restored(self, value):
        return groups([value], self.params)[1][0]

    def result(self, sums):
        return groups([nearest(q, self.unit) for q in sums], self.params)


def units(value, codec):
    """What a value counts; Python rounds fractions to the even one of two integers."""
    return round(fraction(codec.restored(value)) / Fraction(2) ** codec.unit)


def sums_section(sums):
    def item(q):
        if q == 0:
            return ZERO, 0, 0, 0
        if q == NOT_A_NUMBER or abs(q) > 2**13:
            return RAW, 0, 0, q & 0xFFFFFFFF
        return BIN, int(q < 0), abs(q) - 1, 0

    return section_of([item(q) for q in sums])


def nearest(q, y):
    """The nearest binary32 to q units: a double holds q exactly, and scaling it is exact."""
    if q == NOT_A_NUMBER:
        return 0x7FC00000
    return struct.unpack("<I", struct.pack("<f", math.ldexp(q, y)))[0]


def header(kind, seq, worker, workers, part=(0, 0, 0, bytes(2))):
    values, blocks, peak, profile = part
    fields = struct.pack(">BBHIIBBHBB", 1, kind, JOB, EPOCH, seq, worker, workers, values, blocks, peak)
    return fields + profile


def with_cookie(packet):
    return packet[:14] + COOKIE + packet[20:]


def blocks_of(values):
    return [values[at : at + 128] for at in range(0, len(values), 128)]


def part(values, peak, codec):
    return len(values), len(blocks_of(values)) - 1, peak, codec.bytes


def peak_of(values):
    return max((value >> 23 & 0xFF for value in values if is_finite(value)), default=0)


def exchange(inputs, codec, seq):
    """Contributions, result, output and integers of one chunk."""
    contributions = []
    for worker, values in enumerate(inputs):
        sections = b"".join(map(codec.code, blocks_of(values)))
        contributions.append(header(1, seq, worker, 1, part(values, peak_of(values), codec)) + sections)
    sums = [sum(units(value, codec) for value in lane) if all(map(is_finite, lane)) else NOT_A_NUMBER for lane in zip(*inputs)]
    results = [codec.result(block) for block in blocks_of(sums)]
    result = header(2, seq, 0xFF, len(inputs), part(sums, max(map(peak_of, inputs)), codec))
    result += b"".join(code for code, _ in results)
    return contributions, result, [value for _, values in results for value in values], sums


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def cases():
    """Name, codec, values of each worker."""
    numbers = random(18)

    def values(count, zeros, exponents):
        def one():
            exponent = exponents[0] + next(numbers) % (exponents[1] - exponents[0])
            value = (next(numbers) & 1) << 31 | exponent << 23 | next(numbers) & 0x7FFFFF
            return 0 if next(numbers) % 100 < zeros else value

        return [one() for _ in range(count)]

    yield "sparse", BitPlane(-10), [values(300, 80, (112, 126)) for _ in range(3)]
    yield "dense", BitPlane(-10), [values(128, 5, (116, 127)) for _ in range(4)]
    yield "raw", BitPlane(-10), [values(40, 50, (117, 137)) for _ in range(5)]
    yield "short", BitPlane(-20), [values(1, 0, (110, 120)) for _ in range(2)]
    special = [values(20, 10, (115, 127)) for _ in range(2)]
    special[0][3], special[1][3], special[0][4], special[1][5] = 0x7F800001, bits(1.0), bits(-float("inf")), bits(float("inf"))
    yield "not_a_number", BitPlane(-10), special
    yield "alone", BitPlane(0), [values(129, 30, (126, 145))]

    # The same kinds with codec 1: no file above changes, as its numbers are drawn before.
    yield "sparse", SizeClass(10, 3, 0), [values(300, 80, (112, 126)) for _ in range(3)]
    yield "dense", SizeClass(10, 5, -3), [values(128, 5, (116, 125)) for _ in range(4)]
    yield "raw", SizeClass(14, 8, 0), [values(40, 50, (112, 139)) for _ in range(5)]
    yield "short", SizeClass(6, 0, -9), [values(1, 0, (110, 120)) for _ in range(2)]
    yield "not_a_number", SizeClass(10, 3, 0), special
    yield "alone", SizeClass(8, 1, 10), [values(129, 30, (126, 145))]


def le(values):
    return b"".join(struct.pack("<I", value) for value in values)


def write_files(folder):
    for name, codec, inputs in cases():
        contributions, result, output, _ = exchange(inputs, codec, 0)
        number, profile = ("", codec.bytes[1:]) if isinstance(codec, BitPlane) else ("1", codec.bytes)
        out = profile + struct.pack(">BH", len(inputs), len(output))
        for values, packet in zip(inputs, contributions):
            out += le(values) + struct.pack(">H", len(packet)) + packet
        out += struct.pack(">H", len(result)) + result + le(output)
        (folder / f"v1_chunks{number}_{name}.bin").write_bytes(out)


def examples():
    inputs = [[bits(v) for v in (0.1, -0.004, 0.0, 20.0)], [bits(v) for v in (-0.1, 0.25, 0.0, 1.5)]]
    codec = BitPlane(-10)
    contributions, result, output, _ = exchange(inputs, codec, 5)
    agreed = struct.pack(">BBH", 16, 16, 1500)
    key = struct.pack(">Q", KEY)
    yield "hello", header(3, 0, 1, 2) + agreed + bytes([2, 0, 0, 0]) + key
    yield "hello", header(3, 0, 0, 3) + agreed + bytes([9, 1, 0, 0]) + key
    yield "welcome", header(4, 0, 0xFF, 0) + agreed + bytes([239, 1, 2, 3]) + key
    yield "contribute", contributions[0]
    yield "contribute", contributions[1]
    yield "result", result
    yield "query", header(7, 5, 1, 0)
    yield "query", header(7, 5, 1, 1)
    yield "waiting", header(5, 5, 0xFF, 0) + struct.pack(">Q", 0b01)
    yield "missing", header(8, 5, 0xFF, 0) + struct.pack(">H", 0b101)
    yield "refuse", header(6, 5, 0xFF, 0) + bytes([3, 0, 0, 0]) + struct.pack(">I", 7)
    yield "partial", header(9, 5, 0, 2, part(output, 131, codec)) + result[20:]
    yield "rescale", header(10, 5, 0xFF, 0, (0, 0, 226, bytes(2)))
    codec = SizeClass(10, 3, 0)
    contributions, result, output_1, sums = exchange(inputs, codec, 5)
    yield "contribute", contributions[0]
    yield "contribute", contributions[1]
    yield "result", result
    yield "partial", header(9, 5, 0, 2, part(sums, 131, codec)) + sums_section(sums)
    yield "welcome", with_cookie(header(4, 0, 0xFF, 0) + agreed + bytes(4) + key)
    yield "hello", with_cookie(header(3, 0, 1, 2) + agreed + bytes([2, 0, 0, 0]) + key)
    yield "values", le(inputs[0])
    yield "values", le(inputs[1])
    yield "sums", le(output)
    yield "sums", le(output_1)


def main():
    if len(sys.argv) > 1:
        write_files(Path(sys.argv[1]))
        return
    print("```packets")
    for name, data in examples():
        words = [data[at : at + 2].hex() for at in range(0, len(data), 2)]
        lines = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
        for number, line in enumerate(lines):
            print(f"{name if number == 0 else '':<11}{line}")
    print("```")


if __name__ == "__main__":
    main()
