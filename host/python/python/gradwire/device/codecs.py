"""Codecs of fixed size in torch operations, on the device where the values are: the bytes of docs/host-format.md.

Each works on `[rows, n]` at once, where a row is one message of `n` values, and `n` a multiple of the codec's `unit`. Nothing here
asks the device for a value, so no operation waits for the host.
"""

from __future__ import annotations

import math

import torch

from gradwire.codec import Codec, concat, divided, extract, peak, register

SMALLEST_PEAK = 2.0**-100
"""Blocks whose largest magnitude is below this are sent as zeros (section 3.4)."""
LARGEST_SCALES = {4: float.fromhex("0x1.249248p125"), 8: float.fromhex("0x1.020406p121")}
"""The largest scale by bits of an integer: with the next f32, the largest integer decodes to infinity (section 3.4)."""
GROUP = 320
"""Values of a group of 3lc (section 3.5)."""


class ScaledIntegers(Codec):
    """`q8:BLOCK` and `q4:BLOCK`: a scale for each block, and a signed integer for each value (sections 3.4 and 3.13)."""

    def __init__(self, bits: int, block: int) -> None:
        if not 2 <= block <= 1 << 20 or block % 2:
            raise ValueError(f"q{bits}:{block}: expected an even number of values that share a scale, 2 to {1 << 20}")
        self.bits, self.block = bits, block
        self.name, self.unit = f"q{bits}:{block}", block
        self._most = 2 ** (bits - 1) - 1
        self._largest_scale = LARGEST_SCALES[bits]

    def _row(self) -> int:
        return 4 + self.block * self.bits // 8

    def size(self, n: int) -> int:
        return n // self.block * self._row()

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        rows, n = values.shape
        blocks = values.view(rows, n // self.block, self.block)
        peaks = peak(blocks)
        scales = torch.where(peaks < SMALLEST_PEAK, 0.0, divided(peaks, self._most)).clamp(max=self._largest_scale)
        usable = (scales > 0) & blocks.isfinite()
        integers = torch.where(usable, (blocks * scales.reciprocal()).round(), 0.0).to(torch.int8)
        if self.bits == 4:
            low, high = integers.chunk(2, -1)
            integers = (low & 15) | (high << 4)
        return concat(scales, integers)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        blocks = messages.unflatten(1, (n // self.block, self._row()))
        scales, integers = extract(blocks, (torch.float32, 1), (torch.int8, self._row() - 4))
        if self.bits == 4:
            integers = torch.cat(((integers << 4) >> 4, integers >> 4), -1)
        return (integers.to(torch.float32) * scales).flatten(1)


@register("q8")
class EightBits(ScaledIntegers):
    """`q8[:BLOCK]`."""

    def __init__(self, block: int = 256) -> None:
        super().__init__(8, block)


@register("q4")
class FourBits(ScaledIntegers):
    """`q4[:BLOCK]`."""

    def __init__(self, block: int = 256) -> None:
        super().__init__(4, block)


@register("3lc")
class ThreeValues(Codec):
    """`3lc:S:BLOCK`: a scale for each block, and -1, 0 or 1 for each value, five to a byte (section 3.5).

    Messages have no runs of zeros, so all have one size; section 3.5 lets an encoder write them so.
    """

    def __init__(self, multiplier: float, block: int) -> None:
        if not 1 <= multiplier < 2:
            raise ValueError(f"3lc:{multiplier:g}:{block}: expected a multiplier of 1 or more, below 2")
        if not 1 <= block <= 1 << 20:
            raise ValueError(f"3lc:{multiplier:g}:{block}: expected 1 to {1 << 20} values that share a scale")
        self.multiplier, self.block = multiplier, block
        self.name, self.unit = f"3lc:{multiplier:g}:{block}", math.lcm(block, GROUP)

    def size(self, n: int) -> int:
        return n // self.block * 4 + 4 + n // 5

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        rows, n = values.shape
        blocks = values.view(rows, n // self.block, self.block)
        multiplier = torch.full((), self.multiplier, dtype=torch.float32, device=values.device)
        scales = (peak(blocks) * multiplier).clamp(max=torch.finfo(torch.float32).max)
        far = (blocks.abs() >= divided(scales, 2.0)) & (scales > 0)
        digits = torch.where(far, blocks.sign(), 0.0).to(torch.int32).view(rows, n // GROUP, 5, GROUP // 5) + 1
        coded = digits[:, :, 0]
        for plane in range(1, 5):
            coded = coded * 3 + digits[:, :, plane]
        length = torch.full((rows, 1), n // 5, dtype=torch.int32, device=values.device)
        return concat(scales.flatten(1), length, coded.to(torch.uint8).flatten(1))

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        scales, _, coded = extract(messages, (torch.float32, n // self.block), (torch.int32, 1), (torch.uint8, n // 5))
        coded = coded.view(-1, n // GROUP, 1, GROUP // 5).to(torch.int32)
        planes = [coded.div(power, rounding_mode="floor") % 3 for power in (81, 27, 9, 3, 1)]
        digits = torch.cat(planes, 2).to(torch.float32) - 1
        return (digits.view(len(messages), -1, self.block) * scales.unsqueeze(-1)).view(len(messages), n)
