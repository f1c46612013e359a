"""Codecs of fixed size in torch operations, on the device where the values are: the bytes of docs/host-format.md.

Each works on `[rows, n]` at once, where a row is one message of `n` values, and `n` a multiple of the codec's `unit`. Nothing here
asks the device for a value, so no operation waits for the host.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

SMALLEST_PEAK = 2.0**-100
"""Blocks whose largest magnitude is below this are sent as zeros (section 3.4)."""
LARGEST_SCALES = {4: float.fromhex("0x1.249248p125"), 8: float.fromhex("0x1.020406p121")}
"""The largest scale by bits of an integer: with the next f32, the largest integer decodes to infinity (section 3.4)."""
GROUP = 320
"""Values of a group of 3lc (section 3.5)."""


class Codec(Protocol):
    """A codec whose messages of `n` values all have `size(n)` bytes."""

    @property
    def name(self) -> str:
        """The name with all arguments, as in docs/host-format.md."""

    @property
    def unit(self) -> int:
        """Messages have a multiple of so many values."""

    def size(self, n: int) -> int:
        """Returns the bytes of a message of `n` values."""

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the messages, uint8 `[rows, size(n)]`, of f32 values `[rows, n]`."""

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        """Returns the values, f32 `[rows, n]`, of messages uint8 `[rows, size(n)]`."""


def _peaks(blocks: torch.Tensor) -> torch.Tensor:
    """Returns the largest magnitude of each block, `[..., 1]`; NaN if a value of the block is not finite."""
    peaks = blocks.abs().amax(-1, keepdim=True)
    return torch.where(peaks.isfinite(), peaks, math.nan)


def divided(values: torch.Tensor, by: float) -> torch.Tensor:
    """Returns the quotient, rounded as IEEE 754 has it."""
    # By a tensor: CUDA divides by a Python number by multiplying with its reciprocal, which rounds
    # otherwise.
    return values / torch.full((), by, dtype=values.dtype, device=values.device)


def _as_bytes(scales: torch.Tensor) -> torch.Tensor:
    """Returns `[..., k]` f32 as `[..., 4 k]` bytes, NaN as section 2.1 has it."""
    canonical = torch.full((), 0x7FC00000, dtype=torch.int32, device=scales.device)
    return torch.where(scales.isnan(), canonical, scales.contiguous().view(torch.int32)).view(torch.uint8)


def _as_floats(data: torch.Tensor) -> torch.Tensor:
    return data.contiguous().view(torch.float32)


class ScaledIntegers:
    """`q8:BLOCK` and `q4:BLOCK`: a scale for each block, and a signed integer for each value (sections 3.4 and 3.13)."""

    def __init__(self, bits: int, block: int) -> None:
        if not 2 <= block <= 1 << 20 or block % 2:
            raise ValueError(f"q{bits}:{block}: expected an even number of values that share a scale, 2 to {1 << 20}")
        self.bits, self.block = bits, block
        self._most = 2 ** (bits - 1) - 1
        self._largest_scale = LARGEST_SCALES[bits]

    @property
    def name(self) -> str:
        return f"q{self.bits}:{self.block}"

    @property
    def unit(self) -> int:
        return self.block

    def _row(self) -> int:
        return 4 + self.block * self.bits // 8

    def size(self, n: int) -> int:
        return n // self.block * self._row()

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        rows, n = values.shape
        blocks = values.view(rows, n // self.block, self.block)
        peaks = _peaks(blocks)
        scales = torch.where(peaks < SMALLEST_PEAK, 0.0, divided(peaks, self._most)).clamp(max=self._largest_scale)
        usable = (scales > 0) & blocks.isfinite()
        integers = torch.where(usable, (blocks * scales.reciprocal()).round(), 0.0).to(torch.int8)
        if self.bits == 4:
            low, high = integers.chunk(2, -1)
            integers = (low & 15) | (high << 4)
        return torch.cat((_as_bytes(scales), integers.view(torch.uint8)), -1).view(rows, -1)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        rows = len(messages)
        blocks = messages.view(rows, n // self.block, self._row())
        scales, integers = _as_floats(blocks[..., :4]), blocks[..., 4:].contiguous().view(torch.int8)
        if self.bits == 4:
            integers = torch.cat(((integers << 4) >> 4, integers >> 4), -1)
        return (integers.to(torch.float32) * scales).view(rows, n)


class ThreeValues:
    """`3lc:S:BLOCK`: a scale for each block, and -1, 0 or 1 for each value, five to a byte (section 3.5).

    Messages have no runs of zeros, so all have one size; section 3.5 lets an encoder write them so.
    """

    def __init__(self, multiplier: float, block: int) -> None:
        if not 1 <= multiplier < 2:
            raise ValueError(f"3lc:{multiplier:g}:{block}: expected a multiplier of 1 or more, below 2")
        if not 1 <= block <= 1 << 20:
            raise ValueError(f"3lc:{multiplier:g}:{block}: expected 1 to {1 << 20} values that share a scale")
        self.multiplier, self.block = multiplier, block
        self._unit = math.lcm(block, GROUP)

    @property
    def name(self) -> str:
        return f"3lc:{self.multiplier:g}:{self.block}"

    @property
    def unit(self) -> int:
        return self._unit

    def size(self, n: int) -> int:
        return n // self.block * 4 + 4 + n // 5

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        rows, n = values.shape
        blocks = values.view(rows, n // self.block, self.block)
        multiplier = torch.full((), self.multiplier, dtype=torch.float32, device=values.device)
        peaks = _peaks(blocks)
        scales = (peaks * multiplier).clamp(max=torch.finfo(torch.float32).max)
        far = (blocks.abs() >= divided(scales, 2.0)) & (scales > 0)
        digits = torch.where(far, blocks.sign(), 0.0).to(torch.int32).view(rows, n // GROUP, 5, GROUP // 5) + 1
        coded = digits[:, :, 0]
        for plane in range(1, 5):
            coded = coded * 3 + digits[:, :, plane]
        length = torch.full((rows, 1), n // 5, dtype=torch.int32, device=values.device).view(torch.uint8)
        return torch.cat((_as_bytes(scales.view(rows, -1)), length, coded.to(torch.uint8).view(rows, -1)), -1)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        rows, scales_end = len(messages), n // self.block * 4
        scales = _as_floats(messages[:, :scales_end]).view(rows, -1, 1)
        coded = messages[:, scales_end + 4 :].view(rows, n // GROUP, 1, GROUP // 5).to(torch.int32)
        planes = [coded.div(power, rounding_mode="floor") % 3 for power in (81, 27, 9, 3, 1)]
        digits = torch.cat(planes, 2).to(torch.float32) - 1
        return (digits.view(rows, -1, self.block) * scales).view(rows, n)


def codec(name: str) -> Codec | None:
    """Returns the codec of that name, or None if no codec here has it. ValueError if its arguments are wrong.

    Without `:BLOCK`, 256 values of `q8` and `q4` share a scale: `name` of what is returned says so.
    """
    kind, *arguments = name.split(":")
    try:
        if kind in ("q8", "q4") and len(arguments) <= 1:
            return ScaledIntegers(int(kind[1]), *map(int, arguments or ["256"]))
        if kind == "3lc" and len(arguments) == 2:
            return ThreeValues(float(arguments[0]), int(arguments[1]))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return None
