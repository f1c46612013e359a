"""Codecs in torch operations: their bytes are those that a second implementation wrote, from docs/host-format.md alone."""

import pathlib
import unittest

import torch
from gradwire.codec import named

GOLDEN = pathlib.Path(__file__).parents[2] / "codecs/tests/golden"
NAMES = ["q8:256", "q8:1024", "q4:256", "q4:64", "3lc:1:320", "3lc:1:1024", "3lc:1.75:64"]


def floats(hexadecimal):
    return torch.frombuffer(bytearray.fromhex(hexadecimal), dtype=torch.float32) if hexadecimal != "-" else torch.zeros(0)


def golden():
    """Codec, gradient, and messages of it one after the other."""
    found = []
    for file in sorted(GOLDEN.glob("v1*.txt")):
        tensor = None
        for line in file.read_text().splitlines():
            kind, name, *rest = line.split(" ")
            if kind == "tensor":
                tensor = floats(rest[0])
            elif name.split(":")[0] in ("q8", "q4", "3lc") and len(tensor):
                seed, message = rest
                if seed == "1":
                    found.append((name, tensor, []))
                found[-1][2].append(bytes.fromhex(message))
    return found


def three_values(coded, n):
    """The digits of `n` values of 3lc, from the bytes behind its scales (section 3.5)."""
    coded = b"".join(bytes([121] * (byte - 243 + 2)) if byte >= 243 else bytes([byte]) for byte in coded[4:])
    digits = []
    for first in range(0, n, 320):
        values = min(320, n - first)
        planes = -(-values // 5)
        group, coded = coded[:planes], coded[planes:]
        digits += [byte // power % 3 for power in (81, 27, 9, 3, 1) for byte in group][:values]
    assert not coded
    return digits


class Codecs(unittest.TestCase):
    def test_messages_are_those_of_the_second_implementation(self):
        """But for the last block or group, if it is not full: messages here have no such, and its values are compared alone."""
        compared = dict.fromkeys(("q8", "q4", "3lc"), 0)
        for name, gradient, messages in golden():
            kind, *arguments = name.split(":")
            n = len(gradient)
            whole = len(arguments) == (1 if kind == "3lc" else 0)
            block = -(-n // 320) * 320 if whole else int(arguments[-1])
            if block % 2:
                continue
            codec = named(f"{kind}:{arguments[0]}:{block}" if kind == "3lc" else f"{kind}:{block}")
            padded = -(-n // codec.unit) * codec.unit
            scales = -(-n // block)
            residual = torch.zeros(padded)
            for message in messages:
                total = residual + torch.nn.functional.pad(gradient, (0, padded - n))
                mine = codec.encode(total.view(1, -1))
                self.assertEqual(mine.shape, (1, codec.size(padded)))
                lost = total - codec.decode(mine, padded)[0]
                residual = torch.where(lost.isfinite(), lost, torch.zeros(()))
                mine = mine[0].numpy().tobytes()
                if kind == "3lc":
                    self.assertEqual(mine[: 4 * scales], message[: 4 * scales], name)
                    behind = 4 * (padded // block)
                    self.assertEqual(three_values(mine[behind:], padded)[:n], three_values(message[4 * scales :], n), name)
                else:
                    row = codec.size(block)
                    full = n // block * row
                    self.assertEqual(mine[:full], message[:full], name)
                    if left := n % block:
                        self.assertEqual(mine[full : full + 4], message[full : full + 4], name)
                        mine, message = mine[full + 4 : full + row], message[full + 4 :]
                        if kind == "q4":
                            low = [byte & 15 for byte in mine] + [byte >> 4 for byte in mine]
                            half = -(-left // 2)
                            there = [byte & 15 for byte in message] + [byte >> 4 for byte in message][: left - half]
                            self.assertEqual(low[:left], there, name)
                        else:
                            self.assertEqual(mine[:left], message, name)
                compared[kind] += 1
        self.assertGreaterEqual(min(compared.values()), 14, compared)

    def test_values_come_back_within_the_scale(self):
        generator = torch.Generator().manual_seed(5)
        for name in NAMES:
            codec = named(name)
            n = 3 * codec.unit
            values = torch.randn(4, n, generator=generator) * torch.logspace(-30, 30, n)
            values[1, 0], values[2, -1], values[3] = float("inf"), float("nan"), 0.0
            messages = codec.encode(values)
            self.assertEqual((messages.dtype, messages.shape), (torch.uint8, (4, codec.size(n))))
            back = codec.decode(messages, n).double()
            block = int(name.split(":")[-1])
            peaks = values.double().view(4, -1, block).abs().amax(-1, keepdim=True)
            # Half a step; of 3lc, half of the scale, or what is beyond it.
            step = {"q8": 1 / 254, "q4": 1 / 14, "3lc": 1.0}[name.split(":")[0]]
            off = (back - values.double()).view(4, -1, block).abs()
            finite = peaks.isfinite()
            self.assertTrue((off <= peaks * step * 1.0001)[finite.expand_as(off)].all(), name)
            self.assertTrue(back.view(4, -1, block)[~finite.expand_as(off)].isnan().all(), name)
            self.assertEqual((~finite).sum().item(), 2)
            self.assertEqual(back[3].abs().max(), 0)

    def test_arguments_that_are_wrong_are_named(self):
        for name, text in (
            ("q8:0", "even number of values"),
            ("q4:7", "even number of values"),
            ("q8:x", "invalid literal"),
            ("3lc:2:1024", "multiplier of 1 or more, below 2"),
            ("3lc:1:0", "values that share a scale"),
        ):
            with self.assertRaisesRegex(ValueError, f"{name}.*{text}"):
                named(name)
        for name in ("q9", "bounded:6", "low-rank:4", "3lc:1", "q8:1:2"):
            self.assertIsNone(named(name), name)


if __name__ == "__main__":
    unittest.main()
