"""Triton kernels of q8, q4 and 3lc for NVIDIA's and AMD's GPUs: the messages, residuals and means of the torch operations, bit for bit.

`codecs.py`, `exchange.py` and `bucket.py` are the definition. Ranks with and without kernels may be in one group, since messages and
collectives are the same. Three kernels load and store, for an all-reduce of bfloat16 over 8 ranks, bytes a value: q8:256: 15.7,
q4:256: 14.1, 3lc:1:320: 13.3.

`native.py` has kernels for the CPU. Torch operations stay for: XPU; a `scale`, and steps that may be skipped; low-rank, and FSDP's
coded reduce-scatter; q8 whose block is no multiple of 4 or above 8192; q4, of 8 or above 16384; 3lc whose block is no multiple of 64,
or with a unit above 10240; gradients of 2^29 values or more; and for everything without GRADWIRE_KERNELS=1 in the environment, since no
kernel ever ran on a GPU: Triton's interpreter ran them all, and its compilers made code for NVIDIA's sm_80 and sm_90 and AMD's gfx942.
"""

# Triton's decorator has no type.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any, Protocol

import torch
import triton
import triton.language as tl

from gradwire.codec import Codec
from gradwire.device.codecs import GROUP, LARGEST_SCALES, ScaledIntegers, ThreeValues
from gradwire.device.codecs import SMALLEST_PEAK as _SMALLEST_PEAK

DEVICES = ("cuda",)
"""Types of devices that are served: torch calls ROCm's so, too."""

# What kernels take from here is a constant of theirs.
SMALLEST_PEAK = tl.constexpr(_SMALLEST_PEAK)
LARGEST_SCALE_OF_4 = tl.constexpr(LARGEST_SCALES[4])
LARGEST_SCALE_OF_8 = tl.constexpr(LARGEST_SCALES[8])
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)
INFINITE = tl.constexpr(0x7F800000)
NAN = tl.constexpr(0x7FC00000)
# Numbers of f32 near it are integers: adding it rounds to the nearest, ties to even.
ROUNDING = tl.constexpr(1.5 * 2**23)
PLANE = tl.constexpr(GROUP // 5)

# A residual is a value less a product: fused, it would not be what others decode.
OPTIONS = {"enable_fp_fusion": False}


class Kernels(Protocol):
    """A codec's kernels. Each call is one launch, and waits for nothing."""

    def encode(self, gradient: torch.Tensor, residual: torch.Tensor, rows: int, part: int, used: torch.Tensor | None = None) -> torch.Tensor:
        """Returns messages uint8 `[rows, size(part)]` of gradient plus residual, both `[n]`, padded with zeros.

        The residual becomes what they lost: 0 where that is not finite. Where `used`, bool `[n]`, is not, the residual waits.
        """

    def encode_mean(self, received: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Returns the message uint8 `[1, size]` of the mean of what `received`, uint8 `[ranks, size]`, says, plus the residual `[part]`.

        The residual becomes what the message lost, likewise.
        """

    def mean(self, received: torch.Tensor, part: int) -> torch.Tensor:
        """Returns the mean of what `received` says, f32 `[part]`."""

    def decode(self, messages: torch.Tensor, part: int, values: torch.Tensor) -> torch.Tensor:
        """Replaces `values`, `[n]`, by what messages uint8 `[rows, size(part)]` say, and returns it in f32: `values`, if that is their dtype."""


def kernels(codec: Codec, gradient: torch.Tensor) -> Kernels | None:
    """Returns the kernels that serve messages of a gradient; None if torch operations have to."""
    if gradient.device.type not in DEVICES or gradient.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return None
    # Indices have 32 bits. A message is no longer than the values in f32, but for its padding.
    if not gradient.is_contiguous() or 4 * gradient.numel() >= 1 << 31:
        return None
    if isinstance(codec, ScaledIntegers) and not codec.block * codec.bits % 32 and codec.block * codec.bits <= 1 << 16:
        return IntegerKernels(codec)
    if isinstance(codec, ThreeValues) and not codec.block % PLANE.value and codec.unit <= 32 * GROUP:
        return ThreeValueKernels(codec)
    return None


class IntegerKernels:
    """Those of `q8` and `q4`. A message is one block after the other, so messages are too."""

    def __init__(self, codec: ScaledIntegers) -> None:
        self._codec = codec
        # A row of a tile is the bytes of one block.
        width = triton.next_power_of_2(codec.block * codec.bits // 8)
        rows = max(1, 256 * codec.bits // width)
        self._rows = rows
        self.steps = {"encode": _encode_integers, "encode_mean": _encode_mean_of_integers, "decode": _decode_integers}
        self.constants = {"BITS": codec.bits, "BLOCK": codec.block, "ROWS": rows, "WIDTH": width, "num_warps": 8 if rows * width >= 4096 else 4}

    def encode(self, gradient: torch.Tensor, residual: torch.Tensor, rows: int, part: int, used: torch.Tensor | None = None) -> torch.Tensor:
        messages = torch.empty(rows, self._codec.size(part), dtype=torch.uint8, device=gradient.device)
        blocks = rows * part // self._codec.block
        # Without, any pointer will do.
        flags = messages if used is None else used.view(torch.uint8)
        arguments = (gradient, residual, flags, messages, messages.view(torch.int32), len(gradient), blocks)
        self._launch("encode", blocks, *arguments, USED=used is not None)
        return messages

    def encode_mean(self, received: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        message = torch.empty_like(received[:1])
        blocks = len(residual) // self._codec.block
        words = received.view(torch.int32)
        arguments = (received, words, residual, message, message.view(torch.int32), len(received), blocks)
        self._launch("encode_mean", blocks, *arguments, ENCODE=True)
        return message

    def mean(self, received: torch.Tensor, part: int) -> torch.Tensor:
        mean = torch.empty(part, device=received.device)
        blocks, words = part // self._codec.block, received.view(torch.int32)
        self._launch("encode_mean", blocks, received, words, mean, received, words, len(received), blocks, ENCODE=False)
        return mean

    def decode(self, messages: torch.Tensor, part: int, values: torch.Tensor) -> torch.Tensor:
        mean = values if values.dtype == torch.float32 else torch.empty_like(values, dtype=torch.float32)
        blocks = len(messages) * part // self._codec.block
        self._launch("decode", blocks, messages, messages.view(torch.int32), values, mean, len(values), blocks)
        return mean

    def _launch(self, step: str, blocks: int, *arguments: Any, **constants: bool) -> None:
        _launch(self.steps[step], (triton.cdiv(blocks, self._rows),), *arguments, **self.constants, **constants)


class ThreeValueKernels:
    """Those of `3lc`. A row of a tile is a unit, in which blocks and groups both end; of each group it has the five planes one by one."""

    def __init__(self, codec: ThreeValues) -> None:
        self._codec = codec
        groups = codec.unit // GROUP
        width = triton.next_power_of_2(groups)
        self._units = max(1, 8 // width)
        self.steps = {"encode": _encode_three, "encode_mean": _encode_mean_of_three, "decode": _decode_three}
        self.constants = {
            "MULTIPLIER": codec.multiplier,
            "BLOCK": codec.block,
            "GROUPS": groups,
            "UNITS": self._units,
            "WIDTH": width,
            "num_warps": 8 if width > 8 else 4,
        }

    def encode(self, gradient: torch.Tensor, residual: torch.Tensor, rows: int, part: int, used: torch.Tensor | None = None) -> torch.Tensor:
        messages = torch.empty(rows, self._codec.size(part), dtype=torch.uint8, device=gradient.device)
        flags = messages if used is None else used.view(torch.uint8)
        arguments = (gradient, residual, flags, messages, messages.view(torch.int32), len(gradient), part)
        self._launch("encode", rows, part, *arguments, USED=used is not None)
        return messages

    def encode_mean(self, received: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        message, part = torch.empty_like(received[:1]), len(residual)
        words = received.view(torch.int32)
        arguments = (received, words, residual, message, message.view(torch.int32), len(received), part)
        self._launch("encode_mean", 1, part, *arguments, ENCODE=True)
        return message

    def mean(self, received: torch.Tensor, part: int) -> torch.Tensor:
        mean, words = torch.empty(part, device=received.device), received.view(torch.int32)
        self._launch("encode_mean", 1, part, received, words, mean, received, words, len(received), part, ENCODE=False)
        return mean

    def decode(self, messages: torch.Tensor, part: int, values: torch.Tensor) -> torch.Tensor:
        mean = values if values.dtype == torch.float32 else torch.empty_like(values, dtype=torch.float32)
        self._launch("decode", len(messages), part, messages, messages.view(torch.int32), values, mean, len(values), part)
        return mean

    def _launch(self, step: str, rows: int, part: int, *arguments: Any, **constants: bool) -> None:
        programs = triton.cdiv(part // self._codec.unit, self._units), rows
        _launch(self.steps[step], programs, *arguments, **self.constants, **constants)


def _launch(kernel: Any, programs: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    # Triton's device is the current one.
    with torch.cuda.device_of(arguments[0]):
        kernel[programs](*arguments, **constants, **OPTIONS)


@triton.jit
def _bits(values: tl.tensor) -> tl.tensor:
    return values.to(tl.int32, bitcast=True)


@triton.jit
def _magnitudes(values: tl.tensor) -> tl.tensor:
    """Magnitudes as integers: the largest of floats would lose a NaN."""
    return _bits(values) & 0x7FFFFFFF


@triton.jit
def _held(residual: tl.tensor, at: tl.tensor, inside: tl.tensor) -> tl.tensor:
    return tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _total(gradient: tl.tensor, residual: tl.tensor, used: tl.tensor, at: tl.tensor, inside: tl.tensor, USED: tl.constexpr) -> tl.tensor:
    held = _held(residual, at, inside)
    if USED:
        held = tl.where(tl.load(used + at, mask=inside, other=0) != 0, held, 0.0)
    return tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32) + held


@triton.jit
def _put(to: tl.tensor, at: tl.tensor, values: tl.tensor, inside: tl.tensor) -> None:
    """Stores f32 values in the dtype of `to`."""
    if to.dtype.element_ty == tl.bfloat16:
        # By integers: the interpreter cuts off where GPUs round.
        bits = _bits(values).to(tl.uint32, bitcast=True)
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
        rounded = tl.where(_magnitudes(values) > INFINITE, 0x7FC0, rounded)
        tl.store(to + at, rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True), mask=inside)
    else:
        tl.store(to + at, values.to(to.dtype.element_ty), mask=inside)


@triton.jit
def _put_lost(
    residual: tl.tensor, used: tl.tensor, at: tl.tensor, values: tl.tensor, decoded: tl.tensor, inside: tl.tensor, USED: tl.constexpr
) -> None:
    lost = values - decoded
    lost = tl.where(_magnitudes(lost) < INFINITE, lost, 0.0)
    if USED:
        lost = tl.where(tl.load(used + at, mask=inside, other=0) != 0, lost, _held(residual, at, inside) + lost)
    _put(residual, at, lost, inside)


@triton.jit
def _or_nan(scale: tl.tensor, peak: tl.tensor) -> tl.tensor:
    """The scale of a block by the magnitude of its peak, NaN as section 2.1 has it."""
    return tl.where(peak < INFINITE, _bits(scale), NAN).to(tl.float32, bitcast=True)


@triton.jit
def _tile(ROWS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """The blocks of a tile `[ROWS, 1]`, and its columns."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    return rows, tl.arange(0, WIDTH)[None, :]


@triton.jit
def _integers(values: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """Integers as f32."""
    rounded = (values * tl.div_rn(1.0, scale) + ROUNDING) - ROUNDING
    return tl.where(scale > 0, rounded, 0.0)


@triton.jit
def _put_integers(
    first: tl.tensor,
    second: tl.tensor,
    residual: tl.tensor,
    used: tl.tensor,
    at: tl.tensor,
    inside: tl.tensor,
    inside_second: tl.tensor,
    messages: tl.tensor,
    words: tl.tensor,
    block: tl.tensor,
    column: tl.tensor,
    there: tl.tensor,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    USED: tl.constexpr,
) -> None:
    """Stores blocks: their scales, integers, and what these lost. `second` is of the upper bits, if there are any."""
    SIZE: tl.constexpr = 4 + BLOCK * BITS // 8
    MOST: tl.constexpr = 2.0 ** (BITS - 1) - 1
    LARGEST_SCALE: tl.constexpr = LARGEST_SCALE_OF_4 if BITS == 4 else LARGEST_SCALE_OF_8
    magnitudes = _magnitudes(first)
    if BITS == 4:
        magnitudes = tl.maximum(magnitudes, _magnitudes(second))
    bits = tl.max(magnitudes, 1, keep_dims=True)
    peak = bits.to(tl.float32, bitcast=True)
    scale = tl.where(peak < SMALLEST_PEAK, 0.0, tl.minimum(tl.div_rn(peak, MOST), LARGEST_SCALE))
    scale = _or_nan(scale, bits)
    tl.store(words + block * (SIZE // 4), _bits(scale), mask=there)
    integers = _integers(first, scale)
    _put_lost(residual, used, at, first, integers * scale, inside, USED)
    coded = integers.to(tl.int32)
    if BITS == 4:
        integers = _integers(second, scale)
        _put_lost(residual, used, at + BLOCK // 2, second, integers * scale, inside_second, USED)
        coded = (coded & 15) | ((integers.to(tl.int32) & 15) << 4)
    tl.store(messages + (block * SIZE + 4 + column), (coded & 255).to(tl.uint8), mask=there & (column < SIZE - 4))


@triton.jit
def _get_integers(
    messages: tl.tensor, words: tl.tensor, block: tl.tensor, column: tl.tensor, there: tl.tensor, BITS: tl.constexpr, BLOCK: tl.constexpr
) -> tl.tensor:
    """What blocks decode to: the values of lower and of upper bits."""
    SIZE: tl.constexpr = 4 + BLOCK * BITS // 8
    scale = tl.load(words + block * (SIZE // 4), mask=there, other=0).to(tl.float32, bitcast=True)
    coded = tl.load(messages + (block * SIZE + 4 + column), mask=there & (column < SIZE - 4), other=0).to(tl.int32)
    # Two's complement.
    first = coded & (2**BITS - 1)
    second = coded >> 4
    first -= (first >> (BITS - 1)) << BITS
    second -= (second >> 3) << 4
    return first.to(tl.float32) * scale, second.to(tl.float32) * scale


@triton.jit
def _encode_integers(
    gradient: tl.tensor,
    residual: tl.tensor,
    used: tl.tensor,
    messages: tl.tensor,
    words: tl.tensor,
    n: tl.tensor,
    blocks: tl.tensor,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    USED: tl.constexpr,
) -> None:
    block, column = _tile(ROWS, WIDTH)
    there = block < blocks
    at = block * BLOCK + column
    part = there & (column < BLOCK * BITS // 8)
    inside = part & (at < n)
    inside_second = part & (at + BLOCK // 2 < n)
    first = _total(gradient, residual, used, at, inside, USED)
    second = first
    if BITS == 4:
        second = _total(gradient, residual, used, at + BLOCK // 2, inside_second, USED)
    _put_integers(first, second, residual, used, at, inside, inside_second, messages, words, block, column, there, BITS, BLOCK, USED)


@triton.jit(do_not_specialize=["ranks"])
def _encode_mean_of_integers(
    received: tl.tensor,
    received_words: tl.tensor,
    residual: tl.tensor,
    messages: tl.tensor,
    words: tl.tensor,
    ranks: tl.tensor,
    blocks: tl.tensor,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    ENCODE: tl.constexpr,
) -> None:
    SIZE: tl.constexpr = 4 + BLOCK * BITS // 8
    block, column = _tile(ROWS, WIDTH)
    there = block < blocks
    first, second = _get_integers(received, received_words, block, column, there, BITS, BLOCK)
    for _ in range(1, ranks):
        received += blocks * SIZE
        received_words += blocks * (SIZE // 4)
        more, more_second = _get_integers(received, received_words, block, column, there, BITS, BLOCK)
        first += more
        second += more_second
    at = block * BLOCK + column
    inside = there & (column < SIZE - 4)
    by = ranks.to(tl.float32)
    first, second = tl.div_rn(first, by), tl.div_rn(second, by)
    if ENCODE:
        first += _held(residual, at, inside)
        if BITS == 4:
            second += _held(residual, at + BLOCK // 2, inside)
        _put_integers(first, second, residual, residual, at, inside, inside, messages, words, block, column, there, BITS, BLOCK, False)
    else:
        _put(residual, at, first, inside)
        if BITS == 4:
            _put(residual, at + BLOCK // 2, second, inside)


@triton.jit
def _put_mean(values: tl.tensor, mean: tl.tensor, at: tl.tensor, decoded: tl.tensor, inside: tl.tensor) -> None:
    _put(values, at, decoded, inside)
    if values.dtype.element_ty != tl.float32:
        _put(mean, at, decoded, inside)


@triton.jit
def _decode_integers(
    messages: tl.tensor,
    words: tl.tensor,
    values: tl.tensor,
    mean: tl.tensor,
    n: tl.tensor,
    blocks: tl.tensor,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    block, column = _tile(ROWS, WIDTH)
    there = block < blocks
    first, second = _get_integers(messages, words, block, column, there, BITS, BLOCK)
    at = block * BLOCK + column
    part = there & (column < BLOCK * BITS // 8)
    _put_mean(values, mean, at, first, part & (at < n))
    if BITS == 4:
        _put_mean(values, mean, at + BLOCK // 2, second, part & (at + BLOCK // 2 < n))


@triton.jit
def _units(part: tl.tensor, GROUPS: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """The units of a tile `[UNITS, 1, 1]`, its groups, the bytes of a group, and which groups there are."""
    unit = (tl.program_id(0) * UNITS + tl.arange(0, UNITS))[:, None, None]
    group = tl.arange(0, WIDTH)[None, :, None]
    return unit, group, tl.arange(0, PLANE)[None, None, :], (unit < part // (GROUPS * 5 * PLANE)) & (group < GROUPS)


@triton.jit
def _plane_peak(values: tl.tensor) -> tl.tensor:
    return tl.max(_magnitudes(values), 2, keep_dims=True)


@triton.jit
def _of_block(peaks: tl.tensor, group: tl.tensor, NUMBER: tl.constexpr, BLOCK: tl.constexpr, plane: tl.constexpr) -> tl.tensor:
    """Magnitudes of those runs of a plane that are in a block of the unit, 0 of others."""
    return tl.where((group * 5 + plane) * PLANE // BLOCK == NUMBER, peaks, 0)


@triton.jit
def _digits(values: tl.tensor, scale: tl.tensor) -> tl.tensor:
    far = (tl.abs(values) >= scale * 0.5) & (scale > 0)
    return tl.where(far, (values > 0).to(tl.int32) - (values < 0).to(tl.int32), 0)


@triton.jit
def _put_three(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    d: tl.tensor,
    e: tl.tensor,
    residual: tl.tensor,
    used: tl.tensor,
    first: tl.tensor,
    n: tl.tensor,
    messages: tl.tensor,
    words: tl.tensor,
    unit: tl.tensor,
    group: tl.tensor,
    column: tl.tensor,
    there: tl.tensor,
    part: tl.tensor,
    MULTIPLIER: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    USED: tl.constexpr,
) -> None:
    """Stores the blocks of units: their scales, digits of five planes, and what these lost. A plane begins with the value `first`."""
    BLOCKS: tl.constexpr = GROUPS * 5 * PLANE // BLOCK
    peaks_a, peaks_b, peaks_c, peaks_d, peaks_e = _plane_peak(a), _plane_peak(b), _plane_peak(c), _plane_peak(d), _plane_peak(e)
    scale_a = tl.zeros_like(peaks_a).to(tl.float32)
    scale_b, scale_c, scale_d, scale_e = scale_a, scale_a, scale_a, scale_a
    for number in tl.static_range(BLOCKS):
        bits = tl.maximum(_of_block(peaks_a, group, number, BLOCK, 0), _of_block(peaks_b, group, number, BLOCK, 1))
        bits = tl.maximum(bits, _of_block(peaks_c, group, number, BLOCK, 2))
        bits = tl.maximum(bits, _of_block(peaks_d, group, number, BLOCK, 3))
        bits = tl.max(tl.maximum(bits, _of_block(peaks_e, group, number, BLOCK, 4)), 1, keep_dims=True)
        scale = bits.to(tl.float32, bitcast=True) * MULTIPLIER
        scale = _or_nan(tl.where(scale > LARGEST, LARGEST, scale), bits)
        tl.store(words + (unit * BLOCKS + number), _bits(scale), mask=unit < part // (BLOCKS * BLOCK))
        scale_a = tl.where((group * 5) * PLANE // BLOCK == number, scale, scale_a)
        scale_b = tl.where((group * 5 + 1) * PLANE // BLOCK == number, scale, scale_b)
        scale_c = tl.where((group * 5 + 2) * PLANE // BLOCK == number, scale, scale_c)
        scale_d = tl.where((group * 5 + 3) * PLANE // BLOCK == number, scale, scale_d)
        scale_e = tl.where((group * 5 + 4) * PLANE // BLOCK == number, scale, scale_e)
    coded = _put_plane(a, scale_a, residual, used, first, n, there, USED) * 3
    coded = (coded + _put_plane(b, scale_b, residual, used, first + PLANE, n, there, USED)) * 3
    coded = (coded + _put_plane(c, scale_c, residual, used, first + 2 * PLANE, n, there, USED)) * 3
    coded = (coded + _put_plane(d, scale_d, residual, used, first + 3 * PLANE, n, there, USED)) * 3
    coded += _put_plane(e, scale_e, residual, used, first + 4 * PLANE, n, there, USED)
    # Behind the scales, the length of what follows.
    if tl.program_id(0) == 0:
        tl.store(words + part // BLOCK, part // 5)
    at = part // BLOCK * 4 + 4 + (unit * GROUPS + group) * PLANE + column
    tl.store(messages + at, coded.to(tl.uint8), mask=there)


@triton.jit
def _put_plane(
    values: tl.tensor, scale: tl.tensor, residual: tl.tensor, used: tl.tensor, at: tl.tensor, n: tl.tensor, there: tl.tensor, USED: tl.constexpr
) -> tl.tensor:
    digits = _digits(values, scale)
    _put_lost(residual, used, at, values, digits.to(tl.float32) * scale, there & (at < n), USED)
    return digits + 1


@triton.jit
def _get_plane(
    words: tl.tensor,
    coded: tl.tensor,
    unit: tl.tensor,
    group: tl.tensor,
    there: tl.tensor,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    plane: tl.constexpr,
    POWER: tl.constexpr,
) -> tl.tensor:
    """What a plane of groups decodes to."""
    number = unit * (GROUPS * 5 * PLANE // BLOCK) + (group * 5 + plane) * PLANE // BLOCK
    scale = tl.load(words + number, mask=there, other=0).to(tl.float32, bitcast=True)
    return (coded // POWER % 3 - 1).to(tl.float32) * scale


@triton.jit
def _get_three(
    messages: tl.tensor,
    words: tl.tensor,
    unit: tl.tensor,
    group: tl.tensor,
    column: tl.tensor,
    there: tl.tensor,
    part: tl.tensor,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
) -> tl.tensor:
    at = part // BLOCK * 4 + 4 + (unit * GROUPS + group) * PLANE + column
    coded = tl.load(messages + at, mask=there, other=0).to(tl.int32)
    return (
        _get_plane(words, coded, unit, group, there, BLOCK, GROUPS, 0, 81),
        _get_plane(words, coded, unit, group, there, BLOCK, GROUPS, 1, 27),
        _get_plane(words, coded, unit, group, there, BLOCK, GROUPS, 2, 9),
        _get_plane(words, coded, unit, group, there, BLOCK, GROUPS, 3, 3),
        _get_plane(words, coded, unit, group, there, BLOCK, GROUPS, 4, 1),
    )


@triton.jit
def _encode_three(
    gradient: tl.tensor,
    residual: tl.tensor,
    used: tl.tensor,
    messages: tl.tensor,
    words: tl.tensor,
    n: tl.tensor,
    part: tl.tensor,
    MULTIPLIER: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    UNITS: tl.constexpr,
    WIDTH: tl.constexpr,
    USED: tl.constexpr,
) -> None:
    unit, group, column, there = _units(part, GROUPS, UNITS, WIDTH)
    row = tl.program_id(1)
    size = part // BLOCK * 4 + 4 + part // 5
    messages += row * size
    words += row * (size // 4)
    first = row * part + (unit * GROUPS + group) * (5 * PLANE) + column
    a = _total(gradient, residual, used, first, there & (first < n), USED)
    b = _total(gradient, residual, used, first + PLANE, there & (first + PLANE < n), USED)
    c = _total(gradient, residual, used, first + 2 * PLANE, there & (first + 2 * PLANE < n), USED)
    d = _total(gradient, residual, used, first + 3 * PLANE, there & (first + 3 * PLANE < n), USED)
    e = _total(gradient, residual, used, first + 4 * PLANE, there & (first + 4 * PLANE < n), USED)
    _put_three(a, b, c, d, e, residual, used, first, n, messages, words, unit, group, column, there, part, MULTIPLIER, BLOCK, GROUPS, USED)


@triton.jit(do_not_specialize=["ranks"])
def _encode_mean_of_three(
    received: tl.tensor,
    received_words: tl.tensor,
    residual: tl.tensor,
    messages: tl.tensor,
    words: tl.tensor,
    ranks: tl.tensor,
    part: tl.tensor,
    MULTIPLIER: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    UNITS: tl.constexpr,
    WIDTH: tl.constexpr,
    ENCODE: tl.constexpr,
) -> None:
    unit, group, column, there = _units(part, GROUPS, UNITS, WIDTH)
    size = part // BLOCK * 4 + 4 + part // 5
    a, b, c, d, e = _get_three(received, received_words, unit, group, column, there, part, BLOCK, GROUPS)
    for _ in range(1, ranks):
        received += size
        received_words += size // 4
        more_a, more_b, more_c, more_d, more_e = _get_three(received, received_words, unit, group, column, there, part, BLOCK, GROUPS)
        a += more_a
        b += more_b
        c += more_c
        d += more_d
        e += more_e
    first = (unit * GROUPS + group) * (5 * PLANE) + column
    by = ranks.to(tl.float32)
    a, b, c, d, e = tl.div_rn(a, by), tl.div_rn(b, by), tl.div_rn(c, by), tl.div_rn(d, by), tl.div_rn(e, by)
    if ENCODE:
        a += _held(residual, first, there)
        b += _held(residual, first + PLANE, there)
        c += _held(residual, first + 2 * PLANE, there)
        d += _held(residual, first + 3 * PLANE, there)
        e += _held(residual, first + 4 * PLANE, there)
        _put_three(
            a, b, c, d, e, residual, residual, first, part, messages, words, unit, group, column, there, part, MULTIPLIER, BLOCK, GROUPS, False
        )
    else:
        _put(residual, first, a, there)
        _put(residual, first + PLANE, b, there)
        _put(residual, first + 2 * PLANE, c, there)
        _put(residual, first + 3 * PLANE, d, there)
        _put(residual, first + 4 * PLANE, e, there)


@triton.jit
def _decode_three(
    messages: tl.tensor,
    words: tl.tensor,
    values: tl.tensor,
    mean: tl.tensor,
    n: tl.tensor,
    part: tl.tensor,
    MULTIPLIER: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    UNITS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    unit, group, column, there = _units(part, GROUPS, UNITS, WIDTH)
    row = tl.program_id(1)
    size = part // BLOCK * 4 + 4 + part // 5
    a, b, c, d, e = _get_three(messages + row * size, words + row * (size // 4), unit, group, column, there, part, BLOCK, GROUPS)
    first = row * part + (unit * GROUPS + group) * (5 * PLANE) + column
    _put_mean(values, mean, first, a, there & (first < n))
    _put_mean(values, mean, first + PLANE, b, there & (first + PLANE < n))
    _put_mean(values, mean, first + 2 * PLANE, c, there & (first + 2 * PLANE < n))
    _put_mean(values, mean, first + 3 * PLANE, d, there & (first + 3 * PLANE < n))
    _put_mean(values, mean, first + 4 * PLANE, e, there & (first + 4 * PLANE < n))
