#!/usr/bin/env python3
"""Wrote v1.txt and the v1-*.txt beside it: a second implementation of the host codecs, from docs/host-format.md alone, value by value.

Usage: make_v1.py > v1.txt; make_v1.py q4 > v1-q4.txt; make_v1.py largest > v1-largest.txt; and so on.
A golden file is never written again; a new version of the format, and a new codec, add a new one.

An operation on two f32 is done in f64 and rounded to f32, which is the same as done in f32 at once.
"""

import math
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "dataplane/tests/golden"))
from make_v1_sections import decode_value, section

NAN = float("nan")
NAN_BYTES = bytes.fromhex("0000c07f")


def f32(x):
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def unbits(x):
    return struct.unpack("<f", struct.pack("<I", x))[0]


def raw(x):
    return NAN_BYTES if math.isnan(x) else struct.pack("<f", x)


def add(a, b):
    return f32(a + b)


def mul(a, b):
    return f32(a * b)


def div(a, b):
    return f32(a / b)


def lost(value, sent):
    rest = value - sent if math.isfinite(value) and math.isfinite(sent) else NAN
    return f32(rest) if math.isfinite(rest) else 0.0


def packed(codes, width):
    number = sum(code << i * width for i, code in enumerate(codes))
    return number.to_bytes((len(codes) * width + 7) // 8, "little")


def blocks(values, block):
    block = block or max(len(values), 1)
    return [values[at : at + block] for at in range(0, len(values), block)]


def peak(values):
    return max(map(abs, values), default=0.0) if all(map(math.isfinite, values)) else NAN


def total(values):
    """Section 2.3."""
    sums = 0.0
    for at in range(0, len(values), 1024):
        lanes = [0.0] * 16
        for i, value in enumerate(values[at : at + 1024]):
            lanes[i % 16] = add(lanes[i % 16], value)
        result = lanes[0]
        for lane in lanes[1:]:
            result = add(result, lane)
        sums += result
    return sums


class Random:
    """Section 2.4."""

    def __init__(self, seed):
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
        self.low, self.high = z % 2**32, z >> 32

    def bits(self, index):
        x = (index * 0x9E3779B1 + self.low) % 2**32
        x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
        x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
        return x ^ x >> 16 ^ self.high

    def unit(self, index):
        return (self.bits(index) >> 8) / 2**24


# Each codec: (acc, state, seed) -> (message, sent values). What was lost is computed from these by
# `lost`.


def plain(acc, state, seed):
    return b"".join(struct.pack("<f", value) for value in acc), acc


def half(acc, state, seed):
    def one(value):
        if math.isnan(value):
            return struct.pack("<H", 0x7E00 | bits(value) >> 31 << 15), NAN
        if math.isinf(value):
            return struct.pack("<e", value), value
        value = max(-65504.0, min(65504.0, value))
        code = struct.pack("<e", value)
        return code, struct.unpack("<e", code)[0]

    coded = [one(value) for value in acc]
    return b"".join(code for code, _ in coded), [sent for _, sent in coded]


def truncation(drop):
    def one(value):
        sign, magnitude = bits(value) >> 31, bits(value) & 0x7FFFFFFF
        width = 31 - drop
        infinity = 0x7F800000 >> drop
        if math.isnan(value):
            code = (1 << width) - 1
        elif math.isinf(value):
            code = infinity
        else:
            code = min(magnitude >> drop, infinity - 1)
        sent = unbits(sign << 31 | code << drop) if code != (1 << width) - 1 else NAN
        return sign << width | code, sent

    def encode(acc, state, seed):
        coded = [one(value) for value in acc]
        return packed([code for code, _ in coded], 32 - drop), [sent for _, sent in coded]

    return encode


def scaled(values, most):
    scale = 0.0 if peak(values) < 2.0**-100 else div(peak(values), most)
    if math.isinf(mul(scale, most)):
        scale = unbits(bits(scale) - 1)
    inverse = div(1.0, scale) if scale > 0 else 0.0
    return scale, [0 if math.isnan(scale) else round(mul(value, inverse)) for value in values]


def eight_bits(block):
    def encode(acc, state, seed):
        message, sent = b"", []
        for values in blocks(acc, block):
            scale, codes = scaled(values, 127.0)
            message += raw(scale) + bytes(code % 256 for code in codes)
            sent += [mul(code, scale) for code in codes]
        return message, sent

    return encode


def four_bits(block):
    def encode(acc, state, seed):
        message, sent = b"", []
        for values in blocks(acc, block):
            scale, codes = scaled(values, 7.0)
            half = (len(codes) + 1) // 2
            pairs = [(codes[i], codes[i + half] if i + half < len(codes) else 0) for i in range(half)]
            message += raw(scale) + bytes(low % 16 + high % 16 * 16 for low, high in pairs)
            sent += [mul(code, scale) for code in codes]
        return message, sent

    return encode


def by_fives(digits):
    stream = b""
    for at in range(0, len(digits), 320):
        group = digits[at : at + 320]
        plane = -(-len(group) // 5)
        group += [0] * (5 * plane - len(group))
        for i in range(plane):
            byte = 0
            for k in range(5):
                byte = 3 * byte + group[k * plane + i] + 1
            stream += bytes([byte])
    return stream


def three_lc(multiplier, block):
    def encode(acc, state, seed):
        message, digits, sent = b"", [], []
        for values in blocks(acc, block):
            scale = mul(f32(multiplier), peak(values))
            scale = min(scale, unbits(0x7F7FFFFF)) if not math.isnan(scale) else NAN
            message += raw(scale)
            for value in values:
                reaches = not math.isnan(scale) and scale > 0 and abs(value) >= scale / 2
                digit = int(math.copysign(1, value)) if reaches else 0
                digits.append(digit)
                sent.append(mul(digit, scale))
        coded, run = b"", 0
        stream = by_fives(digits)
        while stream:
            run = 0
            while run < 14 and stream[run : run + 1] == b"\x79":
                run += 1
            coded += bytes([241 + run]) if run >= 2 else stream[:1]
            stream = stream[max(run, 1) :]
        return message + struct.pack("<I", len(coded)) + coded, sent

    return encode


def ternary(block):
    def encode(acc, state, seed):
        random, message, digits, sent = Random(seed), b"", [], []
        for values in blocks(acc, block):
            scale = peak(values)
            message += raw(scale)
            for value in values:
                digit = int(math.copysign(1, value)) if abs(value) > mul(scale, random.unit(len(digits))) else 0
                digits.append(digit)
                sent.append(mul(digit, scale))
        return message + by_fives(digits), sent

    return encode


def one_bit(block):
    def encode(acc, state, seed):
        message, sent = b"", []
        for values in blocks(acc, block):
            positive = [value >= 0 for value in values]
            count = sum(positive)
            high = f32(total([value if yes else 0.0 for value, yes in zip(values, positive)]) / max(count, 1))
            low = f32(total([0.0 if yes else value for value, yes in zip(values, positive)]) / max(len(values) - count, 1))
            message += raw(low) + raw(high) + packed(list(map(int, positive)), 1)
            sent += [high if yes else low for yes in positive]
        return message, sent

    return encode


def threshold(t):
    t = f32(t)

    def encode(acc, state, seed):
        codes = [3 if not math.isfinite(value) else 1 if value >= t else 2 if value <= -t else 0 for value in acc]
        return packed(codes, 2), [(0.0, t, -t, NAN)[code] for code in codes]

    return encode


def terngrad(width):
    def encode(acc, state, seed):
        random, steps = Random(seed), 2**width - 1
        if math.isnan(peak(acc)):
            return NAN_BYTES + raw(0.0) + packed([0] * len(acc), width), [NAN] * len(acc)
        low, high = min(acc, default=0.0), max(acc, default=0.0)
        gap = add(div(high, steps), -div(low, steps))
        inverse = div(1.0, gap) if gap >= 2.0**-126 else 0.0
        codes = [min(steps, math.floor(add(mul(add(value, -low), inverse), random.unit(i)))) for i, value in enumerate(acc)]
        return raw(low) + raw(gap) + packed(codes, width), [add(low, mul(code, gap)) for code in codes]

    return encode


def sparse(acc, chosen, most):
    chosen = chosen[:most]
    width = max(len(acc) - 1, 0).bit_length()
    message = struct.pack("<I", len(chosen)) + packed(chosen, width) + b"".join(raw(acc[i]) for i in chosen)
    return message, [acc[i] if i in set(chosen) else 0.0 for i in range(len(acc))]


def key(value):
    return bits(value) & 0x7FFFFFFF


def share(n, percent):
    return min(n, math.ceil(n * percent / 100.0))


def dgc(percent):
    def encode(acc, state, seed):
        most = share(len(acc), percent)
        if math.isnan(peak(acc)):
            return sparse(acc, [i for i, value in enumerate(acc) if not math.isfinite(value)], most)
        order = sorted(range(len(acc)), key=lambda i: (-key(acc[i]), i))
        return sparse(acc, sorted(i for i in order[:most] if key(acc[i]) > 0), most)

    return encode


def grad_drop(percent):
    def encode(acc, state, seed):
        random, n = Random(seed), len(acc)
        sample = acc if n <= 1024 else [acc[random.bits(i) * n >> 32] for i in range(1024)]
        kept, most = share(len(sample), 100.0 - percent), min(n, 2 * share(n, 100.0 - percent))
        least = max(sorted(map(key, sample), reverse=True)[kept - 1], 1) if n else 1
        if math.isnan(peak(acc)):
            least = 0x7F800000
        return sparse(acc, [i for i, value in enumerate(acc) if key(value) >= least], most)

    return encode


def dot(a, b):
    lanes = [0.0] * 16
    for i, (x, y) in enumerate(zip(a, b)):
        lanes[i % 16] = add(lanes[i % 16], mul(x, y))
    result = 0.0
    for lane in lanes:
        result = add(result, lane)
    return result


def dot64(a, b):
    lanes = [0.0] * 8
    for i, (x, y) in enumerate(zip(a, b)):
        lanes[i % 8] += x * y
    result = 0.0
    for lane in lanes:
        result += lane
    return result


def low_rank(rank, cols):
    def encode(acc, state, seed):
        n, bad = len(acc), math.isnan(peak(acc))
        width = max(min(cols, n) if cols else math.isqrt(n - 1) + 1 if n else 0, 1)
        rows = -(-n // width)
        r = min(rank, rows, width)
        q = state.get("q") or [[0.0] * width for _ in range(r)]
        for k in range(r):
            exponent = max(key(value) >> 23 for value in q[k])
            for i in range(width):
                mixed = (k * width + i) * 0x9E3779B1 % 2**32 ^ 0x85EBCA6B
                mixed = (mixed ^ mixed >> 15) * 0xC2B2AE35 % 2**32
                any_number = (mixed >> 8) / 2**23 - 1
                q[k][i] = any_number if exponent == 0 else mul(q[k][i], 2.0 ** (127 - exponent))
        m = [acc[at : at + width] for at in range(0, n, width)]
        p = [[dot(row, q[k]) for row in m] for k in range(r)]
        for k in range(r):
            length = dot64(p[k], p[k])
            for done in p[:k]:
                along = dot64(done, p[k])
                p[k] = [f32(x - along * d) for x, d in zip(p[k], done)]
            rest = dot64(p[k], p[k])
            scale = 1.0 / math.sqrt(rest) if rest > length * 1e-10 else 0.0
            p[k] = [f32(x * scale) for x in p[k]]
        left, sent = eight_bits(256)(sum(p, []), None, 0)
        p = [sent[k * rows : (k + 1) * rows] for k in range(r)]
        q = [[0.0] * width for _ in range(r)]
        for i, row in enumerate(m):
            for k in range(r):
                for c, value in enumerate(row):
                    q[k][c] = add(q[k][c], mul(p[k][i], value))
        if bad:
            q = [[NAN] * width for _ in range(r)]
        right, sent = eight_bits(256)(sum(q, []), None, 0)
        q = [sent[k * width : (k + 1) * width] for k in range(r)]
        state["q"] = None if bad else q
        values = []
        for i in range(n):
            value = 0.0
            for k in range(r):
                value = add(value, mul(p[k][i // width], q[k][i % width]))
            values.append(value)
        return left + right, values

    return encode


def bounded(b):
    def encode(acc, state, seed):
        exponent = max((key(value) >> 23 for value in acc if math.isfinite(value)), default=0)
        y = max(-94, min(111, exponent - 127 - b))
        message, sent = struct.pack("<b", y), []
        for at in range(0, len(acc), 512):
            values = [bits(value) for value in acc[at : at + 512]]
            message += section(values, y)
            sent += [unbits(decode_value(value, y)) for value in values]
        return message, sent

    return encode


CODECS = {
    "f32": plain,
    "f16": half,
    "trunc:16": truncation(16),
    "trunc:22": truncation(22),
    "trunc:24": truncation(24),
    "q8": eight_bits(None),
    "q8:256": eight_bits(256),
    "3lc:1": three_lc(1.0, None),
    "3lc:1.75:100": three_lc(1.75, 100),
    "onebit": one_bit(None),
    "onebit:100": one_bit(100),
    "tbq:0.25": threshold(0.25),
    "terngrad": terngrad(2),
    "terngrad:4": terngrad(4),
    "terngrad:8": terngrad(8),
    "dgc:5": dgc(5.0),
    "graddrop:99": grad_drop(99.0),
    "low-rank:2": low_rank(2, None),
    "low-rank:4:50": low_rank(4, 50),
    "bounded:6": bounded(6),
}
Q4 = {
    "q4": four_bits(None),
    "q4:1": four_bits(1),
    "q4:7": four_bits(7),
    "q4:256": four_bits(256),
}
TERNARY = {
    "ternary": ternary(None),
    "ternary:100": ternary(100),
}


def tensors():
    random = Random(2024)

    def spread(n, start):
        return [f32((random.unit(start + 2 * i) - 0.5) * 2.0 ** -(random.bits(start + 2 * i + 1) % 12)) for i in range(n)]

    yield "empty", []
    yield "one", [f32(-0.3)]
    yield "short", spread(77, 1000)
    yield "sparse", [value if random.bits(9000 + i) % 9 == 0 else 0.0 for i, value in enumerate(spread(700, 3000))]
    yield "long", spread(1300, 5000)
    yield "equal", [1.0, -1.0, 0.0, 1.0] * 8
    yield "tiny", [f32(value * 2.0**-130) for value in spread(40, 7000)]
    yield "huge", [f32(value * 2.0**97) for value in spread(40, 8000)]
    yield "not-finite", [math.inf if i == 20 else -math.inf if i == 33 else NAN if i == 35 else value for i, value in enumerate(spread(40, 8500))]


def tensors_of_q4():
    random = Random(4)
    # Halves of blocks that fill vectors, that miss one value, and that have one too many.
    for n in (2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257):
        yield f"of-{n}", [f32(random.unit(1000 * n + i) - 0.5) for i in range(n)]
    yield "ties", [i / 16 for i in range(-14, 15)]
    least, largest = 2.0**-100, unbits(0x7F7FFFFF)
    yield "least", [least, -least, unbits(bits(least) - 1), least * 1.5, 0.0]
    yield "largest", [largest, -largest, unbits(0x7F7FFFFE), f32(-largest / 3), f32(largest / 15), -0.0]


def largest_tensors():
    """Blocks of 256 whose peak is near the largest f32."""
    random = Random(5)
    for steps in (0, 1, 200):
        peak = unbits(0x7F7FFFFF - steps)
        yield f"largest-less-{steps}", [peak, -peak] + [f32((random.unit(1000 * steps + i) - 0.5) * peak) for i in range(254)]


def main():
    which = (sys.argv[1:] or ["all"])[0]
    codecs, chosen = {
        "all": (CODECS, tensors),
        "ternary": (TERNARY, tensors),
        "q4": (Q4, lambda: [*tensors(), *tensors_of_q4()]),
        "largest": ({name: encode for name, encode in (CODECS | Q4).items() if name[:2] in ("q8", "q4")}, largest_tensors),
    }[which]
    for name, values in chosen():
        print("tensor", name, b"".join(raw(value) for value in values).hex() or "-")
        for codec, encode in codecs.items():
            if name == "long" and codec.split(":")[0] in ("f32", "f16", "trunc", "q8", "q4"):
                continue
            acc, state = values, {}
            for seed in (1, 2):
                message, sent = encode(acc, state, seed)
                print("message", codec, seed, message.hex() or "-")
                # The next gradient is the same one again.
                acc = [add(lost(value, sent), new) for value, sent, new in zip(acc, sent, values)]


if __name__ == "__main__":
    main()
