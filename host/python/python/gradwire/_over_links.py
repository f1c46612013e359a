"""Buckets over links: they go through a thread of their own, in DDP's order, to the collectives."""

from __future__ import annotations

import collections
import math
import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from gradwire import _auto
from gradwire._hosts import BY_HOST, ranks_a_host
from gradwire._link import Link
from gradwire._names import Names
from gradwire._native import Error, Plan
from gradwire._report import Report
from gradwire._residuals import COMPARE_EVERY, Place
from gradwire._returned import Returned
from gradwire._worker import Layout, Worker


class OverLinks:
    """The exchange of a `State` over connections of its own, by the collectives in Rust, of f32 buckets on the CPU."""

    def __init__(
        self,
        link: Link,
        plan: str | Plan,
        names: Names,
        *,
        pipeline: bool,
        width: int,
        warmup: int,
        server: str | None,
        scaler: Any,
    ) -> None:
        # Has `auto` not chosen yet? It starts as f32.
        self._undecided = plan == "auto"
        said = plan if isinstance(plan, str) else str(plan)
        by_host = said.startswith(BY_HOST)
        if isinstance(plan, str):
            # Groups of one are as good as any until all have said where they are.
            plan = Plan("f32" if self._undecided else plan.replace(BY_HOST, "hierarchy:1:", 1) if by_host else plan)
        if by_host and plan.tagged:
            raise ValueError(f"plan {said!r}: links open tagged connections before ranks know their hosts; use hierarchy:GROUP:wire:C:B")
        if server is not None:
            plan.check_served()
        self._pipeline, self._late, self._warmup = pipeline, width - 1, warmup
        self._place = Place("links", link.rank, link.ranks)
        self._names = names
        self._server = server
        self._scaler = scaler
        # That of this iteration's loss.
        self._scale: float | None = None
        # What the server's optimizer returned, if a ServedOptimizer takes it.
        self.returned: Returned | None = None
        self._layouts: dict[tuple[int, ...], Layout] = {}
        # By name, the oldest first.
        self._pending: dict[str, collections.deque[tuple[torch.futures.Future[Any] | None, torch.Tensor]]] = {}
        self._iteration = 0
        channel, hosts = link.open(plan, said if self._undecided or by_host else str(plan), server)
        if by_host:
            plan = Plan(said.replace(BY_HOST, f"hierarchy:{ranks_a_host(hosts)}:", 1))
        self.worker = Worker(channel, plan, link.rank, link.ranks)
        # Also at exit, if nobody calls close.
        self.close = weakref.finalize(self, self.worker.close)
        link.closes(self.close)

    def _layout(self, bucket: dist.GradBucket) -> Layout:
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = Layout([self._names.name(parameter) for parameter in parameters], parameters)
        return found

    def begin(self, parameters: list[torch.Tensor]) -> None:
        """The server's optimizer starts from rank 0's weights, and so do all ranks."""
        if self._server is None or self._pipeline or self._undecided:
            raise ValueError("a ServedOptimizer needs State(server=...), a plan other than auto, and no pipeline")
        self.drain()
        layout = Layout([self._names.name(parameter) for parameter in parameters], parameters)
        weights = torch.cat([parameter.detach().flatten().cpu() for parameter in parameters])
        whole = self.worker.channel.begin(weights, layout.native, self.worker.plan)
        self.returned = Returned(whole, dict(zip(layout.names, weights.split(layout.lens))))
        with torch.no_grad():
            for parameter, values in zip(parameters, weights.split(layout.lens)):
                parameter.copy_(values.view_as(parameter))

    def hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        if buffer.device.type != "cpu" or buffer.dtype != torch.float32:
            raise Error(
                f"this way exchanges torch.float32 on the CPU, and this bucket has {buffer.dtype} on {buffer.device}: "
                "State(plan='group:...') takes it over the process group. docs/training.md says what is supported"
            )
        self._iteration += bucket.index() == 0
        if self._scaler is not None and bucket.index() == 0:
            self._scale = float(self._scaler.get_scale())
            if not 0 < self._scale < math.inf:
                raise Error(f"the scaler's scale is {self._scale}: expected a positive number")
        if self._undecided and bucket.index() == 0 and self._iteration >= _auto.TRIAL:
            self.worker.post(self.worker.next_trial)
            self._undecided = self._iteration < _auto.TRIAL + _auto.LINKS.all
        layout = self._layout(bucket)
        if layout.values != buffer.numel():
            raise Error(f"DDP's bucket has {buffer.numel()} values, its parameters {layout.values}")
        compare = self._iteration % COMPARE_EVERY == 1
        if not self._pipeline or self._iteration <= self._warmup:
            ends = (bucket.index() == 0, bucket.is_last())
            return self.worker.submit(buffer, layout, compare, self.returned, self._scale, ends)
        return self._pipelined(buffer, layout, compare)

    def _pipelined(self, buffer: torch.Tensor, layout: Layout, compare: bool) -> torch.futures.Future[torch.Tensor]:
        """Submits a copy of the bucket, and puts the gradients of an earlier iteration into the bucket."""
        copy = buffer.clone()
        future = self.worker.submit(copy, layout, compare)
        before = []
        for name, values in zip(layout.names, copy.split(layout.lens)):
            pending = self._pending.setdefault(name, collections.deque())
            # The first pipelined iterations have nothing to apply.
            before.append(pending.popleft() if len(pending) == self._late else None)
            pending.append((future, values))
        waiting = list({id(item[0]): item[0] for item in before if item and item[0]}.values())

        def put(futures: torch.futures.Future[Any]) -> torch.Tensor:
            for done in futures.wait():
                done.wait()
            for to, item in zip(buffer.split(layout.lens), before):
                to.copy_(item[1]) if item else to.zero_()
            return buffer

        return torch.futures.collect_all(waiting).then(put)

    def drain(self) -> None:
        self.worker.drain()

    def report(self) -> Report:
        self.drain()
        done = self.worker.done
        return Report(
            "links",
            str(self.worker.plan),
            self.worker.why,
            self._place.rank,
            self._place.ranks,
            self._place.ranks,
            self._iteration,
            done.values,
            0,
            done.sent_bytes,
            done.exchange_s,
            done.compute_s,
            self.worker.channel.largest_residual(),
        )

    def profile(self) -> str:
        """Returns what `gradwire plan --profile` reads."""
        plan = str(self.worker.plan)
        if self._pipeline or self._server is not None or plan.startswith(("hierarchy", "in-network", "strategy")):
            raise Error(
                "a profile is of a plan whose messages leave one after the other: train with plan 'auto', 'f32' or another codec, without "
                "pipeline and server"
            )
        self.drain()
        ranks, iterations = self._place.ranks, self._iteration
        return self.worker.profile.toml(f"A run of {ranks} ranks, {iterations} iterations.")

    def state_dict(self) -> dict[str, Any]:
        self.drain()
        plan = "auto" if self._undecided else str(self.worker.plan)
        pending = {name: [values.clone() for _, values in pending] for name, pending in self._pending.items()}
        # A tensor, which torch.load takes from anybody.
        residuals = torch.frombuffer(bytearray(self.worker.channel.save()), dtype=torch.uint8)
        return self._place.state(plan, self._iteration, {"residuals": residuals, "pending": pending})

    def load_state_dict(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
        self.drain()
        states, own = self._place.checked(saved)
        first, channel = states[0], self.worker.channel
        residuals = [bytes(one["residuals"].numpy().tobytes()) for one in states]
        channel.resume(residuals[0]) if own else channel.load(residuals, self._place.rank)
        self._names.check({*channel.names(), *first["pending"]})
        if self._undecided and first["plan"] != "auto":
            self.worker.plan, self.worker.why = Plan(first["plan"]), "decided before the checkpoint"
            self._undecided = False
        if self._undecided:
            # Trials that were made since that checkpoint do not count.
            self.worker.restart_trials()
        self._iteration = 0 if self._undecided else first["iteration"]
        # Of another width: the newest of them, or fewer.
        self._pending = {name: collections.deque(((None, one.clone()) for one in values), self._late) for name, values in first["pending"].items()}
