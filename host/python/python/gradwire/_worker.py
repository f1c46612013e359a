"""The thread of a `State`: it exchanges buckets, one after the other, and makes the trials of `plan="auto"`."""

from __future__ import annotations

import time

import torch

from gradwire import _auto, _native
from gradwire._native import Plan
from gradwire._profile import Profile
from gradwire._returned import Returned
from gradwire._thread import JobThread


class Layout:
    """The parameters of a bucket."""

    def __init__(self, names: list[str], parameters: list[torch.Tensor]) -> None:
        self.names = names
        self.lens = [parameter.numel() for parameter in parameters]
        self.values = sum(self.lens)
        rows = [parameter.shape[0] if parameter.dim() > 1 else 1 for parameter in parameters]
        self.native = _native.Layout(list(zip(names, self.lens, rows)))


class Done:
    """Sums over all exchanges."""

    values = sent_bytes = 0
    exchange_s = compute_s = 0.0


class Worker(JobThread):
    """The thread that exchanges buckets, one after the other: in DDP's order, which is the same at all ranks."""

    def __init__(self, channel: _native.Channel, plan: Plan, rank: int, ranks: int) -> None:
        self.channel, self.plan, self.done, self.why = channel, plan, Done(), ""
        self.rank, self.ranks = rank, ranks
        self.profile = Profile()
        # When each iteration of a trial began, and the one after them.
        self.trials: list[float] = []
        # With a scale: were all means of this iteration finite so far?
        self.finite = True
        super().__init__()

    def leave(self) -> None:
        self.channel.close()

    def submit(
        self,
        tensor: torch.Tensor,
        layout: Layout,
        compare: bool,
        returned: Returned | None = None,
        scale: float | None = None,
        ends: tuple[bool, bool] = (False, False),
    ) -> torch.futures.Future[torch.Tensor]:
        """`ends` says whether the bucket is the first or the last of its iteration, which matters with a `scale`."""

        def job() -> None:
            first, last = ends
            if scale is not None and first:
                self.channel.mark()
                self.finite = True
            plan = self.plan
            seconds, compute, sent, messages, finite = self.channel.exchange(tensor, layout.native, plan, compare, scale)
            self.finite &= finite
            if last and not self.finite:
                # All ranks have the same bits, and skip this step.
                self.channel.undo()
            self.done.values += layout.values
            self.done.exchange_s += seconds
            self.done.compute_s += compute
            self.done.sent_bytes += sent
            self.profile.exchanged((plan, layout), messages, sent, seconds - compute, last)
            if returned is not None:
                returned.keep(tensor, layout.names, layout.lens)

        self.profile.submitted(*ends)
        return self.run(job, tensor)

    def restart_trials(self) -> None:
        """Forgets `auto`'s trials. The thread is idle."""
        self.trials.clear()
        self.plan = Plan(_auto.LINKS.plan(0))

    def next_trial(self) -> None:
        """Begins an iteration of `auto`'s trials, or chooses after the last one: as the slowest rank saw each, so all choose the same."""
        self.trials.append(time.monotonic())
        if len(self.trials) <= _auto.LINKS.all:
            self.plan = Plan(_auto.LINKS.plan(len(self.trials) - 1))
            return
        table = torch.zeros(self.ranks, _auto.LINKS.all)
        table[self.rank] = torch.tensor([end - began for began, end in zip(self.trials, self.trials[1:])])
        self.channel.sum(table.view(-1))
        text, self.why = _auto.LINKS.choose(table.max(0).values.tolist())
        self.plan = Plan(text)
