#!/usr/bin/env python3
"""Wrote `v1_examples.txt`, of which FORMAT.md section 8 has some: the second implementation of the files beside this one.

Usage: make_v1_examples.py > v1_examples.txt
"""

import struct

import make_v1
import make_v1_sections
from make_v1 import CONSTANT, bits, frame, groups, pack

DEFAULT = (10, 3, 0)
SMALL = [bits(f) for f in (0.0003, 0.004, -0.3, 1.5, 0.0, 0.0078125, -0.9999, -0.001)]
VLAN = bytes.fromhex("81000006")


def sections(values, y):
    """(sections, decoded values)."""
    coded = b"".join(make_v1_sections.section(values[at : at + 512], y) for at in range(0, len(values), 512))
    return coded, [make_v1_sections.decode_value(value, y) for value in values]


def bit_plane_case(values, y, *, head=b"", tail=b"", tos=0x28, **headers):
    """As make_v1.case, in routed framing and with codec 2."""
    coded, decoded = sections(values, y)
    payload = head + pack(values) + tail
    segment = struct.pack(">BBBBHBb", 1, 2, tos & 0xFC, len(head), len(payload), 0, y)
    wire = frame(0x30 | tos & 3, segment + head + coded + tail, plus=CONSTANT, **headers)
    return frame(tos, payload, **headers), wire, frame(tos, head + pack(decoded) + tail, **headers)


def show(label, data):
    """A label and bytes, 24 to a line."""
    lines = [data[at : at + 24].hex(" ", 2) for at in range(0, len(data), 24)]
    print(label.ljust(9) + ("\n" + " " * 9).join(lines))


def example(name, parameters, fields):
    print(f"```example {name}\n{parameters}")
    for label, data in fields.items():
        if isinstance(data, str):
            print(label.ljust(9) + data)
        else:
            show(label, data)
    print("```\n")


def frames(name, parameters, of_case):
    example(name, parameters, dict(zip(("host", "wire", "restored"), of_case)))


def burst(name, values, params):
    encoded, decoded = groups(values, params)
    vectors = [make_v1.encode(value, *params)[1].hex() for value in values]
    spaced = " ".join([encoded[:2].hex(), *(vector for vector in vectors if vector)])
    names = "b={} k={} x={}".format(*params)
    example(name, names, {"values": pack(values).hex(" ", 4), "coded": spaced, "decoded": pack(decoded).hex(" ", 4)})


def main():
    burst("burst", SMALL, DEFAULT)
    # A NaN, an infinity, a subnormal; the scale moves every class by three binades.
    burst("burst short", [0x7FC00001, 0xFF800000, 1, bits(0.1), bits(-0.01)], (6, 3, -3))
    coded, decoded = sections(SMALL, -10)
    words = pack(SMALL).hex(" ", 4), coded.hex(" ", 1), pack(decoded).hex(" ", 4)
    example("section", "y=-10", dict(zip(("values", "coded", "decoded"), words)))
    raw = [0, bits(0.004), 0, bits(-40.0), bits(1e-5), bits(-0.3)] + [0] * 14 + [bits(0.001)]
    coded, decoded = sections(raw, -10)
    example("section raw", "y=-10", {"values": pack(raw), "coded": coded, "decoded": pack(decoded)})

    case = make_v1.case
    misaligned = case(SMALL, DEFAULT, routed=True, head=b"\xaa", tail=b"\xbb\xcc", seq=1003)
    frames("routed", "b=10 k=3 x=0", misaligned)
    frames("routed codec 2", "y=-10", bit_plane_case(SMALL * 3, -10, seq=1000, v6=True, vlans=VLAN, tos=0x2A))
    frames("routed udp", "b=10 k=3 x=0", case(SMALL * 2, DEFAULT, routed=True, udp_sum=False))
    frames("in-place", "b=10 k=3 x=0", case(SMALL, DEFAULT, routed=False))
    frames("inceptionn", "b=10 k=5 x=0", case(SMALL * 2, (10, 5, 0), routed=False, seq=1000))

    wire = misaligned[1]
    payload_at = 14 + 20 + 20

    def marked(payload, plus=CONSTANT):
        return frame(0x30, payload, seq=1003, plus=plus)

    payload = wire[payload_at:]
    refused = {
        # The payload of the routed example, as a box would leave it that computes the checksum
        # anew.
        "recomputed": marked(payload, plus=0),
        # One bit of a group differs.
        "l4-checksum": wire[:-4] + bytes([wire[-4] ^ 1]) + wire[-3:],
        # Version 2.
        "segment-header": marked(b"\2" + payload[1:]),
        # The last lane's tag says 4 bytes instead of 1, so groups and tail go beyond the packet's
        # end.
        "groups": marked(payload[:10] + bytes([payload[10] | 0xC0]) + payload[11:]),
        # One byte behind the tail.
        "excess": marked(payload + b"\0"),
    }
    for reason, data in refused.items():
        example(f"dropped {reason}", "b=10 k=3 x=0", {"wire": data})


main()
