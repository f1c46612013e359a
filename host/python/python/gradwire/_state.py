"""DDP's communication hook: which way a model's buckets take."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from gradwire._hosts import BY_HOST
from gradwire._link import Link, group_of, same_process
from gradwire._names import Names
from gradwire._native import Error, Plan
from gradwire._over_links import OverLinks
from gradwire._plan import read
from gradwire._report import Report
from gradwire._residuals import NOTHING, VERSION
from gradwire.device.over_group import OverGroup, check
from gradwire.device.plan import PREFIX, group_plan


class State:
    """One model's exchange: a plan, a way for its buckets, and what messages lost so far. All ranks make it together.

    Buckets on an accelerator are coded there, and go over the process group. Buckets on the CPU go over a `Link`'s connections; if
    `plan` begins with "group:", they go over the process group, too.

    `link` is made at the first bucket that needs one, if it is not given. `group` is the process group, by default the link's or
    that of all ranks.
    `plan` over links is a `Plan` or its text: "f32", "low-rank:R", "3lc:S:BLOCK", "q8", "bounded:B", "ring:C:B",
    "in-network:ADDRESS", "hierarchy:hosts:CODEC", "hierarchy:GROUP:CODEC" or any other codec; or a file of `gradwire plan --out`, as a path
    or "@FILE".
    Over a process group: "f32", which is the group's own all-reduce, "bf16", "q8:BLOCK", "q4:BLOCK", "3lc:S:BLOCK" or "low-rank:R"; or
    "hierarchy:hosts:" before one of them but the last.
    "auto" trains a few iterations with each of some plans, and goes on with the fastest on this network; the report says why.

    With `model`, the residual is kept by its parameters' names; else by numbers, in the order in which DDP brings them.
    `scaler` is the loss's `GradScaler`, or over links whatever has its `get_scale`. The residual is then in units of the gradient before
    scaling, and a step that the scaler skips, because a gradient is not finite, leaves it as it was. All ranks give one, or none.

    Over a process group alone: the first `exact_iterations` have no codec (default: 2, and 10 for "low-rank").
    `inner` are ranks, this one among them, that sum before the group's ranks exchange: those of a host, if the group has one rank of each.

    Over links alone: with `pipeline`, each iteration applies the gradients of an earlier one (Pipe-SGD), so the exchange hides behind
    whole iterations. They come from the `width` - 1 iterations before (default: 2). The first `warmup` iterations apply their own (default: 3).
    `server`, HOST:PORT, is where `python -m gradwire serve` listens: all gradients are summed there, coded by the plan both ways.
    """

    def __init__(
        self,
        link: Link | None = None,
        plan: str | Plan | os.PathLike[str] = "f32",
        *,
        group: dist.ProcessGroup | None = None,
        model: torch.nn.Module | None = None,
        scaler: Any = None,
        exact_iterations: int | None = None,
        inner: list[int] | None = None,
        pipeline: bool = False,
        width: int | None = None,
        warmup: int | None = None,
        server: str | None = None,
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
        if exact_iterations is not None and exact_iterations < 2:
            raise ValueError(f"exact_iterations {exact_iterations}: expected 2 or more; DDP makes its buckets anew after the first")
        if link is not None and not isinstance(link, Link):
            raise TypeError(f"link is {link!r}: expected a gradwire.Link, or none; a plan is given by plan=")
        plan = read(plan)
        group = group_of(link, group)
        # torch.compile's wrapper has it there.
        model = getattr(model, "_orig_mod", model)
        ddp = model if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        if pipeline and ddp is not None and ddp.find_unused_parameters:
            raise ValueError(
                "pipeline=True with find_unused_parameters=True: DDP would discard the gradient of a parameter that no rank uses in "
                "the next iteration; leave one of them out"
            )
        self._process = os.getpid()
        self._plan, self._group = plan, group
        self._may_be_unused = ddp is None or ddp.find_unused_parameters or ddp.static_graph
        self._scaler, self._exact_iterations, self._inner = scaler, exact_iterations, inner
        self._over_links = {"pipeline": pipeline, "width": width, "warmup": warmup, "server": server, "scaler": scaler}
        self._names = Names(model)
        self._link = link
        # What a State took before its first bucket, which says the way.
        self._saved: dict[str, Any] | list[dict[str, Any]] | None = None
        self._way: OverLinks | OverGroup | None = None
        self._closed = False
        if self._by_group():
            if pipeline or server is not None:
                raise ValueError(
                    f"plan {plan!r} with {'pipeline' if pipeline else 'server'}: that is of buckets over links; leave out {PREFIX!r}, or that"
                )
            self._group_plan()
        if inner is not None:
            # The same plans, but for one that already says so.
            group_plan(BY_HOST + self._group_plan())
        if not self._by_group() and link is not None:
            self._open_links()

    def _by_group(self) -> bool:
        return isinstance(self._plan, str) and self._plan.startswith(PREFIX)

    def _group_plan(self) -> str:
        """Returns the plan without its prefix. ValueError if a process group has none such."""
        text = str(self._plan).removeprefix(PREFIX)
        if text != "auto":
            group_plan(text)
        return text

    def _open_links(self) -> OverLinks:
        for name, value in (("exact_iterations", self._exact_iterations), ("inner", self._inner)):
            if value is not None:
                raise ValueError(f"{name}={value} is of buckets over a process group: begin the plan with {PREFIX!r}, or leave it out")
        self._link = self._link or Link(self._group)
        self._way = way = OverLinks(self._link, self._plan, self._names, **self._over_links)
        return way

    def _open_group(self, device: torch.device) -> OverGroup:
        over_links = [name for name in ("pipeline", "server") if self._over_links[name]]
        if over_links:
            raise Error(f"{over_links[0]} is of buckets over links, which are on the CPU, and this one is on {device}")
        if not dist.is_initialized():
            raise Error("torch.distributed is not initialised: call init_process_group first")
        self._way = way = OverGroup(
            self._group_plan(),
            self._group,
            self._names,
            device,
            scaler=self._scaler,
            exact_iterations=self._exact_iterations,
            may_be_unused=self._may_be_unused,
            inner=self._inner,
        )
        return way

    def _opened(self, buffer: torch.Tensor) -> OverLinks | OverGroup:
        """Returns the way of this bucket, and opens it for the first one."""
        if self._closed:
            raise Error("this gradwire.State is closed: make another one")
        over_group = self._by_group() or buffer.device.type != "cpu"
        if self._way is not None and isinstance(self._way, OverGroup) == over_group:
            return self._way
        if self._way is not None and self._way.report().iterations:
            raise Error(f"this bucket is on {buffer.device}, and others were not: one State takes the buckets of one device")
        if self._way is not None:
            # A link was given, and the model is on an accelerator.
            self._way.close()
        if over_group:
            check(buffer.device, buffer.dtype)
        way = self._open_group(buffer.device) if over_group else self._open_links()
        if self._saved is not None:
            way.load_state_dict(self._saved)
            self._saved = None
        return way

    def _hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        same_process(self._process)
        if isinstance(bucket, tuple):
            raise Error('torch.compile with optimize_ddp="python_reducer" has no buckets: use its default, optimize_ddp=True')
        return self._opened(bucket.buffer()).hook(bucket)

    def _links(self) -> OverLinks:
        """Returns the way over links, for what has no other."""
        same_process(self._process)
        way = self._way or self._open_links()
        if not isinstance(way, OverLinks):
            raise ValueError("a ServedOptimizer needs State(server=...), and buckets on the CPU")
        return way

    def drain(self) -> None:
        """Waits for all exchanges under way. With `pipeline`, their gradients stay for the next iterations, or for `state_dict`.

        If an exchange failed, it raises why, and so do `report` and `state_dict`: the residual then has parts of sums.
        """
        same_process(self._process)
        if self._way is not None:
            self._way.drain()

    def report(self) -> Report:
        """Returns the costs of all exchanges so far, after `drain`. Before the first bucket, a State without a link raises Error."""
        same_process(self._process)
        return self._some().report()

    def write_profile(self, path: str | os.PathLike[str]) -> None:
        """Writes what this rank's iterations took so far, for `gradwire plan --profile`: messages, bytes and computing. Over links alone.

        Best after the trials of plan "auto", which send much and little.
        """
        same_process(self._process)
        way = self._some()
        if not isinstance(way, OverLinks):
            raise Error("a profile is of buckets over links, which are on the CPU")
        text = way.profile()
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's part of a checkpoint: each rank saves its own."""
        same_process(self._process)
        if self._way is not None:
            return self._way.state_dict()
        if self._saved is not None:
            raise Error("this state has loaded a checkpoint, and no bucket has come since: save after the first backward, or keep that checkpoint")
        return {"version": VERSION, "path": NOTHING}

    def load_state_dict(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
        """Goes on from a checkpoint: with this rank's own state, or with those of all ranks, if there were more or fewer of them.

        Another plan may take over the residual. It may be called before the first bucket, which then says whether the checkpoint fits.
        """
        same_process(self._process)
        saved = saved if isinstance(saved, dict) else list(saved)
        if all(one.get("path") == NOTHING for one in ([saved] if isinstance(saved, dict) else saved)):
            # Of states that had exchanged nothing.
            return
        if self._way is not None:
            self._way.load_state_dict(saved)
        else:
            self._saved = saved

    def _some(self) -> OverLinks | OverGroup:
        if self._way is None:
            raise Error("nothing was exchanged yet: the first bucket says whether buckets go over links or over the process group")
        return self._way

    def close(self) -> None:
        """Waits for exchanges under way, then ends the thread and the connections. A second call does nothing."""
        self._closed = True
        if os.getpid() == self._process and self._way is not None:
            self._way.close()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire.State cannot be pickled or copied: save its state_dict()")
