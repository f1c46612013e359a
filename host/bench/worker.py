"""A rank of the benchmark. Its arguments are files with codecs. It reads jobs from standard input and answers each: a line of JSON, both ways."""

# No annotations from __future__: torch compares those of `_keep` with types.
import contextlib
import datetime
import json
import math
import re
import sys
import time
from typing import Any

import gradwire
import snappy
import torch
import torch.distributed as dist
from network import PATIENCE_S
from tasks import LOCAL, ONE, SERVED, TASKS, load, round_of
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

POWER_SGD_STARTS = 10
"""PyTorch's hook sends this many iterations as f32."""
ONE_BUCKET_MB = 1000
"""Larger than any model here."""


def _keep(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Exchanges nothing: what an iteration takes besides."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _attach(ddp: DistributedDataParallel, job: dict[str, Any], link: gradwire.Link) -> gradwire.State | None:
    """Lets `ddp` exchange gradients so. If gradwire does it, what has to be closed at the end.

    The job's exchange is one of PyTorch's, a plan, or one for comparison: `none`; `snappy`, and `servers`, the same without it;
    `server:CODEC`, where the job's server has the optimizer; and `PLAN+K`, where gradients are applied K - 1 iterations later.
    """
    exchange = job["exchange"].removesuffix(ONE)
    if exchange == "ddp":
        return None
    if exchange in ("fp16", "bf16"):
        ddp.register_comm_hook(None, getattr(default_hooks, f"{exchange}_compress_hook"))
        return None
    if exchange.startswith("powersgd:"):
        rank = int(exchange.removeprefix("powersgd:"))
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=POWER_SGD_STARTS)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return None
    if exchange in ("snappy", "servers"):
        ddp.register_comm_hook(exchange == "snappy", snappy.hook)
        return None
    if exchange == "none":
        ddp.register_comm_hook(None, _keep)
        return None
    if exchange.startswith(SERVED):
        link = gradwire.Link(timeout=PATIENCE_S, token_file=job["token"])
        state = gradwire.State(link, exchange.removeprefix(SERVED), server=job["server"], model=ddp.module)
    else:
        plan, _, width = exchange.partition("+")
        state = gradwire.State(link, plan, pipeline=bool(width), width=int(width) if width else None, model=ddp)
    ddp.register_comm_hook(state, gradwire.hook)
    return state


def _local(model: torch.nn.Module, optimizer: torch.optim.Optimizer, found: re.Match[str], link: gradwire.Link) -> gradwire.LocalSteps | None:
    """Lets the model take local steps, those of a match of LOCAL. If gradwire does it, what has to be closed at the end."""
    if found["by"] == "torch-local":
        averager = PeriodicModelAverager(period=int(found["every"]))
        # It counts from 0, so that the first call would average.
        averager.step = 1
        optimizer.register_step_post_hook(lambda *_: averager.average_parameters(model.parameters()))
        return None
    delay, fragments = int(found["delay"] or 0), int(found["fragments"] or 1)
    return gradwire.LocalSteps(model, optimizer, every=int(found["every"]), plan=found["plan"], delay=delay, fragments=fragments, link=link)


def _run(job: dict[str, Any], link: gradwire.Link) -> dict[str, Any]:
    """Trains for `iterations`, or `until` the target: the task's, or the job's own.

    Says how many it took, and the seconds: of all with `until`, else of those behind the first `warm`. `curve` has iteration, seconds
    and test loss. `parts` has where the seconds went: the forward pass, the backward pass with what it waits for, and the update; and in
    the background, if gradwire exchanges, `exchange`, and `coding` and summing within it. `sent` has the bytes of all iterations that
    gradwire sent.
    """
    task = TASKS[job["task"]]
    target = job.get("target", task.target)
    torch.manual_seed(job["seed"])
    # With two buckets, torch 2.15's PowerSGD waits for ever: each of gloo's two threads waits
    # inside a callback for a third operation.
    one = job["exchange"].endswith(ONE) or job["exchange"].startswith("powersgd:")
    local, every = LOCAL.fullmatch(job["exchange"]), round_of(job["exchange"])
    model = task.model()
    # Its default is not 25 in torch 2, though the documentation says so: the first bucket has 1 MB.
    # In torch 1 it cannot be None.
    trained = model if local else DistributedDataParallel(model, **({"bucket_cap_mb": ONE_BUCKET_MB} if one else {}))
    optimizer = task.optimizer(trained.parameters(), job["rate"])
    batches, test = task.batches(job["seed"], dist.get_rank()), task.test()
    state = _local(model, optimizer, local, link) if local else _attach(trained, job, link)
    if job["exchange"].startswith(SERVED):
        optimizer = gradwire.ServedOptimizer(trained.parameters(), state)
    common = state.mean if isinstance(state, gradwire.LocalSteps) else contextlib.nullcontext
    # All ranks have the same weights behind a round.
    looks = math.ceil(task.every / every) * every
    loss, began = None, time.monotonic()
    iteration, curve = 0, []
    parts = {"forward": 0.0, "backward": 0.0, "update": 0.0}
    report = None
    try:
        for iteration in range(1, job["iterations"] + 1):
            optimizer.zero_grad()
            times = [time.monotonic()]
            loss_here = task.loss(trained, next(batches))
            times.append(time.monotonic())
            loss_here.backward()
            times.append(time.monotonic())
            optimizer.step()
            times.append(time.monotonic())
            for part, one, two in zip(parts, times, times[1:]):
                parts[part] += two - one
            if job["until"] and iteration % looks == 0:
                # Replicas are equal: what one of them knows goes for all.
                said = torch.zeros(1)
                if dist.get_rank() == 0:
                    with torch.no_grad(), common():
                        said[0] = task.loss(model, test)
                dist.broadcast(said, 0)
                loss = said.item()
                curve.append((iteration, round(time.monotonic() - began, 3), round(loss, 4)))
                if loss <= target or loss != loss:
                    break
            elif not job["until"] and iteration == job["warm"]:
                # A report waits for what is under way: in a pipeline, that belongs to the
                # iterations that began it.
                parts, report = dict.fromkeys(parts, 0.0), state and state.report()
                dist.barrier()
                began = time.monotonic()
        now = state and state.report()
        seconds = time.monotonic() - began
        dist.barrier()
        if now and report:
            parts |= {"exchange": now.exchange_s - report.exchange_s, "coding": getattr(now, "compute_s", 0.0) - getattr(report, "compute_s", 0.0)}
    finally:
        if state:
            state.close()
    sent = now.sent_bytes if now else None
    reached = loss is not None and loss <= target
    return {"iterations": iteration, "seconds": seconds, "loss": loss, "reached": reached, "curve": curve, "parts": parts, "sent": sent}


def main() -> None:
    torch.set_num_threads(1)
    for file in sys.argv[1:]:
        load(file)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENCE_S))
    link = gradwire.Link(timeout=PATIENCE_S)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        try:
            answer = _run(json.loads(line), link)
        except Exception as error:  # of this job; the next one may work
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
