"""Exchanges of a job's ranks that may be undone: over links, or over a process group."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gradwire._hosts import BY_HOST
from gradwire._link import Link
from gradwire._names import Names
from gradwire._native import Error, Plan
from gradwire._over_links import OverLinks
from gradwire._thread import JobThread
from gradwire._worker import Layout as LinkLayout
from gradwire.device.bucket import Bucket, Layout, shared
from gradwire.device.exchange import Group, checksum
from gradwire.device.lane import ThreadLane
from gradwire.device.over_group import check
from gradwire.device.plan import PREFIX, GroupPlan, group_plan


class Exchange(Protocol):
    """What a thread does for a round: the calls of all ranks are the same, in the same order. `thread` runs them."""

    plan: str
    rank: int
    ranks: int
    device: torch.device
    """Where values are exchanged."""

    @property
    def thread(self) -> JobThread:
        """Returns what runs the jobs."""

    @property
    def close(self) -> Callable[[], Any]:
        """Returns what ends the thread, and the connections."""

    @property
    def sent_bytes(self) -> int:
        """Returns the bytes that this rank has sent."""

    def mean(self, number: int, values: torch.Tensor) -> None:
        """Replaces a fragment's values, f32 `[n]`, by their mean over the ranks, by the plan, and changes its residual."""

    def exact_mean(self, values: torch.Tensor) -> None:
        """Likewise, without a codec, and any f32 values."""

    def commit(self) -> None:
        """Keeps what the exchanges since the last commit did to residuals: all ranks take over their means."""

    def undo(self) -> None:
        """Undoes it: no rank takes them over."""

    def residuals(self) -> Any:
        """Returns this rank's residuals for `resume`, or for a checkpoint: those of the last commit, or undo."""

    def resume(self, residuals: Any) -> None:
        """Goes on with them, among as many ranks as there are now."""

    def share(self, residuals: list[Any]) -> None:
        """Goes on with this rank's share of those of all ranks before."""

    def largest_residual(self) -> float:
        """Returns their largest magnitude."""

    def lane(self) -> contextlib.AbstractContextManager[Any]:
        """Returns what lets the thread's operations run beside those of the training, on an accelerator."""

    def wait(self) -> None:
        """Waits until the device has done what this thread gave it."""


class ByLinks:
    """Over links, in f32 on the CPU, wherever the model is."""

    def __init__(self, link: Link, plan: str | Plan, fragments: list[tuple[list[str], list[tuple[int, ...]]]]) -> None:
        self._over = OverLinks(link, plan, Names(None), pipeline=False, width=2, warmup=3, server=None, scaler=None)
        self.thread = self._worker = self._over.worker
        self.plan, self.rank, self.ranks = str(self._worker.plan), link.rank, link.ranks
        self.device = torch.device("cpu")
        self.sent_bytes = 0
        self._layouts = [LinkLayout(names, [torch.empty(shape, device="meta") for shape in shapes]) for names, shapes in fragments]
        self._uncoded = Plan("f32")
        self.close = self._over.close
        self.commit()

    def mean(self, number: int, values: torch.Tensor) -> None:
        *_, sent, _, _ = self._worker.channel.exchange(values, self._layouts[number].native, self._worker.plan, True)
        self.sent_bytes += sent

    def exact_mean(self, values: torch.Tensor) -> None:
        # No parameter has such a name.
        layout = LinkLayout([f"..{values.numel()}"], [values])
        *_, sent, _, _ = self._worker.channel.exchange(values, layout.native, self._uncoded, True)
        self.sent_bytes += sent

    def commit(self) -> None:
        self._worker.channel.mark()

    def undo(self) -> None:
        self._worker.channel.undo()

    def residuals(self) -> torch.Tensor:
        return torch.frombuffer(bytearray(self._worker.channel.save()), dtype=torch.uint8)

    def resume(self, residuals: torch.Tensor) -> None:
        self._worker.channel.resume(residuals.numpy().tobytes())
        self.commit()

    def share(self, residuals: list[torch.Tensor]) -> None:
        self._worker.channel.load([each.numpy().tobytes() for each in residuals], self.rank)
        self.commit()

    def largest_residual(self) -> float:
        return self._worker.channel.largest_residual()

    def lane(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def wait(self) -> None:
        pass


class ByGroup:
    """Over a process group, on the device where the model is."""

    def __init__(
        self, group: dist.ProcessGroup | None, plan: str, device: torch.device, fragments: list[tuple[list[str], list[tuple[int, ...]]]]
    ) -> None:
        check(device, torch.float32)
        self._plan: GroupPlan = group_plan(plan)
        if self._plan.by_host:
            raise ValueError(f"plan {plan!r}: local steps average all ranks alike; leave out {BY_HOST!r}")
        # One of its own: the thread's messages and those of the script would mix.
        own = dist.new_group(dist.get_process_group_ranks(group or dist.group.WORLD), use_local_synchronization=True)
        self._group = Group(own)
        self.plan, self.rank, self.ranks, self.device = str(self._plan), self._group.rank, self._group.ranks, device
        layouts = [Layout(tuple(names), tuple(shapes)) for names, shapes in fragments]
        self._buckets = [Bucket(each, torch.empty(sum(each.lens), device=device), may_be_unused=False, skips=True) for each in layouts]
        self._exchanged: list[Bucket] = []
        self._module: Any = torch.get_device_module(device)
        self._stream = None if device.type == "cpu" else self._module.Stream(device)
        # On an accelerator, the backend ends the others' waits.
        self.thread = ThreadLane(*([self._group] if device.type == "cpu" else []))
        self.close = weakref.finalize(self, self.thread.close)

    @property
    def sent_bytes(self) -> int:
        return self._group.sent_bytes

    def mean(self, number: int, values: torch.Tensor) -> None:
        bucket = self._buckets[number]
        mean = bucket.exchange(self._group, self._plan, values)
        self._exchanged.append(bucket)
        bits = checksum(mean)
        most, least = self._group.largest(torch.stack((bits, -bits))).tolist()
        if most != -least:
            raise Error("replicas got different means of one round; do all ranks have the same hardware, torch and gradwire?")

    def exact_mean(self, values: torch.Tensor) -> None:
        self._group.exact_mean(values)

    def commit(self) -> None:
        for bucket in self._exchanged:
            bucket.commit(None)
        self._exchanged.clear()

    def undo(self) -> None:
        # The next exchange forgets what was lost in this one.
        self._exchanged.clear()

    def residuals(self) -> dict[str, torch.Tensor]:
        saved: dict[str, torch.Tensor] = {}
        for bucket in self._buckets:
            saved.update({name: values.cpu() for name, values in bucket.saved(self._group)[0].items() if values.any()})
        return saved

    def resume(self, residuals: dict[str, torch.Tensor]) -> None:
        residuals = dict(residuals)
        for bucket in self._buckets:
            bucket.reset()
            bucket.take(residuals, {})

    def share(self, residuals: list[dict[str, torch.Tensor]]) -> None:
        self.resume(shared(residuals, len(residuals)))

    def lane(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self._stream is None else self._module.stream(self._stream)

    def wait(self) -> None:
        if self._stream is not None:
            self._module.current_stream(self.device).synchronize()

    def largest_residual(self) -> float:
        return max((bucket.largest_residual(self._group) for bucket in self._buckets), default=0.0)


def opened(
    plan: str | Plan,
    link: Link | None,
    group: dist.ProcessGroup | None,
    device: torch.device,
    fragments: list[tuple[list[str], list[tuple[int, ...]]]],
) -> Exchange:
    """Opens an exchange, at all ranks together. `fragments` are the names and the shapes of their parameters."""
    if str(plan) in ("auto", PREFIX + "auto"):
        raise ValueError('plan="auto" chooses by the iterations of DDP: give LocalSteps one, such as "bounded:4"')
    if isinstance(plan, str) and plan.startswith(PREFIX):
        if link is not None:
            raise ValueError(f"plan {plan!r} is over a process group: give no link, or leave out {PREFIX!r}")
        return ByGroup(group, plan.removeprefix(PREFIX), device, fragments)
    return ByLinks(link or Link(group), plan, fragments)
