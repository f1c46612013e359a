"""Codecs of one's own: a class from CompLL's seven operators, in torch operations, is a plan after one line (docs/codecs.md).

    @gradwire.register("sign")
    class Sign(Codec):
        def encode(self, values):
            mean = reduce(values.abs(), torch.sum) / values.shape[1]
            return concat(mean, map(values, lambda value: value >= 0, 1))

        def decode(self, messages, n):
            mean, codes = extract(messages, (torch.float32, 1), (1, n))
            return torch.where(codes == 1, mean, -mean)

`plan="group:sign"` then is one of `attach`, `State` and `LocalSteps`. The operators work on the last dimension, on any device, and
make tensors whose shapes depend on shapes alone: nothing waits for an accelerator.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import itertools
import math
import re
import typing
from typing import Callable, TypeVar, Union

import torch
import torch.distributed as dist

INFINITE = 0x7F800000
"""The bits of an infinity, which `magnitude` also has for a NaN."""
RESERVED = ("auto", "bf16", "bounded", "f16", "f32", "hierarchy", "in-network", "low-rank", "ring", "trunc")
"""Names of plans that are no codec of a process group."""

_draws = itertools.count(1)


class Codec:
    """A codec whose messages of `n` values all have the same size, on any device. A class overrides `encode` and `decode`.

    The exchange does the rest: what a message loses is added to the next one (error feedback), tensors below 1024 values go as f32,
    checkpoints have the residual, and all ranks decode the same bytes. So an object keeps nothing from message to message.
    A value that is not finite has to arrive as one: all replicas then see that the step is to be skipped.

    Arguments of a plan are those of `__init__`, each an `int` or a `float` by its annotation; ValueError says what is wrong with one.
    """

    name: str = ""
    """The name with its arguments: as the plan has it, if the class does not say."""
    unit: int = 1
    """Messages have a multiple of so many values: what is missing at a tensor's end are zeros."""
    feeds_back: bool = True
    """Is what a message loses added to the next one? An unbiased codec may do without."""

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Returns messages, uint8 `[rows, size]`, of f32 values `[rows, n]`: a row is one message. The size depends on `n` alone."""
        return self.encode_with(values, values)

    def encode_with(self, values: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Likewise, for a codec that also wants the newest gradient, f32 `[rows, n]`: `values` has the residual, too."""
        return self.encode(values)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        """Returns the values, f32 `[rows, n]`, of messages uint8 `[rows, size]`: the same bits, whatever rows stand beside a row."""
        raise NotImplementedError

    @property
    def wants_gradient(self) -> bool:
        """Does the class override `encode_with`?"""
        return type(self).encode_with is not Codec.encode_with


# Operators.

Code = Callable[[torch.Tensor], torch.Tensor]
Field = tuple[Union[torch.dtype, int], int]


def sort(keys: torch.Tensor, most: int) -> torch.Tensor:
    """Returns the indices, int64 `[..., most]`, of the largest of int32 keys `[..., n]` from 0 on: largest first, of equal ones the first first."""
    n = keys.shape[-1]
    # No two are equal, so that all devices find the same.
    unequal = (keys.to(torch.int64) << 32) + torch.arange(n - 1, -1, -1, device=keys.device)
    return n - 1 - (unequal.topk(most, -1).values & 0xFFFFFFFF)


def filter(keep: torch.Tensor, most: int) -> torch.Tensor:
    """Returns the indices, int64 `[..., most]`, rising, of the first values that a bool tensor `[..., n]` keeps.

    If it keeps fewer, the first of the others fill up: a message has one size. The caller sends zeros for them.
    """
    return sort(keep.to(torch.int32), most).sort(-1).values


def map(values: torch.Tensor, code: Code, bits: int) -> torch.Tensor:
    """Returns a code for each of the values `[..., n]`, packed as docs/host-format.md 2.2 has it: uint8 `[..., ceil(n bits / 8)]`.

    `code` makes integers of 0 to 2^bits - 1, or bools, `[..., n]`; `bits` is 1 to 31.
    """
    codes = code(values)
    if 8 % bits:
        shifts = torch.arange(bits, device=codes.device)
        codes, bits = ((codes.unsqueeze(-1) >> shifts) & 1).flatten(-2), 1
    each = 8 // bits
    codes = torch.nn.functional.pad(codes.to(torch.uint8), (0, -codes.shape[-1] % each)).unflatten(-1, (-1, each))
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    return (codes << shifts).sum(-1, dtype=torch.uint8)


def reduce(values: torch.Tensor, by: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Returns one value `[..., 1]` of values `[..., n]`: `by` is `torch.amax`, `torch.amin`, `torch.sum`, `torch.any` or the like."""
    return by(values, -1, keepdim=True)


def random(like: torch.Tensor, below: int | None = None) -> torch.Tensor:
    """Returns random numbers in the shape of a tensor: f32 in 0 <= r < 1, or int64 in 0 <= r < `below`.

    They are docs/host-format.md 2.4's, with another seed at each call and rank: the script's own random numbers stay as they are.
    """
    low, high = _halves(_seed())
    x = (torch.arange(like.numel(), device=like.device) * 0x9E3779B1 + low) & 0xFFFFFFFF
    # Products of 64 bits overflow, and their lower 32 bits are right.
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    x = (x ^ (x >> 16) ^ high).view(like.shape)
    return (x >> 8).to(torch.float32) / 2**24 if below is None else (x * below) >> 32


def concat(*fields: torch.Tensor) -> torch.Tensor:
    """Returns messages, uint8 `[rows, size]`, of fields `[rows, k]`; of fields `[rows, blocks, k]`, block after block.

    Fields are float32, int32, int8, or uint8 as `map` makes it; little-endian, and all NaNs alike.
    """
    return torch.cat([_as_bytes(field) for field in fields], -1).flatten(1)


def extract(messages: torch.Tensor, *fields: Field) -> list[torch.Tensor]:
    """Returns the fields of messages uint8 `[..., size]`, in the order of `concat`; of blocks, `messages.unflatten(1, (blocks, -1))`.

    `(dtype, k)` is a field `[..., k]` of that dtype; `(bits, k)` are k codes that `map` has packed, int32 `[..., k]`.
    """
    found, at = [], 0
    for kind, k in fields:
        size = math.ceil(k * kind / 8) if isinstance(kind, int) else k * torch.empty((), dtype=kind).element_size()
        part = messages[..., at : at + size]
        # A copy, since a view of wider numbers has to begin at a multiple of them.
        found.append(_unpacked(part, kind, k) if isinstance(kind, int) else part.clone(memory_format=torch.contiguous_format).view(kind))
        at += size
    return found


# What codecs also share.


def peak(values: torch.Tensor) -> torch.Tensor:
    """Returns the largest magnitude, `[..., 1]`; NaN if a value is not finite."""
    largest = reduce(values.abs(), torch.amax)
    return torch.where(largest.isfinite(), largest, math.nan)


def magnitude(values: torch.Tensor) -> torch.Tensor:
    """Returns the magnitudes of f32 values as int32 that are in the same order; of all values that are not finite, INFINITE."""
    return (values.contiguous().view(torch.int32) & 0x7FFFFFFF).clamp(max=INFINITE)


def share(n: int, percent: float) -> int:
    """Returns so many percent of `n` values, rounded up."""
    return min(math.ceil(n * percent / 100), n)


def divided(values: torch.Tensor, by: float) -> torch.Tensor:
    """Returns the quotient, rounded as IEEE 754 has it."""
    # By a tensor: CUDA divides by a Python number by multiplying with its reciprocal, which rounds
    # otherwise.
    return values / torch.full((), by, dtype=values.dtype, device=values.device)


def sparse(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Returns messages of some of the f32 values `[rows, n]`, by rising indices `[rows, k]`: docs/host-format.md 3.9.

    If a value is not finite, all finite ones are sent as zeros: what is sent is lost if the step is skipped.
    """
    n, (rows, k) = values.shape[1], indices.shape
    values = torch.where(peak(values).isnan() & values.isfinite(), 0.0, values)
    count = torch.full((rows, 1), k, dtype=torch.int32, device=values.device)
    return concat(count, map(indices, lambda index: index, index_bits(n)), values.gather(1, indices))


def dense(messages: torch.Tensor, k: int, n: int) -> torch.Tensor:
    """Returns the values, f32 `[rows, n]`, of what `sparse` made of `k` of them: all others are zeros."""
    _, indices, values = extract(messages, (torch.int32, 1), (index_bits(n), k), (torch.float32, k))
    return torch.zeros(len(messages), n, device=messages.device).scatter(1, indices.to(torch.int64), values)


def index_bits(n: int) -> int:
    """Returns the bits of an index of one of `n` values: at least 1, since `map` has no codes of 0 bits."""
    return max((n - 1).bit_length(), 1)


def _as_bytes(field: torch.Tensor) -> torch.Tensor:
    if field.dtype == torch.uint8:
        return field
    if field.dtype == torch.float32:
        canonical = torch.full((), 0x7FC00000, dtype=torch.int32, device=field.device)
        field = torch.where(field.isnan(), canonical, field.contiguous().view(torch.int32))
    if field.dtype not in (torch.int32, torch.int8):
        raise TypeError(f"a field of {field.dtype}: expected float32, int32, int8 or uint8")
    return field.contiguous().view(torch.uint8)


def _unpacked(data: torch.Tensor, bits: int, k: int) -> torch.Tensor:
    if 8 % bits:
        shifts = torch.arange(bits, dtype=torch.int32, device=data.device)
        return (_unpacked(data, 1, k * bits).unflatten(-1, (k, bits)) << shifts).sum(-1, dtype=torch.int32)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=data.device)
    return ((data.unsqueeze(-1) >> shifts) & (2**bits - 1)).flatten(-2)[..., :k].to(torch.int32)


def _seed() -> int:
    rank: int = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    return next(_draws) + (rank << 40)


def _halves(seed: int) -> tuple[int, int]:
    """Returns the lower and the upper 32 bits of a mixed seed of 64."""
    z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    return z % 2**32, z >> 32


# Names.

C = TypeVar("C", bound=Codec)


@dataclasses.dataclass(frozen=True)
class _Entry:
    make: type[Codec]
    usage: str
    types: tuple[type, ...]
    source: str
    """A hash of the class's source, which ranks compare; "" of gradwire's own codecs, since ranks compare its version."""


_ENTRIES: dict[str, _Entry] = {}
_TRIED: dict[tuple[str, type[Codec]], int] = {}
"""Bytes of a message, of codecs that keep the rules."""


def register(name: str) -> Callable[[type[C]], type[C]]:
    """Makes a class of `Codec` the plan `group:NAME`, with its arguments behind colons. Each rank does so, before it names the plan.

    ValueError if the name is taken, but for the same class made anew, as in a notebook; TypeError if the class is no codec.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"a codec's name {name!r}: expected @register(NAME), of lower-case letters, digits, - and _")
    _load()

    def registered(made: type[C]) -> type[C]:
        if not (isinstance(made, type) and issubclass(made, Codec)):
            raise TypeError(f"codec {name!r} is {made!r}: expected a class of gradwire.codec.Codec")
        if made.encode is Codec.encode and made.encode_with is Codec.encode_with or made.decode is Codec.decode:
            raise TypeError(f"codec {name!r}: class {made.__qualname__} needs encode, or encode_with, and decode")
        before = _ENTRIES[name].make if name in _ENTRIES else None
        again = before is not None and (before.__module__, before.__qualname__) == (made.__module__, made.__qualname__)
        if name in RESERVED or before is not None and not again:
            raise ValueError(f"a codec's name {name!r} is taken by {'a plan' if before is None else before.__qualname__}: give another one")
        types, usage = _arguments(name, made)
        _ENTRIES[name] = _Entry(made, usage, types, _source(made))
        return made

    return registered


@functools.cache
def _load() -> None:
    """Lets gradwire's own codecs register themselves."""
    for module in ("gradwire.device.codecs", "gradwire.compll"):
        importlib.import_module(module)


def _arguments(name: str, made: type[Codec]) -> tuple[tuple[type, ...], str]:
    """Returns the types of the arguments of `__init__`, and how a plan with them is written."""
    parameters = inspect.signature(made).parameters.values()
    hints = typing.get_type_hints(made.__init__)
    usage, optional = name, 0
    for each in parameters:
        if hints.get(each.name) not in (int, float) or each.kind is not each.POSITIONAL_OR_KEYWORD:
            raise TypeError(f"codec {name!r}: argument {each.name} of __init__ needs the annotation int or float")
        optional += each.default is not each.empty
        usage += "[" * (each.default is not each.empty) + f":{each.name.upper()}"
    return tuple(hints[each.name] for each in parameters), usage + "]" * optional


def _source(made: type[Codec]) -> str:
    if made.__module__.startswith("gradwire."):
        return ""
    try:
        return hashlib.sha256(inspect.getsource(made).encode()).hexdigest()[:12]
    except (OSError, TypeError):
        # Typed into a console.
        return "unknown"


def usages() -> list[str]:
    """Returns how plans of all codecs are written, such as "q8[:BLOCK]"."""
    _load()
    return [entry.usage for entry in _ENTRIES.values()]


def named(name: str) -> Codec | None:
    """Returns the codec of that name, with its arguments, or None if no codec has it.

    ValueError says which arguments are wrong. A codec that is not gradwire's own is tried once, before any backward pass: ValueError
    names the rule of `Codec` that it breaks.
    """
    _load()
    kind, *arguments = name.split(":")
    if (entry := _ENTRIES.get(kind)) is None:
        return None
    if not entry.usage.count(":") - entry.usage.count("[") <= len(arguments) <= len(entry.types):
        return None
    try:
        made = entry.make(*(of(text) for of, text in zip(entry.types, arguments)))
        if not made.name:
            made.name = name
        if entry.source and (name, entry.make) not in _TRIED:
            _TRIED[name, entry.make] = _tried(made)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return made


def identity(name: str) -> str:
    """Returns what ranks compare of a plan: its name; of a codec that is not gradwire's own also its source, and a message's size."""
    entry = _ENTRIES.get(name.partition(":")[0])
    if entry is None or not entry.source:
        return name
    named(name)
    return f"{name} (source {entry.source}, {_TRIED[name, entry.make]} bytes)"


def _tried(made: Codec) -> int:
    """Returns the bytes of a message. ValueError if the codec breaks a rule."""
    if not isinstance(made.unit, int) or made.unit < 1:
        raise ValueError(f"unit is {made.unit!r}: expected the values of which a message has a multiple, 1 or more")
    n = math.ceil(2048 / made.unit) * made.unit
    normal = torch.randn(3, n, generator=torch.Generator().manual_seed(1))
    nan, infinite = normal.clone(), normal * 1e30
    nan[1, n // 2], infinite[1, n - 1] = math.nan, -math.inf
    sizes = set()
    for values in (normal, torch.zeros(3, n), nan, infinite, normal[:1]):
        rows, given = len(values), values.clone()
        messages = made.encode_with(values, values)
        _check("encode", messages, torch.uint8, rows, None, values.device)
        if not torch.equal(values.view(torch.int32), given.view(torch.int32)):
            raise ValueError("encode changes the values that it is given: work on a copy")
        sizes.add(messages.shape[1])
        decoded = made.decode(messages, n)
        _check("decode", decoded, torch.float32, rows, n, values.device)
        alone = torch.cat([made.decode(messages[row : row + 1], n) for row in range(rows)])
        if not torch.equal(*(torch.where(each.isnan(), math.inf, each) for each in (decoded, alone))):
            raise ValueError("decode makes other values of the same message, or of a message beside others: replicas would differ")
        if bool((values.isfinite().all(1) != decoded.isfinite().all(1)).any()):
            raise ValueError("a message decodes to values that are not finite if, and only if, it was given such: not so here")
    if len(sizes) > 1:
        raise ValueError(f"messages of {n} values have {sorted(sizes)} bytes: expected one size, whatever the values and the number of rows are")
    meta = torch.empty(3, n, device="meta")
    try:
        messages = made.encode_with(meta, meta)
        decoded = made.decode(messages, n)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"on a device whose values are not known (torch's meta), it fails: a value is asked for by the host, a shape depends on values, or "
            f"a tensor was made without device=; {error}"
        ) from None
    _check("encode", messages, torch.uint8, 3, sizes.pop(), meta.device)
    _check("decode", decoded, torch.float32, 3, n, meta.device)
    size: int = messages.shape[1]
    return size


def _check(what: str, found: object, dtype: torch.dtype, rows: int, columns: int | None, device: torch.device) -> None:
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"{what} returns {type(found).__name__}: expected a tensor")
    right = found.dtype == dtype and found.dim() == 2 and len(found) == rows and columns in (None, found.shape[1]) and found.device == device
    if not right:
        expected = f"{dtype} [{rows}, {'size' if columns is None else columns}] on {device}"
        raise ValueError(f"{what} returns {found.dtype} {list(found.shape)} on {found.device}: expected {expected}")
