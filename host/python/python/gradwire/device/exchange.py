"""The coded all-reduce over a process group: each rank sums one part of the tensor, and sends all others the coded sum.

Two collectives move bytes: `all_to_all_single` brings each part to its owner, `all_gather_into_tensor` the sums to everybody. All
ranks decode the same bytes, one multiplication a value, so all get the same bits. Values without a codec go the same way, behind the
messages: an all-reduce of their own takes as long as both collectives if they are few.

On CPUs, sums go by `all_to_all_single`, too: gloo's all-gather has other ranks pass them on, and each of these steps waits for the one
before. A long message of q8 or q4 goes out in pieces: while later ones come to their owner, it sends the sums of those before. All
ranks first begin all collectives to owners, and then one after the other of the sums, since order pairs them. By torch operations, and
where parameters may be unused, sums wait for all pieces. To code piece by piece, too, made no iteration shorter: 142 ms instead of 138,
of 4 ranks on two processors at 200 Mbit/s.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gradwire.codec import Codec, divided
from gradwire.device import native
from gradwire.device.codecs import ScaledIntegers

if TYPE_CHECKING:
    from gradwire.device.kernels import Kernels


PIECES = 8
"""A message goes out in so many pieces at most."""
PIECE_BYTES = 1 << 15
"""Shorter pieces cost more than they save: on a fast network, a collective takes as long as these bytes."""


@dataclasses.dataclass
class Mean:
    """The mean over all ranks, and what coding it lost."""

    values: torch.Tensor
    """The mean as all ranks decode it, f32 `[n]`."""
    lost: torch.Tensor
    """The given values minus what this rank's messages say, f32 `[n]`; 0 where that is not finite."""
    lost_of_owned: torch.Tensor
    """The mean of the part that this rank owns, minus what its message says, f32 `[part]`; likewise."""


def kernels(codec: Codec, values: torch.Tensor) -> Kernels | None:
    """Returns what does the work of torch operations on such a gradient: Rust on the CPU, and Triton elsewhere with GRADWIRE_KERNELS=1."""
    asked = os.environ.get("GRADWIRE_KERNELS")
    if values.device.type == "cpu":
        return None if asked == "0" else native.kernels(codec, values)
    return _found()(codec, values) if asked == "1" else None


@functools.cache
def _found() -> Callable[[Codec, torch.Tensor], Kernels | None]:
    try:
        from gradwire.device.kernels import kernels
    except ImportError:
        return lambda codec, values: None
    return kernels


class Group:
    """A process group, and the bytes that this rank has sent in it."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.rank: int = dist.get_rank(group)
        self.ranks: int = dist.get_world_size(group)
        self.sent_bytes = 0

    def leave(self, error: BaseException | None) -> None:
        """Closes the group's connections, after which other ranks' waits end. Gloo tells only some of them that a rank is lost."""
        group, self.group = self.group, None
        if group is None:
            return
        if error is not None:
            # Its frames have the group, too.
            traceback.clear_frames(error.__traceback__)
        # It may be gone with all others.
        with contextlib.suppress(AssertionError, RuntimeError, ValueError):
            dist.destroy_process_group(group)

    def part(self, n: int, unit: int) -> int:
        """Returns the values of one rank's part of `n`, a multiple of `unit`. The last parts may be beyond the tensor's end."""
        return math.ceil(n / (self.ranks * unit)) * unit

    def owned(self, n: int, unit: int) -> slice:
        """Returns the range of `n` values that this rank owns."""
        part = self.part(n, unit)
        return slice(min(self.rank * part, n), min((self.rank + 1) * part, n))

    def mean(
        self,
        values: torch.Tensor,
        codec: Codec,
        feedback: Callable[[torch.Tensor], torch.Tensor] | None = None,
        gradient: torch.Tensor | None = None,
        exact: torch.Tensor | None = None,
    ) -> Mean:
        """Returns the mean of all ranks' `values`, f32 `[n]`, by messages of the codec both ways.

        `feedback` returns what is added to the mean of this rank's part, which it is given: both are f32 `[part]`.
        `gradient` is `values` without the residual, f32 `[n]`, for a codec that wants it. `exact`, f32, becomes its own mean, without
        the codec.
        """
        n, part = len(values), self.part(len(values), codec.unit)
        rows = self._parts(values, codec.unit)
        messages = codec.encode_with(rows, self._parts(gradient, codec.unit)) if codec.wants_gradient and gradient is not None else codec.encode(rows)
        lost = _lost(rows, messages, codec).view(-1)[:n]
        mean = total = divided(self._sum_of_part(messages, codec, part, exact), self.ranks)
        if feedback is not None:
            total = mean + feedback(mean[0])
        message = codec.encode_with(total, mean)
        _, sizes = _pieces(codec, message, part)
        gathered = self._to_all(message.split(sizes, 1), sizes, exact)
        return Mean(codec.decode(gathered, part).view(-1)[:n], lost, _lost(total, message, codec).view(-1))

    def mean_by_kernels(
        self,
        values: torch.Tensor,
        codec: Codec,
        by: Kernels,
        residual: torch.Tensor,
        residual_of_owned: torch.Tensor,
        used: torch.Tensor | None,
        used_of_owned: Callable[[torch.Tensor], torch.Tensor],
        exact: torch.Tensor | None,
    ) -> torch.Tensor:
        """Replaces `values` by the mean of all ranks' values and residuals, and residuals by what is lost: `mean` and its feedback by kernels.

        Residuals of values that are not `used` wait, if there is such; `used_of_owned` says it of the mean of this rank's part.
        Returns the mean in f32: `values` itself, if that is its dtype.
        """
        part = self.part(len(values), codec.unit)
        messages = by.encode(values, residual, self.ranks, part, used)
        pieces, sizes = _pieces(codec, messages, part)
        received = self._to_owners(messages, sizes, exact)
        sums: Iterable[torch.Tensor]
        if used is None:
            sums = map(by.encode_mean, received, residual_of_owned.split(pieces))
        else:
            total = by.mean(torch.cat(list(received), 1), part)
            sums = by.encode(total, residual_of_owned, 1, part, used_of_owned(total)).split(sizes, 1)
        return by.decode(self._to_all(sums, sizes, exact), part, values)

    def sum_of_part(self, values: torch.Tensor, codec: Codec) -> torch.Tensor:
        """Returns the sum of all ranks' values of this rank's part, f32 `[n]`, of f32 `[ranks, n]`, by messages of the codec."""
        n = values.shape[1]
        part = math.ceil(n / codec.unit) * codec.unit
        messages = codec.encode(torch.nn.functional.pad(values, (0, part - n)))
        return self._sum_of_part(messages, codec, part, None)[0, :n]

    def _sum_of_part(self, messages: torch.Tensor, codec: Codec, part: int, exact: torch.Tensor | None) -> torch.Tensor:
        """Brings each rank its message, and returns the sum of what they say, f32 `[1, part]`."""
        pieces, sizes = _pieces(codec, messages, part)
        totals = []
        for n, received in zip(pieces, self._to_owners(messages, sizes, exact)):
            # Message after message: all at once would take as much memory again as the tensor.
            total = codec.decode(received[:1], n)
            for rank in range(1, self.ranks):
                total += codec.decode(received[rank : rank + 1], n)
            totals.append(total)
        return _joined(totals)

    def _to_owners(self, messages: torch.Tensor, sizes: list[int], exact: torch.Tensor | None) -> Iterator[torch.Tensor]:
        """Sends each rank its row, in pieces of these sizes, and yields those of the rows for this one. It begins all before the first is there.

        Where this rank owns them, values of `exact` become their mean.
        """
        pieces = list(messages.split(sizes, 1))
        if exact is not None:
            # Before the sum, which then overflows no earlier than a value.
            exact /= self.ranks
            pieces[-1] = _behind(pieces[-1], self._parts(exact))
        begun = []
        for piece in pieces:
            piece = piece.contiguous()
            received = torch.empty_like(piece)
            begun.append((self._all_to_all(received, piece, len(sizes) > 1), received))
        for number, (work, received) in enumerate(begun, 1):
            if work is not None:
                work.wait()
            if exact is not None and number == len(begun):
                received, theirs = _apart(received, sizes[-1])
                mine = exact[self.owned(len(exact), 1)]
                mine.copy_(theirs.sum(0)[: len(mine)])
            yield received

    def _to_all(self, pieces: Iterable[torch.Tensor], sizes: list[int], exact: torch.Tensor | None) -> torch.Tensor:
        """Sends the pieces of a row, of these sizes, to all ranks, each as soon as it is there, and returns all rows. `exact` has all means then."""
        begun = []
        for number, piece in enumerate(pieces, 1):
            if exact is not None and number == len(sizes):
                piece = _behind(piece, self._parts(exact)[self.rank : self.rank + 1])
            gathered = piece.new_empty(self.ranks, piece.shape[1])
            if piece.device.type == "cpu":
                work = self._all_to_all(gathered, piece.expand(self.ranks, -1).contiguous(), len(sizes) > 1)
            else:
                self.sent_bytes += (self.ranks - 1) * piece.shape[1]
                work = dist.all_gather_into_tensor(gathered.view(-1), piece.reshape(-1), group=self.group, async_op=len(sizes) > 1)
            begun.append((work, gathered))
        for work, _ in begun:
            if work is not None:
                work.wait()
        rows = _joined([gathered for _, gathered in begun])
        if exact is not None:
            rows, means = _apart(rows, sum(sizes))
            exact.copy_(means.view(-1)[: len(exact)])
        return rows

    def _all_to_all(self, received: torch.Tensor, rows: torch.Tensor, in_background: bool) -> dist.Work | None:
        self.sent_bytes += (self.ranks - 1) * rows.shape[1]
        return dist.all_to_all_single(received, rows, group=self.group, async_op=in_background)

    def _parts(self, values: torch.Tensor, unit: int = 1) -> torch.Tensor:
        """Returns the values, padded with zeros, by the rank that owns them: `[ranks, part]`."""
        part = self.part(len(values), unit)
        return torch.nn.functional.pad(values, (0, self.ranks * part - len(values))).view(self.ranks, part)

    def exact_mean(self, values: torch.Tensor) -> torch.Tensor:
        """Replaces the values by the mean of all ranks' values, as DDP without a hook makes it, and returns them."""
        # Before the sum, which then overflows no earlier than a value.
        values /= self.ranks
        dist.all_reduce(values, group=self.group)
        # As a ring sends them.
        self.sent_bytes += 2 * (self.ranks - 1) * math.ceil(len(values) / self.ranks) * values.element_size()
        return values

    def exact_mean_of_part(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the mean of all ranks' values of this rank's piece, one of equal pieces of the values, padded with zeros."""
        parts = self._parts(values) / self.ranks
        mean = torch.empty_like(parts[0])
        dist.reduce_scatter_tensor(mean, parts.view(-1), group=self.group)
        self.sent_bytes += (self.ranks - 1) * mean.numel() * values.element_size()
        return mean

    def put_parts(self, part: torch.Tensor, values: torch.Tensor) -> None:
        """Fills the values with all ranks' pieces."""
        padded = torch.empty(self.ranks * len(part), dtype=part.dtype, device=part.device)
        dist.all_gather_into_tensor(padded, part, group=self.group)
        self.sent_bytes += (self.ranks - 1) * part.numel() * part.element_size()
        values.copy_(padded[: len(values)])

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """Replaces each value by the largest of all ranks', and returns them."""
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)
        return values


def gathered(mine: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """Returns what each rank gives, by rank."""
    everybody: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybody, mine, group=group)
    return everybody


def checksum(values: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the values' bits, of f32 values: replicas that have the same values have the same sum."""
    # A NaN may have any bits.
    return torch.where(values.isnan(), 0.0, values).view(torch.int32).sum(dtype=torch.int64)


def _pieces(codec: Codec, messages: torch.Tensor, part: int) -> tuple[list[int], list[int]]:
    """Returns how messages of `part` values are cut into pieces, which are messages, too: the values of each, and its bytes."""
    # Messages of other codecs may be no sequence of their units.
    if isinstance(codec, ScaledIntegers) and messages.device.type == "cpu":
        number = min(PIECES, messages.shape[1] // PIECE_BYTES)
        if number > 1:
            longest = math.ceil(part / (number * codec.unit)) * codec.unit
            values = [min(longest, part - start) for start in range(0, part, longest)]
            return values, [codec.size(n) for n in values]
    return [part], [messages.shape[1]]


def _behind(messages: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Returns rows of bytes with those of f32 values behind."""
    return torch.cat((messages, values.view(torch.uint8)), 1)


def _apart(rows: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the first `size` bytes of each row, and the f32 values behind."""
    messages, values = rows.split((size, rows.shape[1] - size), 1)
    # Copied also if there is one row: values may begin anywhere in it.
    return messages.contiguous(), values.clone(memory_format=torch.contiguous_format).view(torch.float32)


def _joined(pieces: list[torch.Tensor]) -> torch.Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


def _lost(values: torch.Tensor, messages: torch.Tensor, codec: Codec) -> torch.Tensor:
    """Returns what the messages do not say of values `[rows, n]`; zeros if the codec does without."""
    return finite(values - codec.decode(messages, values.shape[1])) if codec.feeds_back else torch.zeros_like(values)


def finite(values: torch.Tensor) -> torch.Tensor:
    """Replaces what is not finite by 0, and returns the values."""
    return values.nan_to_num_(0.0, 0.0, 0.0)
