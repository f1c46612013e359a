"""The one line: `gradwire.attach(model, plan)`, and for scripts that have none, `python -m gradwire run`."""

from __future__ import annotations

import collections
import datetime
import functools
import logging
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradwire._hook import hook
from gradwire._hosts import BY_HOST, ranks_by_host, this_host
from gradwire._native import Error, Plan
from gradwire._plan import read
from gradwire._state import State
from gradwire.device.codecs import ScaledIntegers
from gradwire.device.exchange import gathered
from gradwire.device.fsdp import CodedReduceScatter, ShardedState, sharded_modules
from gradwire.device.over_group import check
from gradwire.device.plan import PREFIX, group_plan

MEET = datetime.timedelta(seconds=60)
"""Under `gradwire run`, ranks wait so long for each other to attach."""


def attach(
    model: torch.nn.Module,
    plan: str | Plan | os.PathLike[str] = "q8",
    *,
    group: dist.ProcessGroup | None = None,
    scaler: Any = None,
    exact_iterations: int | None = None,
) -> State | ShardedState | CodedReduceScatter:
    """Compresses the gradients of a model that DDP or FSDP2 (`fully_shard`) trains. All ranks call it, before the first backward.

    `group` is the process group between hosts, with one rank of each. A DDP model needs none: its own process group is the default;
    with one, ranks of a host sum their gradients first. An FSDP2 model is sharded inside a host, and exchanged in that group; without
    `group`, shards span hosts, and the reduce-scatter is coded: by q8 alone, and without a residual.
    `scaler` is the loss's `GradScaler`; `exact_iterations` and plans are those of `State`, which is what it returns for DDP.

    Error says what is not served: a device, dtype or module, before any backward.
    """
    if not dist.is_initialized():
        raise Error("torch.distributed is not initialised: call init_process_group first")
    plan = read(plan)
    # torch.compile's wrapper, whose hooks and parameters are those of what is inside.
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, DistributedDataParallel):
        return _attach_ddp(model, plan, group, scaler, exact_iterations)
    if modules := sharded_modules(model):
        if scaler is not None:
            raise Error("a scaler with an FSDP model: train in bfloat16, which needs none")
        parameter = next(model.parameters())
        check(parameter.device, parameter.dtype)
        if group is not None:
            return ShardedState(modules, str(plan), group, exact_iterations)
        text = str(plan).removeprefix(PREFIX)
        codec = group_plan(text).codec
        if not isinstance(codec, ScaledIntegers) or not text.startswith("q8") or exact_iterations is not None:
            raise Error(
                f"plan {str(plan)!r} of an FSDP model whose shards span hosts: a reduce-scatter keeps no residual, which would be as large as the "
                "model at each rank, so q8 is the only plan; give group=..., the group between hosts, and shard inside them"
            )
        comm = CodedReduceScatter(codec)
        for module in modules.values():
            module.set_custom_reduce_scatter(comm)
        return comm
    raise Error(
        f"a {type(model).__name__} is neither a DistributedDataParallel nor was it given to fully_shard: wrap it first. FSDP of torch 1 and "
        "replicate have no hook that serves"
    )


def _attach_ddp(
    model: DistributedDataParallel, plan: str | Plan, group: dist.ProcessGroup | None, scaler: Any, exact_iterations: int | None
) -> State:
    if getattr(model, "_use_python_reducer", False):
        raise Error(
            'a DistributedDataParallel made with torch._dynamo.config.optimize_ddp = "python_reducer", which has no buckets: leave it at its '
            "default, True"
        )
    for taken, _ in getattr(model, "_comm_hooks", ()):
        raise Error(
            f"the model has the communication hook {getattr(taken, '__qualname__', taken)!r} already, and DDP takes one: attach once, keep what "
            "attach returns, and use autocast in place of DDP's own mixed_precision"
        )
    over_group = by_group = str(plan).startswith(PREFIX)
    for name, parameter in model.module.named_parameters():
        if not parameter.requires_grad:
            continue
        try:
            if over_group or parameter.device.type != "cpu":
                check(parameter.device, parameter.dtype)
            elif parameter.dtype != torch.float32:
                raise Error(f"gradients of {parameter.dtype} on the CPU: plan='{PREFIX}{plan}' takes them over the process group")
        except Error as error:
            raise Error(f"parameter {name}: {error}") from None
        by_group = by_group or parameter.device.type != "cpu"
    check_plan(plan, by_group)
    whole = model.process_group
    if by_group and str(plan).removeprefix(PREFIX).startswith(BY_HOST):
        # Here, and not in the first backward.
        ranks_by_host(gathered(this_host(), whole))
    inner = None if group is None else _inner_ranks(group, whole)
    state = State(None, plan, group=group or whole, model=model, scaler=scaler, exact_iterations=exact_iterations, inner=inner)
    model.register_comm_hook(state, hook)
    return state


def check_plan(plan: str | Plan, over_group: bool | None = None) -> None:
    """Raises ValueError if no bucket can take the plan that way, over the process group or over links; None is before the first bucket says which."""
    text = str(plan).removeprefix(PREFIX)
    if text == "auto" or isinstance(plan, Plan) and not over_group:
        return
    if over_group or text != plan:
        group_plan(text)
        return
    try:
        # Groups of any size, until ranks know their hosts.
        Plan(text.replace(BY_HOST, "hierarchy:1:", 1))
    except ValueError as error:
        try:
            group_plan(text)
        except ValueError:
            raise error from None
        if over_group is False:
            raise ValueError(f"{error}; over the process group there is one: give '{PREFIX}{text}'") from None


def _inner_ranks(group: dist.ProcessGroup, whole: dist.ProcessGroup) -> list[int] | None:
    """Returns the ranks of this one's host, if `group` has one rank of each host; None if it has all ranks of `whole`."""
    ranks = dist.get_process_group_ranks(whole)
    everybody = gathered(dist.get_process_group_ranks(group), whole)
    between = dict(zip(ranks, everybody))
    if all(sorted(each) == sorted(ranks) for each in everybody):
        return None
    me = dist.get_rank()
    hosts = {rank: each.index(rank) for rank, each in between.items() if rank in each}
    if len(hosts) < len(ranks) or any(between[other] != each for each in everybody for other in each if other in between):
        raise Error(
            f"groups {sorted(map(tuple, everybody))} are not those between hosts of ranks {ranks}: each rank is in one, with one rank of each host"
        )
    return [rank for rank in ranks if hosts[rank] == hosts[me]]


def _meet(ranks: list[int], number: int) -> None:
    """Waits for these ranks to attach to their model of this number. Error names one that does not come."""
    # By the store: a rank without gradwire would take part in no collective. Those of DDP have just
    # let all ranks go on together.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"gradwire/{ranks}/{number}/{dist.get_rank()}", "")
    for rank in ranks:
        try:
            store.wait([f"gradwire/{ranks}/{number}/{rank}"], MEET)
        except RuntimeError:
            raise Error(
                f"rank {rank} has no `gradwire run`: start all ranks by it, as in `torchrun --nproc_per_node 2 -m gradwire run script.py`; a "
                "script that starts ranks itself starts them without"
            ) from None


def everywhere(plan: str) -> list[State]:
    """Attaches to each `DistributedDataParallel` that is made from now on, and returns the list that their states come into."""
    states: list[State] = []
    # Now, since the script may change the folder.
    read_plan = read(plan)
    made_of: collections.Counter[tuple[int, ...]] = collections.Counter()
    make, register = DistributedDataParallel.__init__, DistributedDataParallel.register_comm_hook

    @functools.wraps(make)
    def made(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        DistributedDataParallel.register_comm_hook = register
        try:
            ranks = dist.get_process_group_ranks(self.process_group)
            made_of[tuple(ranks)] += 1
            _meet(ranks, made_of[tuple(ranks)])
            states.append(_attach_ddp(self, read_plan, None, None, None))
        finally:
            DistributedDataParallel.register_comm_hook = refused

    def refused(self: DistributedDataParallel, *_: Any, **__: Any) -> None:
        raise Error("this script registers a communication hook of its own, and `gradwire run` has one: leave out the script's, or `gradwire run`")

    DistributedDataParallel.__init__ = made
    DistributedDataParallel.register_comm_hook = refused
    return states


def run(plan: str, start: Any, profile: str | None = None) -> None:
    """Runs a script, by `start`, whose DDP models are compressed, and says at its end what was; of the first one also by `profile`."""
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("gradwire").setLevel(logging.INFO)
    states = everywhere(plan)
    try:
        start()
    finally:
        if not states:
            print("gradwire run: the script made no DistributedDataParallel, so nothing was compressed", file=sys.stderr)
        for state in states:
            try:
                report = state.report()
            except Error as error:
                print(f"gradwire run: {error}", file=sys.stderr)
                continue
            if report.rank == 0:
                print(report, file=sys.stderr)
                if profile is not None and state is states[0]:
                    _write_profile(state, profile)
            state.close()


def _write_profile(state: State, path: str) -> None:
    try:
        state.write_profile(path)
    except (Error, OSError) as error:
        print(f"gradwire run: --profile {path}: {error}", file=sys.stderr)
