"""DDP's communication hook: buckets go through a thread of their own, in DDP's order, to the collectives."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import math
import os
import pickle
import queue
import socket
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout

from gradwire import _address, _auto, _gpu, _native
from gradwire._native import Error, Plan
from gradwire._returned import Returned

COMPARE_EVERY = 100
"""Replicas are compared at the first iteration, and then once in so many."""
YEAR_S = 366 * 86_400
"""The longest timeout: what is added to the time of day stays in range."""
BY_HOST = "hierarchy:hosts:"
"""Begins a plan whose groups are the ranks of a host."""


# Of what `state_dict` returns: 2 names ranks and residuals.
_STATE_VERSION = 2


class Link:
    """What the ranks of a job need to reach each other. Each `State` opens connections of its own.

    `group` is a process group, by default that of all ranks. `timeout` is in seconds: how long ranks wait for each other, by
    default as long as torch does. `address` is where other hosts reach this one; only rank 0's counts. By default it is that of
    the network interface GRADWIRE_IFNAME or GLOO_SOCKET_IFNAME (of a list, the first that has one), or the one that leads to MASTER_ADDR.
    `token_file` has the token of a server, if there is one; only rank 0 reads it. By default GRADWIRE_TOKEN_FILE names it.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        timeout: float | None = None,
        address: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if not dist.is_initialized():
            raise Error("torch.distributed is not initialised: call init_process_group first")
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        if self.rank < 0:
            raise Error("this process is not in the group: make the link in the group's processes only")
        self.timeout = default_pg_timeout.total_seconds() if timeout is None else float(timeout)
        if not 0 < self.timeout <= YEAR_S:
            raise ValueError(f"timeout {self.timeout:g}: expected seconds, more than 0 and at most {YEAR_S}, a year")
        self._address = address
        self._token_file = token_file or os.environ.get("GRADWIRE_TOKEN_FILE")
        self._process = os.getpid()
        self._states: weakref.WeakSet[State] = weakref.WeakSet()

    def _open(self, plan: Plan, said: str, server: str | None) -> tuple[_native.Channel, list[str]]:
        """All ranks call it, with one plan; also if one of them fails, so that none waits for it. Also says on which host each is."""
        _same_process(self._process)
        listening = token = root = port = source = wrong = None
        try:
            if self.rank == 0 and server is not None:
                if not self._token_file:
                    raise Error("a server has a token: name its file by GRADWIRE_TOKEN_FILE or Link(token_file=...)")
                with open(self._token_file, encoding="ascii") as file:
                    token = file.read().strip()
                (root, port), source = _address.server(server), f"from server={server!r}"
            elif self.rank == 0:
                token, (root, source) = _native.token(), _address.own(self._address)
                listening = _native.Listening(token, self.timeout, plan.tagged, root, False)
                port = listening.port
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        text = said + (f" with server {server}" if server else "")
        host = os.environ.get("GRADWIRE_HOST") or socket.gethostname()
        mine = (_native.__version__, text, wrong, token, root, port, source, host, _address.network())
        everybody = self._gathered(mine)
        version, text = everybody[0][:2]
        for rank, theirs in enumerate(everybody):
            if theirs[2]:
                raise Error(f"rank {rank} cannot open a link: {theirs[2]}")
            if theirs[:2] != (version, text):
                raise Error(f"rank {rank} has gradwire {theirs[0]} and plan {theirs[1]!r}, rank 0 {version} and {text!r}: give all ranks the same")
        # Another version may say more or less.
        *_, hosts, networks = (list(each) for each in zip(*everybody))
        token, root, port, source = everybody[0][3:7]
        advertised = f"rank 0 advertises {root} port {port}, {source}"
        remedy = _address.REMEDY if server is None else _address.REMEDY_OF_SERVER
        if wrong := _address.unreachable(root, networks, hosts):
            raise Error(f"{advertised}: {wrong}; {remedy}")
        if listening is None:
            listening = _native.Listening(token, self.timeout, plan.tagged, root, server is not None)
        # With a server, rank 0 of the link is the server's, and each other rank is one more than in the process group.
        before = int(server is not None)
        try:
            channel = listening.join(self.rank + before, self.ranks + before, root, port)
        except Error as error:
            error.args = (f"{error}; {advertised}: if a rank does not reach that, {remedy}",)
            raise
        return channel, hosts

    def _gathered(self, mine: Any) -> list[Any]:
        """Everybody's. Torch's all_gather_object waits as long as the group does, whatever this link's timeout is; gloo's futures know better."""
        if dist.get_backend(self.group) != "gloo":
            everybody: list[Any] = [None] * self.ranks
            dist.all_gather_object(everybody, mine, group=self.group)
            return everybody
        until = time.monotonic() + self.timeout

        def gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
            rows = [torch.empty_like(tensor) for _ in range(self.ranks)]
            left = datetime.timedelta(seconds=max(until - time.monotonic(), 0.001))
            dist.all_gather(rows, tensor, group=self.group, async_op=True).wait(left)
            return rows

        said = torch.frombuffer(bytearray(pickle.dumps(mine)), dtype=torch.uint8)
        try:
            lens = [int(row) for row in gathered(torch.tensor([said.numel()]))]
            rows = gathered(torch.nn.functional.pad(said, (0, max(lens) - said.numel())))
        except RuntimeError as error:
            raise Error(
                f"not all {self.ranks} ranks opened this link within {self.timeout:g} s: {error}; all of them make a gradwire.State "
                "together. If one of them only needs longer, give Link(timeout=...), and init_process_group(timeout=...) if that is less"
            ) from error
        return [pickle.loads(row[:len].numpy().tobytes()) for row, len in zip(rows, lens)]

    def close(self) -> None:
        """Closes all states of this link: waits for exchanges under way, then ends threads and connections."""
        for state in list(self._states):
            state.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire.Link cannot be pickled or copied: make one in each process")


@dataclasses.dataclass(frozen=True)
class Report:
    """What a `State` did so far, at this rank."""

    plan: str
    """The plan."""
    why: str
    """Why that one, if `plan="auto"` chose it."""
    rank: int
    """This rank."""
    ranks: int
    """How many ranks there are."""
    iterations: int
    """Backward passes with an exchange."""
    values: int
    """Gradients exchanged, in values."""
    sent_bytes: int
    """Bytes sent."""
    exchange_s: float
    """Seconds of exchanging, in the background of the backward pass."""
    compute_s: float
    """Of these, seconds of coding and summing."""
    held_back: float
    """The largest magnitude of the residuals, in units of the sum over all ranks."""

    @property
    def ratio(self) -> float:
        """How many times as many bytes a ring of f32 would have sent."""
        return 8 * (self.ranks - 1) / self.ranks * self.values / self.sent_bytes if self.sent_bytes else 1.0

    def __str__(self) -> str:
        each = 1 / max(self.iterations, 1)
        return (
            f"gradwire {self.plan}: rank {self.rank} of {self.ranks}, {self.iterations} iterations; each exchanged "
            f"{self.values * each:,.0f} values in {self.sent_bytes * each / 1000:,.1f} kB sent ({self.ratio:.1f} times less than "
            f"a ring of f32) and {self.exchange_s * each * 1000:.2f} ms, {self.compute_s * each * 1000:.2f} of them computing"
            + (f"; {self.why}" if self.why else "")
        )


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
        # Not yet decided, which starts as f32?
        self._open = plan == "auto"
        said = plan if isinstance(plan, str) else str(plan)
        by_host = said.startswith(BY_HOST)
        if isinstance(plan, str):
            # Groups of one are as good as any until all have said where they are.
            plan = Plan("f32" if self._open else plan.replace(BY_HOST, "hierarchy:1:", 1) if by_host else plan)
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
                # DDP puts a prefix before each name. Other models with a part called "module" do not.
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
        self._layouts: dict[tuple[int, ...], _Layout] = {}
        # By name, the oldest first.
        self._pending: dict[str, collections.deque[tuple[torch.futures.Future[Any] | None, torch.Tensor]]] = {}
        self._iteration = 0
        channel, hosts = link._open(plan, said if self._open or by_host else str(plan), server)
        if by_host:
            plan = Plan(said.replace(BY_HOST, f"hierarchy:{_ranks_a_host(hosts)}:", 1))
        self._worker = _Worker(channel, plan, link.rank, link.ranks)
        # Also at exit, if nobody calls close.
        self._end = weakref.finalize(self, self._worker.close)
        link._states.add(self)

    def _layout(self, bucket: dist.GradBucket) -> _Layout:
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = _Layout([self._name(parameter) for parameter in parameters], parameters)
        return found

    def _name(self, parameter: torch.Tensor) -> str:
        if id(parameter) not in self._names:
            self._names[id(parameter)] = (f"parameter.{self._unnamed}", parameter)
            self._unnamed += 1
        return self._names[id(parameter)][0]

    def _begin(self, parameters: list[torch.Tensor]) -> None:
        """The server's optimizer starts from rank 0's weights, and so do all ranks."""
        if self._server is None or self._pipeline or self._open:
            raise ValueError("a ServedOptimizer needs State(server=...), a plan other than auto, and no pipeline")
        self.drain()
        layout = _Layout([self._name(parameter) for parameter in parameters], parameters)
        weights = torch.cat([parameter.detach().flatten().cpu() for parameter in parameters])
        whole = self._worker.channel.begin(weights, layout.native, self._worker.plan)
        self._returned = Returned(whole, dict(zip(layout.names, weights.split(layout.lens))))
        with torch.no_grad():
            for parameter, values in zip(parameters, weights.split(layout.lens)):
                parameter.copy_(values.view_as(parameter))

    def _hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        _same_process(self._process)
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
        if self._open and bucket.index() == 0 and self._iteration >= _auto.TRIAL:
            self._worker.post(self._worker.next_trial)
            self._open = self._iteration < _auto.TRIAL + _auto.ALL
        layout = self._layout(bucket)
        if layout.values != buffer.numel():
            raise Error(f"DDP's bucket has {buffer.numel()} values, its parameters {layout.values}")
        compare = self._iteration % COMPARE_EVERY == 1
        if not self._pipeline or self._iteration <= self._warmup:
            ends = (bucket.index() == 0, bucket.is_last())
            return self._worker.submit(buffer, layout, compare, self._returned, self._scale, ends)
        return self._pipelined(buffer, layout, compare)

    def _pipelined(self, buffer: torch.Tensor, layout: _Layout, compare: bool) -> torch.futures.Future[torch.Tensor]:
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
        _same_process(self._process)
        self._worker.drain()

    def report(self) -> Report:
        """What was exchanged so far, after `drain`."""
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
        """What a checkpoint needs of this rank: each rank saves its own."""
        self.drain()
        residuals = self._worker.channel.save()
        return {
            "version": _STATE_VERSION,
            "plan": "auto" if self._open else str(self._worker.plan),
            "rank": self._rank,
            "ranks": self._ranks,
            "iteration": self._iteration,
            # A tensor, which torch.load takes from anybody.
            "residuals": torch.frombuffer(bytearray(residuals), dtype=torch.uint8),
            "pending": {name: [values.clone() for _, values in pending] for name, pending in self._pending.items()},
        }

    def load_state_dict(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
        """Goes on from a checkpoint: with this rank's own state, or with those of all ranks, if there were more or fewer of them.

        Another plan may take over the residual.
        """
        self.drain()
        dicts = [saved] if isinstance(saved, dict) else sorted(saved, key=lambda one: one["rank"])
        for one in dicts:
            if one["version"] != _STATE_VERSION:
                raise ValueError(f"this state has version {one['version']}: expected {_STATE_VERSION}; another gradwire saved it")
        first = dicts[0]
        residuals = [bytes(one["residuals"].numpy().tobytes()) for one in dicts]
        if len(dicts) == 1 and isinstance(saved, dict):
            if (first["rank"], first["ranks"]) != (self._rank, self._ranks):
                raise ValueError(
                    f"this state is that of rank {first['rank']} of {first['ranks']}, and this is rank {self._rank} of "
                    f"{self._ranks}: give each rank its own, or all ranks a list of all of them"
                )
            self._worker.channel.resume(residuals[0])
        else:
            if [one["rank"] for one in dicts] != list(range(first["ranks"])):
                ranks = ", ".join(str(one["rank"]) for one in dicts)
                raise ValueError(f"states of ranks {ranks}: expected those of all {first['ranks']} ranks")
            self._worker.channel.load(residuals, self._rank)
        names = sorted({*self._worker.channel.names(), *first["pending"]})
        known = {name for name, _ in self._names.values()}
        strange = [name for name in names if (name not in known if self._named else not name.startswith("parameter."))]
        if strange:
            have = "has parameters of other names" if self._named else "was made without model=..., and counts them"
            raise ValueError(
                f"this state has residuals of {', '.join(strange[:3])}{', ...' if len(strange) > 3 else ''}, and this State {have}: give "
                "State the model if, and only if, the one that was saved had it"
            )
        if self._open and first["plan"] != "auto":
            self._worker.plan, self._worker.why = Plan(first["plan"]), "decided before the checkpoint"
            self._open = False
        if self._open:
            # Trials that were made since that checkpoint do not count.
            self._worker.restart_trials()
        self._iteration = 0 if self._open else first["iteration"]
        # Of another width: the newest of them, or fewer.
        self._pending = {name: collections.deque(((None, one.clone()) for one in values), self._late) for name, values in first["pending"].items()}

    def close(self) -> None:
        """Waits for exchanges under way, then ends the thread and the connections. A second call does nothing."""
        if os.getpid() == self._process:
            self._end()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire.State cannot be pickled or copied: save its state_dict()")


class _Layout:
    """The parameters of a bucket."""

    def __init__(self, names: list[str], parameters: list[torch.Tensor]) -> None:
        self.names = names
        self.lens = [parameter.numel() for parameter in parameters]
        self.values = sum(self.lens)
        rows = [parameter.shape[0] if parameter.dim() > 1 else 1 for parameter in parameters]
        self.native = _native.Layout(list(zip(names, self.lens, rows)))


class _Done:
    """Sums over all exchanges."""

    values = sent_bytes = 0
    exchange_s = compute_s = 0.0


class _Raised:
    """An exception on its way from the thread to `backward`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        # A GPU's future pickles what it is given, to find tensors; not every exception can be pickled, and none has any.
        return _Raised, (Error(),)


def _result(future: torch.futures.Future[Any]) -> torch.Tensor:
    # DDP takes no future with an exception; it does take one whose callback raises.
    value = future.value()
    if isinstance(value, _Raised):
        raise value.error
    return value


class _Worker:
    """The thread that exchanges buckets, one after the other: in DDP's order, which is the same at all ranks."""

    def __init__(self, channel: _native.Channel, plan: Plan, rank: int, ranks: int) -> None:
        self.channel, self.plan, self.done, self.why = channel, plan, _Done(), ""
        self.rank, self.ranks = rank, ranks
        # When each iteration of a trial began, and the one after them.
        self.trials: list[float] = []
        self.process = os.getpid()
        self.queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.closed = False
        # The first one. After it, ranks differ in what they exchanged, so nothing is exchanged any more.
        self.error: BaseException | None = None
        # With a scale: were all means of this iteration finite so far?
        self.finite = True
        self.thread = threading.Thread(target=self.run, name="gradwire", daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            while (job := self.queue.get()) is not None:
                try:
                    job()
                except BaseException as error:  # the thread goes on, or others wait for it for ever
                    self.fail(error)
                del job  # and with it the bucket
        finally:
            self.channel.close()

    def post(self, job: Callable[[], None]) -> None:
        """Lets the thread run it."""
        self.check()
        self.queue.put(job)
        # Not before: what is put while another thread closes may come behind the end, where nobody runs it.
        if self.closed:
            raise Error("this gradwire.State is closed: make another one")

    def submit(
        self,
        tensor: torch.Tensor,
        layout: _Layout,
        compare: bool,
        returned: Returned | None = None,
        scale: float | None = None,
        ends: tuple[bool, bool] = (False, False),
    ) -> torch.futures.Future[torch.Tensor]:
        """`ends` says whether the bucket is the first or the last of its iteration, which matters with a `scale`."""
        way = _gpu.Way(tensor) if _gpu.has(tensor) else None
        future: torch.futures.Future[Any] = way.future() if way else torch.futures.Future()
        result = future.then(_result)

        def job() -> None:
            value: Any = tensor
            try:
                self.check()
                values = way.there() if way else tensor
                first, last = ends
                if scale is not None and first:
                    self.channel.mark()
                    self.finite = True
                seconds, compute, sent, finite = self.channel.exchange(values, layout.native, self.plan, compare, scale)
                self.finite &= finite
                if last and not self.finite:
                    # All ranks have the same bits, and skip this step.
                    self.channel.undo()
                self.done.values += layout.values
                self.done.exchange_s += seconds
                self.done.compute_s += compute
                self.done.sent_bytes += sent
                if returned is not None:
                    returned.keep(values, layout.names, layout.lens)
                if way:
                    way.back(values)
            except BaseException as error:  # whatever it is, backward must not wait for ever
                self.fail(error)
                value = _Raised(error)
            future.set_result(value)

        self.post(job)
        return result

    def restart_trials(self) -> None:
        """Forgets `auto`'s trials. The thread is idle."""
        self.trials.clear()
        self.plan = Plan(_auto.plan(0))

    def next_trial(self) -> None:
        """Begins an iteration of `auto`'s trials, or chooses after the last one: as the slowest rank saw each, so all choose the same."""
        self.trials.append(time.monotonic())
        if len(self.trials) <= _auto.ALL:
            self.plan = Plan(_auto.plan(len(self.trials) - 1))
            return
        table = torch.zeros(self.ranks, _auto.ALL)
        table[self.rank] = torch.tensor([end - began for began, end in zip(self.trials, self.trials[1:])])
        self.channel.sum(table.view(-1))
        text, self.why = _auto.choose(table.max(0).values.tolist())
        self.plan = Plan(text)

    def fail(self, error: BaseException) -> None:
        """Keeps the first error. The others are told that this rank has left: they must not wait for what it will not send."""
        if self.error is None:
            self.error = error
            self.channel.close()

    def check(self) -> None:
        """Raises the first error."""
        if self.error is not None:
            raise self.error

    def drain(self) -> None:
        if threading.current_thread() is self.thread:
            raise Error("this is the thread that exchanges, and it cannot wait for itself: call this outside of a future's callbacks")
        idle = threading.Event()
        self.queue.put(idle.set)
        # As in `post`.
        if not self.closed:
            idle.wait()
        self.check()

    def close(self) -> None:
        if os.getpid() != self.process:
            return
        if not self.closed:
            self.closed = True
            self.queue.put(None)
        # The collector may run in this thread, and find the state there. Then it ends behind this job.
        if threading.current_thread() is not self.thread:
            self.thread.join()


def _ranks_a_host(hosts: list[str]) -> int:
    """How many ranks each host has; the last may have fewer. `hosts` has each rank's."""
    size = next((rank for rank, host in enumerate(hosts) if host != hosts[0]), len(hosts))
    groups = [hosts[first : first + size] for first in range(0, len(hosts), size)]
    if any(len(set(group)) > 1 for group in groups) or len({group[0] for group in groups}) < len(groups):
        raise Error(
            f"ranks are on hosts {', '.join(hosts)}: {BY_HOST} needs neighbouring ranks on each host, equally many on all but the last; "
            "start ranks so, or group them by hierarchy:GROUP:"
        )
    return size


def _same_process(process: int) -> None:
    if os.getpid() != process:
        raise Error("this process was forked from the one that made the link: make links and states after forking")
