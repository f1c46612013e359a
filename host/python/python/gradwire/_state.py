"""DDP's communication hook: buckets go through a thread of their own, in DDP's order, to the collectives."""

from __future__ import annotations

import collections
import math
import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from gradwire import _auto, _gpu, _residuals
from gradwire._hosts import BY_HOST, ranks_a_host
from gradwire._link import Link, same_process
from gradwire._native import Error, Plan
from gradwire._report import Report
from gradwire._returned import Returned
from gradwire._worker import Layout, Worker

COMPARE_EVERY = 100
"""Replicas are compared at the first iteration, and then once in so many."""


class State:
    """One model's exchange: a plan, connections, a thread, and what messages lost so far. All ranks make it together.

    `plan` is a `Plan` or its text: "f32", "low-rank:R", "3lc:S:BLOCK", "q8", "bounded:B", "ring:C:B",
    "in-network:ADDRESS", "hierarchy:hosts:CODEC", "hierarchy:GROUP:CODEC" or any other codec.
    "auto" trains a few iterations with each of some plans, and goes on with the fastest on this network; the report says why.
    With `pipeline`, each iteration applies the gradients of an earlier one (Pipe-SGD), so the exchange hides behind whole iterations.
    They come from the `width` - 1 iterations before (default: 2). The first `warmup` iterations apply their own (default: 3).
    With `model`, the residual is kept by its parameters' names; else by numbers, in the order in which DDP brings them.
    `server`, HOST:PORT, is where `python -m gradwire serve` listens: all gradients are summed there, coded by the plan both ways.
    `scaler` is the loss's `GradScaler`, or whatever has its `get_scale`. The residual is then in units of the gradient before scaling,
    and a step that the scaler skips, because a gradient is not finite, leaves it as it was. All ranks give one, or none.
    `untested_gpu` takes buckets on a GPU through the host's memory. That was written without a GPU, and never ran on one.
    """

    def __init__(
        self,
        link: Link,
        plan: str | Plan = "f32",
        *,
        pipeline: bool = False,
        width: int | None = None,
        warmup: int | None = None,
        model: torch.nn.Module | None = None,
        server: str | None = None,
        scaler: Any = None,
        untested_gpu: bool = False,
    ) -> None:
        for name, value in (("width", width), ("warmup", warmup)):
            if value is not None and not pipeline:
                raise ValueError(f"{name}={value} is of pipeline=True; give both, or neither")
        width, warmup = 2 if width is None else width, 3 if warmup is None else warmup
        if width < 2:
            raise ValueError(f"width {width}: expected 2 or more; 1 is what pipeline=False does")
        if scaler is not None and (pipeline or server is not None):
            raise ValueError(
                "a scaler goes with neither pipeline=True, whose gradients are older than the scale, nor a server, which cannot undo a "
                "skipped step; leave those out, or train without a GradScaler, as autocast to bfloat16 does"
            )
        # Has `auto` not chosen yet? It starts as f32.
        self._undecided = plan == "auto"
        said = plan if isinstance(plan, str) else str(plan)
        by_host = said.startswith(BY_HOST)
        if isinstance(plan, str):
            # Groups of one are as good as any until all have said where they are.
            plan = Plan("f32" if self._undecided else plan.replace(BY_HOST, "hierarchy:1:", 1) if by_host else plan)
        if server is not None:
            plan.check_served()
        self._pipeline, self._late, self._warmup = pipeline, width - 1, warmup
        self._rank, self._ranks = link.rank, link.ranks
        self._process = os.getpid()
        # By id, with the parameter, so that nothing else gets its id.
        self._names: dict[int, tuple[str, torch.Tensor]] = {}
        if model is not None:
            if isinstance(model, torch.nn.parallel.DistributedDataParallel):
                if pipeline and model.find_unused_parameters:
                    raise ValueError(
                        "pipeline=True with find_unused_parameters=True: DDP would discard the gradient of a parameter that no rank uses in "
                        "the next iteration; leave one of them out"
                    )
                # DDP puts a prefix before each name. Other models with a part called "module" do
                # not.
                model = model.module
            for name, parameter in model.named_parameters():
                self._names[id(parameter)] = (name, parameter)
        self._named, self._unnamed = model is not None, 0
        self._server = server
        self._scaler = scaler
        # That of this iteration's loss.
        self._scale: float | None = None
        self._untested_gpu = untested_gpu
        # What the server's optimizer returned, if a ServedOptimizer takes it.
        self._returned: Returned | None = None
        self._layouts: dict[tuple[int, ...], Layout] = {}
        # By name, the oldest first.
        self._pending: dict[str, collections.deque[tuple[torch.futures.Future[Any] | None, torch.Tensor]]] = {}
        self._iteration = 0
        channel, hosts = link.open(plan, said if self._undecided or by_host else str(plan), server)
        if by_host:
            plan = Plan(said.replace(BY_HOST, f"hierarchy:{ranks_a_host(hosts)}:", 1))
        self._worker = Worker(channel, plan, link.rank, link.ranks)
        # Also at exit, if nobody calls close.
        self._end = weakref.finalize(self, self._worker.close)
        link.closes(self._end)

    def _layout(self, bucket: dist.GradBucket) -> Layout:
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = Layout([self._name(parameter) for parameter in parameters], parameters)
        return found

    def _name(self, parameter: torch.Tensor) -> str:
        if id(parameter) not in self._names:
            self._names[id(parameter)] = (f"parameter.{self._unnamed}", parameter)
            self._unnamed += 1
        return self._names[id(parameter)][0]

    def _begin(self, parameters: list[torch.Tensor]) -> None:
        """The server's optimizer starts from rank 0's weights, and so do all ranks."""
        if self._server is None or self._pipeline or self._undecided:
            raise ValueError("a ServedOptimizer needs State(server=...), a plan other than auto, and no pipeline")
        self.drain()
        layout = Layout([self._name(parameter) for parameter in parameters], parameters)
        weights = torch.cat([parameter.detach().flatten().cpu() for parameter in parameters])
        whole = self._worker.channel.begin(weights, layout.native, self._worker.plan)
        self._returned = Returned(whole, dict(zip(layout.names, weights.split(layout.lens))))
        with torch.no_grad():
            for parameter, values in zip(parameters, weights.split(layout.lens)):
                parameter.copy_(values.view_as(parameter))

    def _hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        same_process(self._process)
        buffer = bucket.buffer()
        on_gpu = _gpu.has(buffer)
        if on_gpu and not self._untested_gpu:
            raise Error(
                f"this bucket is on {buffer.device}, and gradwire never ran with a GPU: State(..., untested_gpu=True) tries it, by way of "
                "the host's memory. docs/training.md says what is supported"
            )
        if not (on_gpu or buffer.device.type == "cpu") or buffer.dtype != torch.float32 or (on_gpu and self._pipeline):
            raise Error(
                f"gradwire exchanges torch.float32 on the CPU, or untested on a GPU without pipeline; this bucket has {buffer.dtype} on "
                f"{buffer.device}. docs/training.md says what is supported"
            )
        self._iteration += bucket.index() == 0
        if self._scaler is not None and bucket.index() == 0:
            self._scale = float(self._scaler.get_scale())
            if not 0 < self._scale < math.inf:
                raise Error(f"the scaler's scale is {self._scale}: expected a positive number")
        if self._undecided and bucket.index() == 0 and self._iteration >= _auto.TRIAL:
            self._worker.post(self._worker.next_trial)
            self._undecided = self._iteration < _auto.TRIAL + _auto.ALL
        layout = self._layout(bucket)
        if layout.values != buffer.numel():
            raise Error(f"DDP's bucket has {buffer.numel()} values, its parameters {layout.values}")
        compare = self._iteration % COMPARE_EVERY == 1
        if not self._pipeline or self._iteration <= self._warmup:
            ends = (bucket.index() == 0, bucket.is_last())
            return self._worker.submit(buffer, layout, compare, self._returned, self._scale, ends)
        return self._pipelined(buffer, layout, compare)

    def _pipelined(self, buffer: torch.Tensor, layout: Layout, compare: bool) -> torch.futures.Future[torch.Tensor]:
        """Submits a copy of the bucket, and puts the gradients of an earlier iteration into the bucket."""
        copy = buffer.clone()
        future = self._worker.submit(copy, layout, compare)
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
        """Waits for all exchanges under way. With `pipeline`, their gradients stay for the next iterations, or for `state_dict`.

        If an exchange failed, it raises why, and so do `report` and `state_dict`: the residual then has parts of sums.
        """
        same_process(self._process)
        self._worker.drain()

    def report(self) -> Report:
        """Returns the costs of all exchanges so far, after `drain`."""
        self.drain()
        done = self._worker.done
        return Report(
            str(self._worker.plan),
            self._worker.why,
            self._rank,
            self._ranks,
            self._iteration,
            done.values,
            done.sent_bytes,
            done.exchange_s,
            done.compute_s,
            self._worker.channel.largest_residual(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's part of a checkpoint: each rank saves its own."""
        self.drain()
        plan = "auto" if self._undecided else str(self._worker.plan)
        pending = {name: [values for _, values in pending] for name, pending in self._pending.items()}
        return _residuals.state_dict(self._worker.channel, plan, (self._rank, self._ranks), self._iteration, pending)

    def load_state_dict(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
        """Goes on from a checkpoint: with this rank's own state, or with those of all ranks, if there were more or fewer of them.

        Another plan may take over the residual.
        """
        self.drain()
        known = {name for name, _ in self._names.values()} if self._named else None
        first = _residuals.load(self._worker.channel, saved, (self._rank, self._ranks), known)
        if self._undecided and first["plan"] != "auto":
            self._worker.plan, self._worker.why = Plan(first["plan"]), "decided before the checkpoint"
            self._undecided = False
        if self._undecided:
            # Trials that were made since that checkpoint do not count.
            self._worker.restart_trials()
        self._iteration = 0 if self._undecided else first["iteration"]
        # Of another width: the newest of them, or fewer.
        self._pending = {name: collections.deque(((None, one.clone()) for one in values), self._late) for name, values in first["pending"].items()}

    def close(self) -> None:
        """Waits for exchanges under way, then ends the thread and the connections. A second call does nothing."""
        if os.getpid() == self._process:
            self._end()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire.State cannot be pickled or copied: save its state_dict()")
