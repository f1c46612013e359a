#!/usr/bin/env python3
"""Wrote the v1 golden files: a second implementation, from FORMAT.md alone, in exact arithmetic.

Usage: make_v1.py DIR. Golden files are never written again; a new version of the format adds new ones.
"""

import math
import struct
import sys
from fractions import Fraction
from pathlib import Path

CONSTANT = 0x6777


def bits(f):
    return struct.unpack("<I", struct.pack("<f", f))[0]


def encode(value, b, k, x):
    """Section 3: (tag, vector bytes)."""
    e = value >> 23 & 0xFF
    if e < 127 + x - b:
        return 0, b""
    if e >= 127 + x:
        return 3, struct.pack("<I", value)
    magnitude = Fraction(value & 0x7FFFFF | 1 << 23) * Fraction(2) ** (e - 150)
    if e < 127 + x - k:
        return 1, bytes([math.floor(magnitude * Fraction(2) ** (k + 7 - x)) | value >> 31 << 7])
    return 2, struct.pack("<H", math.floor(magnitude * Fraction(2) ** (15 - x)) | value >> 31 << 15)


def decode(tag, vector, k, x):
    if tag == 0:
        return 0
    if tag == 3:
        return struct.unpack("<I", vector)[0]
    q = int.from_bytes(vector, "little")
    top = 1 << (8 * len(vector) - 1)
    n = k + 7 if tag == 1 else 15
    magnitude = math.ldexp(q & (top - 1), x - n)
    return bits(-magnitude if q & top else magnitude)


def groups(values, params):
    """Section 4: (groups, decoded values)."""
    out, decoded = b"", []
    for at in range(0, len(values), 8):
        lanes = [encode(value, *params) for value in values[at : at + 8]]
        out += struct.pack("<H", sum(tag << 2 * i for i, (tag, _) in enumerate(lanes)))
        out += b"".join(vector for _, vector in lanes)
        decoded += [decode(tag, vector, params[1], params[2]) for tag, vector in lanes]
    return out, decoded


def pack(values):
    return b"".join(struct.pack("<I", value) for value in values)


def ones(data):
    total = sum(int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(tos, payload, *, v6=False, vlans=b"", seq=None, flags=0x10, options=b"", udp_sum=True, plus=0):
    """An Ethernet frame of host 1 to host 2; `plus` is added to the L4 checksum."""
    if seq is None:
        l4 = struct.pack(">HHHH", 40000, 5400, 8 + len(payload), 0) + payload
        protocol, at = 17, 6
    else:
        offset = (20 + len(options)) // 4 << 4
        l4 = struct.pack(">HHIIBBHHH", 40000, 5400, seq, 1, offset, flags, 256, 0, 0) + options + payload
        protocol, at = 6, 16
    if v6:
        addresses = bytes.fromhex("fd40" + "00" * 13 + "01" + "fd40" + "00" * 13 + "02")
        ip = struct.pack(">IHBB", 6 << 28 | tos << 20, len(l4), protocol, 64) + addresses
        link = b"\x86\xdd"
    else:
        addresses = bytes([10, 40, 0, 1, 10, 40, 0, 2])
        ip = struct.pack(">BBHHHBBH", 0x45, tos, 20 + len(l4), 7, 0x4000, 64, protocol, 0) + addresses
        ip = ip[:10] + struct.pack(">H", 0xFFFF ^ ones(ip)) + ip[12:]
        link = b"\x08\x00"
    if udp_sum:
        total = ones(addresses + struct.pack(">HH", protocol, len(l4)) + l4)
        field = ones(struct.pack(">HH", 0xFFFF ^ total, plus))
        if protocol == 17 and field == 0:
            field = 0xFFFF
        l4 = l4[:at] + struct.pack(">H", field) + l4[at + 2 :]
    return bytes.fromhex("020000000002020000000001") + vlans + link + ip + l4


def case(values, params, *, routed, head=b"", tail=b"", tos=0x28, udp_sum=True, **headers):
    """(host frame, wire frame, restored frame) for a payload of head, values and tail."""
    encoded, decoded = groups(values, params)
    payload = head + pack(values) + tail
    host = frame(tos, payload, udp_sum=udp_sum, **headers)
    restored = frame(tos, head + pack(decoded) + tail, udp_sum=udp_sum, **headers)
    body = head + encoded + tail
    if not routed:
        return host, host[: len(host) - len(payload)] + body, restored
    b, k, x = params
    segment = struct.pack(">BBBBHBb", 1, 1, tos & 0xFC | (not udp_sum), len(head), len(payload), b << 4 | k, x)
    wire = frame(0x30 | tos & 3, segment + body, plus=CONSTANT, **headers)
    return host, wire, restored


def spread(params):
    """Values at, below and above every border of the classes, and some within; both signs."""
    b, k, x = params
    values = [0, 1 << 31, 1, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF, bits(1.0), bits(-1.5)]
    for exponent in (127 + x - b, 127 + x - k, 127 + x):
        for near in (-1, 0, 1, 0x2AAAAA, 0x7FFFFF):
            value = (exponent << 23) + near
            values += [value, value | 1 << 31]
    state = 1
    for _ in range(150):
        state = state * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
        exponent = 127 + x - state % (b + 4)
        values.append((state >> 40 & 1) << 31 | exponent << 23 | state >> 41)
    return values


def main(folder):
    for name, params in {
        "dense_b10": (10, 3, 0),
        "paper_b10": (10, 5, 0),
        "dense_b6": (6, 0, 0),
        "paper_b14": (14, 7, 0),
        "dense_b10_up": (10, 3, 127),
        "dense_b10_down": (10, 3, -80),
        "between_b12": (12, 9, -7),
    }.items():
        values = spread(params)
        encoded, decoded = groups(values, params)
        header = struct.pack("<BBbxI", *params, len(values))
        (folder / f"v1_burst_{name}.bin").write_bytes(header + pack(values) + encoded + pack(decoded))

    default = (10, 3, 0)
    values = spread(default)
    stamps = bytes([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
    vlan = bytes.fromhex("88a80005" + "81000006")
    for name, frames in {
        "routed_tcp4": case(values, default, routed=True, seq=1000, options=stamps),
        "routed_tcp4_ecn": case(values, default, routed=True, tos=0x2A, seq=1000),
        "routed_tcp4_misaligned": case(values, default, routed=True, head=b"\1\2\3", tail=b"\4\5", seq=1001),
        "routed_tcp6_vlan": case(values, default, routed=True, v6=True, vlans=vlan, seq=1000),
        "routed_udp4": case(values, default, routed=True),
        "routed_udp4_no_checksum": case(values, default, routed=True, udp_sum=False),
        "in_place_tcp4": case(values, default, routed=False, seq=1000, options=stamps),
        "in_place_udp6": case(values, default, routed=False, v6=True, tail=b"\7"),
    }.items():
        data = b"".join(struct.pack(">H", len(item)) + item for item in frames)
        (folder / f"v1_frame_{name}.bin").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
