"""A bucket: a flat tensor that is exchanged as one, and the residual of its values."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch

from gradwire.codec import Codec
from gradwire.device import low_rank
from gradwire.device.exchange import Group, finite, kernels
from gradwire.device.plan import GroupPlan

if TYPE_CHECKING:
    from gradwire.device.kernels import Kernels

SMALL = 1024
"""Parameters of fewer values are summed as f32: their messages would cost more than their bytes."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The parameters of a bucket, one after the other: names and sizes."""

    names: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    bucket: tuple[str, ...] = ()
    """Of a piece: the names of all parameters, also those that other pieces have."""

    @property
    def lens(self) -> list[int]:
        return [math.prod(size) for size in self.sizes]

    def piece(self, start: int, length: int) -> Layout:
        """Returns the layout of `length` values from `start` on: parts of parameters are named `NAME[FIRST:END]`, what is beyond the end ''."""
        names, sizes = [], []
        at = 0
        for name, each in zip(self.names, self.lens):
            first, end = max(start - at, 0), min(start + length - at, each)
            at += each
            if first < end:
                names.append(f"{name}[{first}:{end}]")
                sizes.append((end - first,))
        if (beyond := length - sum(size for (size,) in sizes)) > 0:
            names.append("")
            sizes.append((beyond,))
        return Layout(tuple(names), tuple(sizes), self.names)


class Bucket:
    """The exchange of one bucket, always by the group's ranks together. Its methods never wait for the device.

    The residual is in units of this rank's gradient before scaling: `dtype` is bfloat16 if the gradient's is, else float32.
    With `skips`, a step may be skipped: what an exchange lost counts only after `commit`.
    """

    def __init__(self, layout: Layout, tensor: torch.Tensor, *, may_be_unused: bool, skips: bool) -> None:
        self.layout = layout
        self._parameters = set(layout.bucket or layout.names)
        self.lens = layout.lens
        self.n = sum(self.lens)
        if self.n != tensor.numel():
            raise ValueError(f"a bucket of {tensor.numel()} values, whose parameters have {self.n}")
        self.device, self.element_size = tensor.device, tensor.element_size()
        # float16 has no range for what is lost again and again.
        self._dtype = torch.bfloat16 if tensor.dtype == torch.bfloat16 else torch.float32
        # None before the first codec: DDP makes its first buckets for one iteration.
        self.residual: torch.Tensor | None = None
        # Of this rank's part, in units of the mean. Its length is the plan's.
        self.owned: torch.Tensor | None = None
        self.factors: low_rank.Factors | None = None
        self._saved_factors: dict[str, torch.Tensor] = {}
        self.plan: GroupPlan | None = None
        self.exact: torch.Tensor | None = None
        self.exact_values = 0
        self._may_be_unused = may_be_unused
        self._skips = skips
        self._new: tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor] | None] | None = None
        # Of `owned`: those of the parameters in it, and of what is beyond the tensor's end.
        self._owned_lens: list[int] = []
        # Of `owned`: what no message is for. A codec may make something of zeros.
        self._owned_exact: torch.Tensor | None = None
        # May the residual have anything?
        self._holds = False

    def exchange(self, group: Group, plan: GroupPlan, values: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """Replaces the flat `values` by their mean over the group, in their dtype, and returns the mean as f32, with the same bits at all ranks.

        `scale` is the loss's, of one value on the device.
        """
        if plan.coded:
            self._follow(group, plan)
        elif not self._holds:
            return self._uncoded(group, plan, values)
        assert self.residual is not None
        if plan.codec is not None and scale is None and (found := self._kernels(plan.codec, values)) is not None:
            return self._by_kernels(group, plan.codec, found, values)
        gradient = values.to(torch.float32)
        residual = self.residual.to(torch.float32) if plan.coded else self._folded(group)
        if scale is not None:
            residual = residual * scale
        # What a parameter without a gradient lost before waits until this rank has one.
        used = self._used(gradient, self.lens)
        # In place of what nobody needs any more: a new tensor would take memory, and time.
        in_place = plan.coded and residual is self.residual and used is None and not self._skips
        total = residual.add_(gradient) if in_place else gradient + _of_used(residual, used)
        owned, factors = None, None
        if plan.coded:
            mean, lost, owned, factors = self._coded(group, plan, total, gradient, scale)
            if mean is not values:
                values.copy_(mean)
        else:
            values.copy_(total)
            lost = finite(total - values.to(torch.float32))
            mean = self._uncoded(group, plan, values)
            if self.owned is not None:
                owned = torch.zeros_like(self.owned)
        if used is not None:
            lost = torch.where(used, lost, residual + lost)
        self._new = (lost if scale is None else lost / scale, owned, factors)
        self._holds = plan.coded or self._may_be_unused or self._skips
        if not self._skips:
            self.commit(None)
        return mean

    def _kernels(self, codec: Codec, values: torch.Tensor) -> Kernels | None:
        """Returns what exchanges these values, if what they lost may be taken over at once."""
        if self._skips or self.exact_values == self.n:
            return None
        return kernels(codec, values)

    def _by_kernels(self, group: Group, codec: Codec, by: Kernels, values: torch.Tensor) -> torch.Tensor:
        """Does what `exchange` does with a codec. The same collectives, in the same order: other ranks may have no kernels."""
        assert self.residual is not None and self.owned is not None
        used = self._used(values, self.lens)
        exact = None
        if self.exact is not None:
            held = self.residual[self.exact]
            waits = torch.zeros_like(held) if used is None else torch.where(used[self.exact], 0.0, held)
            exact = values[self.exact].to(torch.float32) + (held - waits).to(torch.float32)
            values.index_fill_(0, self.exact, 0.0)
            self.residual.index_copy_(0, self.exact, waits)
        mean = group.mean_by_kernels(values, codec, by, self.residual, self.owned, used, lambda part: self._used(part, self._owned_lens), exact)
        if exact is not None:
            assert self.exact is not None
            for each in (mean, values):
                each.index_copy_(0, self.exact, exact.to(each.dtype))
        self._holds = True
        return mean

    def _coded(
        self, group: Group, plan: GroupPlan, total: torch.Tensor, gradient: torch.Tensor, scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, list[torch.Tensor] | None]:
        """Returns the mean of all ranks' `total`, what this rank lost, in units of the scaled loss, and what follows `owned` and `factors`.

        It may overwrite `total` and `gradient`, and return them.
        """
        exact = None
        if self.exact is not None:
            exact = total.index_select(0, self.exact)
            total.index_fill_(0, self.exact, 0.0)
        owned, factors = None, None
        if self.exact_values == self.n:
            if exact is not None:
                group.exact_mean(exact)
            mean, lost = torch.zeros_like(total), torch.zeros_like(total)
        elif plan.codec is not None:
            assert self.owned is not None
            before, used = self.owned.to(torch.float32), None

            def feedback(part: torch.Tensor) -> torch.Tensor:
                nonlocal used
                # Likewise: it waits for a gradient of any rank.
                used = self._used(part, self._owned_lens)
                return _of_used(before if scale is None else before * scale, used)

            if self.exact is not None and plan.codec.wants_gradient:
                gradient = gradient.index_fill(0, self.exact, 0.0)
            coded = group.mean(total, plan.codec, feedback, gradient, exact)
            mean, lost, owned = coded.values, _without(coded.lost, self.exact), _without(coded.lost_of_owned, self._owned_exact)
            if scale is not None:
                owned = owned / scale
            if used is not None:
                owned = torch.where(used, owned, before + owned)
        else:
            assert self.factors is not None
            # What is in no matrix is exact.
            mean, lost = gradient, total
            factors = self.factors.mean(group, total, mean, exact)
        if exact is not None:
            assert self.exact is not None
            mean.index_copy_(0, self.exact, exact)
        return mean, lost, owned, factors

    def commit(self, finite: torch.Tensor | None) -> None:
        """Takes over what the last exchange lost, unless `finite`, of one bool on the device, says that the step is skipped."""
        if self._new is None:
            return
        lost, owned, factors = self._new
        self._new = None

        def followed(old: torch.Tensor | None, new: torch.Tensor | None) -> torch.Tensor | None:
            if old is None or new is None:
                return old
            return (new if finite is None else torch.where(finite, new, old.to(torch.float32))).to(self._dtype)

        self.residual, self.owned = followed(self.residual, lost), followed(self.owned, owned)
        if factors is not None and self.factors is not None:
            rights = zip(self.factors.right, factors)
            self.factors.right = [new if finite is None else torch.where(finite, new, old) for old, new in rights]

    def saved(self, group: Group) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Returns copies, by name: of the residual, in units of this rank's gradient, and of the factors."""
        residuals = {}
        if self.residual is not None:
            # The part's residual becomes its owner's own.
            flat = self._folded(group).to(self._dtype)
            residuals = {name: part.clone() for name, part in zip(self.layout.names, flat.split(self.lens)) if name}
        if self.factors is None:
            return residuals, self._saved_factors
        return residuals, {each.name: right.clone() for each, right in zip(self.factors.shapes, self.factors.right)}

    def take(self, residuals: dict[str, torch.Tensor], factors: dict[str, torch.Tensor]) -> None:
        """Adds residuals by name, of parameters or their parts, and removes them there; factors begin as these.

        ValueError if a residual has another number of values than its parameter.
        """
        self._saved_factors = factors
        parts: dict[str, list[tuple[str, torch.Tensor]]] = {}
        for saved in list(residuals):
            if (whole := _start(saved)[0]) in self._parameters:
                parts.setdefault(whole, []).append((saved, residuals.pop(saved).view(-1)))
        for name, mine in zip(self.layout.names, self._allocated().split(self.lens) if parts else ()):
            whole, first = _start(name)
            for saved, more in parts.get(whole, ()):
                start = _start(saved)[1]
                if name == whole and (len(more) != len(mine) if saved == whole else start + len(more) > len(mine)):
                    raise ValueError(f"the residual of {saved} has {len(more)} values, the parameter {len(mine)}")
                # What both are parts of.
                begin, end = max(first, start), min(first + len(mine), start + len(more))
                if begin < end:
                    mine[begin - first : end - first] += more[begin - start : end - start].to(mine.device)
                    self._holds = True

    def reset(self) -> None:
        """Forgets what is lost."""
        self.residual = self.owned = self.factors = self.plan = None
        self._holds = False

    def largest_residual(self, group: Group) -> float:
        """Returns the largest magnitude of what is lost, in units of the sum over all ranks. It waits for the device."""
        if self.residual is None or not self.n:
            return 0.0
        return float(self._folded(group).abs().max())

    def _allocated(self) -> torch.Tensor:
        if self.residual is None:
            self.residual = torch.zeros(self.n, dtype=self._dtype, device=self.device)
        return self.residual

    def _uncoded(self, group: Group, plan: GroupPlan, values: torch.Tensor) -> torch.Tensor:
        if plan.bf16 and values.dtype == torch.float32:
            values.copy_(group.exact_mean(values.to(torch.bfloat16)))
        else:
            group.exact_mean(values)
        return values.to(torch.float32)

    def _used(self, values: torch.Tensor, lens: list[int]) -> torch.Tensor | None:
        """Returns whether each value is of a parameter that has a gradient: one of zeros alone is none. None, if all have."""
        if not self._may_be_unused:
            return None
        return torch.cat([part.any().expand(len(part)) for part in values.split(lens)])

    def _folded(self, group: Group) -> torch.Tensor:
        """Returns the residual, f32, with that of the owned part: its owner may send it as its own."""
        flat = self._allocated().to(torch.float32)
        if self.owned is not None and self.plan is not None and self.plan.codec is not None:
            flat = flat.clone()
            owned = group.owned(self.n, self.plan.codec.unit)
            flat[owned] += group.ranks * self.owned[: owned.stop - owned.start]
        return flat

    def _follow(self, group: Group, plan: GroupPlan) -> None:
        """Gets ready for a plan, if the last exchange had another one."""
        if self.plan == plan:
            return
        self._allocated().copy_(self._folded(group))
        self.plan, self.owned, self.factors = plan, None, None
        starts = [sum(self.lens[:at]) for at in range(len(self.lens))]
        exact = [(start, length) for start, length in zip(starts, self.lens) if length < SMALL]
        if plan.codec is not None:
            part = group.part(self.n, plan.codec.unit)
            self.owned = torch.zeros(part, dtype=self._dtype, device=self.device)
            own = group.owned(self.n, plan.codec.unit)
            overlaps = [min(start + length, own.stop) - max(start, own.start) for start, length in zip(starts, self.lens)]
            self._owned_lens = [each for each in overlaps if each > 0]
            self._owned_lens.append(part - sum(self._owned_lens))
        else:
            assert plan.rank is not None
            shapes = []
            for name, start, size, length in zip(self.layout.names, starts, self.layout.sizes, self.lens):
                found = low_rank.shape(name, start, size, plan.rank) if length >= SMALL else None
                if found:
                    shapes.append(found)
                elif length >= SMALL:
                    exact.append((start, length))
            self.factors = low_rank.Factors(shapes, self.device, self._saved_factors)
        self.exact_values = sum(length for _, length in exact)
        self.exact, self._owned_exact = _places(exact, 0, self.n, self.device), None
        if plan.codec is not None:
            first = group.rank * part
            self._owned_exact = _places([*exact, (self.n, group.ranks * part)], first, first + part, self.device)


def _start(name: str) -> tuple[str, int]:
    """Returns the parameter that a name is of, and where in it the named part starts."""
    whole, _, part = name.partition("[")
    return whole, int(part.partition(":")[0] or 0)


def _places(ranges: list[tuple[int, int]], first: int, end: int, device: torch.device) -> torch.Tensor | None:
    """Returns what of the ranges, each a start and a length, is between `first` and `end`, as indices from `first` on."""
    inside = [(max(start, first), min(start + length, end)) for start, length in ranges]
    found = [torch.arange(start - first, stop - first) for start, stop in inside if start < stop]
    return torch.cat(found).to(device) if found else None


def _of_used(values: torch.Tensor, used: torch.Tensor | None) -> torch.Tensor:
    """Returns the values, with zeros where they are not used."""
    return values if used is None else torch.where(used, values, 0.0)


def _without(lost: torch.Tensor, exact: torch.Tensor | None) -> torch.Tensor:
    """Puts zeros where no message counts, and returns what is lost."""
    return lost if exact is None else lost.index_fill_(0, exact, 0.0)


def shared(residuals: list[dict[str, torch.Tensor]], ranks: int) -> dict[str, torch.Tensor]:
    """Returns the residual that each rank goes on with, by name, f32, if those of all ranks before are given, of which so many had each value.

    Their mean is what counts.
    """
    share: dict[str, torch.Tensor] = {}
    for one in residuals:
        for name, values in one.items():
            part = values.to(torch.float32) / ranks
            share[name] = share[name] + part if name in share else part
    return share
