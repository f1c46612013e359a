"""`LocalSteps`: ranks train alone for some iterations, and then average what they moved."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradwire._link import Link, group_of
from gradwire._names import Names
from gradwire._native import Error, Plan, __version__
from gradwire._plan import read
from gradwire._residuals import Place
from gradwire.codec import identity
from gradwire.device.exchange import gathered
from gradwire.device.fsdp import check_shards, sharded_modules
from gradwire.device.plan import PREFIX
from gradwire.local.exchange import Exchange, opened
from gradwire.local.fragment import Outer, divided, flat, put
from gradwire.local.rounds import Act, Rounds, settle

MOST = 32
"""The most iterations of a round that `every="auto"` chooses."""
TRIALS = 3
"""Its rounds before that; the first one does not count."""
WORTH = 0.1
"""It chooses the shortest round of which the exchange takes at most this part."""


@dataclasses.dataclass(frozen=True)
class LocalReport:
    """The rounds of a `LocalSteps` so far, at this rank."""

    plan: str
    """The plan."""
    rank: int
    """This rank."""
    ranks: int
    """The number of ranks."""
    every: int
    """Iterations of a round."""
    iterations: int
    """Iterations since the start."""
    rounds: int
    """Exchanges, each of a fragment."""
    values: int
    """Values of the model that are exchanged."""
    sent_bytes: int
    """Bytes sent."""
    exchange_s: float
    """Seconds of exchanging, in the background."""
    waited_s: float
    """Seconds that the training waited for it."""
    residual: float
    """The largest magnitude of the residuals, in units of a weight."""

    @property
    def ratio(self) -> float:
        """The bytes that a ring of f32 would have sent at each iteration, divided by those sent."""
        ring = 8 * (self.ranks - 1) / self.ranks * self.values * self.iterations
        return ring / self.sent_bytes if self.sent_bytes else 1.0

    def __str__(self) -> str:
        return (
            f"gradwire {self.plan}, local steps: rank {self.rank} of {self.ranks}, {self.iterations} iterations in rounds of {self.every}; "
            f"{self.rounds} exchanges of {self.values:,} values sent {self.sent_bytes / 1e6:,.2f} MB ({self.ratio:.1f} times less than a ring "
            f"of f32 at each iteration) and took {self.exchange_s:.2f} s, {self.waited_s:.2f} of them waited for"
        )


@dataclasses.dataclass
class _Flight:
    """A round under way, of some fragments."""

    deltas: dict[int, torch.Tensor]
    """What this rank sends, by fragment."""
    buffers: torch.Tensor | None
    """Likewise, of its buffers."""
    means: dict[int, torch.Tensor]
    """The means of deltas, once the exchange has ended."""
    mean_of_buffers: torch.Tensor | None
    due: int
    """The iteration at which they are taken over."""
    late: bool
    """Does the rank go on meanwhile?"""
    ended: bool = False
    """Do all ranks take it over?"""
    seconds: float = 0.0
    future: torch.futures.Future[torch.Tensor] | None = None


class LocalSteps:
    """Averages what ranks moved in `every` iterations, in place of their gradients at each one. All ranks make it together.

    The loop is that of one process, without DDP: it counts `optimizer.step()`. At the start, all ranks get rank 0's weights; later,
    with ranks that have trained already, a new one gets the weights and the optimizers' states of one that has.

    `every` is the number of iterations of a round. "auto" measures the first rounds, and then chooses the smallest power of two up to
    32 of whose rounds the exchange takes at most a tenth.
    `plan` is one of `State`: over links, on the CPU, wherever the model is; or with the prefix "group:" over the process group, on the
    model's device. What its messages lose is added to this rank's next one.
    `outer` makes the optimizer of the common weights, which gets the mean of the deltas as their gradient; by default, the mean is
    subtracted, so weights are averaged. DiLoCo's is `lambda p: torch.optim.SGD(p, 0.7, momentum=0.9, nesterov=True)`.
    The first `warmup` iterations exchange at each one.
    With `delay`, ranks go on for so many iterations while messages are under way, and keep what they learn meanwhile.
    The model's parameters are exchanged in `fragments` parts, at different iterations of a round.
    `group` is the process group, by default the link's or that of all ranks. An FSDP2 model needs one: that of the ranks with the same
    shards. Its shards are averaged as they are.

    Float buffers are averaged without a codec. A step that a `GradScaler` skips is no iteration, and ranks then wait for that rank.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        every: int | str = 16,
        plan: str | Plan | os.PathLike[str] = "bounded:4",
        outer: Outer | None = None,
        warmup: int = 0,
        delay: int = 0,
        fragments: int = 1,
        link: Link | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        _check_numbers(every, warmup, delay, fragments)
        if not dist.is_initialized():
            raise Error("torch.distributed is not initialised: call init_process_group first")
        if not hasattr(optimizer, "register_step_post_hook"):
            raise Error(f"torch {torch.__version__} has no hook behind optimizer.step(): local steps need torch 2.0 or newer")
        plan = read(plan)
        group = group_of(link, group)
        model = getattr(model, "_orig_mod", model)
        _check_model(model, group)
        self._model, self._optimizer, self._plan = model, optimizer, plan
        self._auto = every == "auto"
        # Of "auto", until it has chosen: the shortest that it may choose.
        self._least = _power_of_two(fragments * max(delay, 1))
        self.every = max(self._least, 4) if isinstance(every, str) else every
        self._said = (__version__, _compared(plan), str(every), warmup, delay, fragments, getattr(outer, "__qualname__", str(outer)))
        self._warmup, self._delay = warmup, delay
        names = Names(model)
        named = [(names.name(each), each) for each in model.parameters() if each.requires_grad]
        if not named:
            raise ValueError("the model has no parameters that require gradients")
        self._fragments = divided(named, fragments, outer)
        self._device = self._fragments[0].common.device
        self._buffers = [each for each in model.buffers() if each.is_floating_point()]
        self._common_buffers = flat(self._buffers) if self._buffers else None
        self._rounds: Rounds[_Flight] = Rounds()
        # The one under way, whether or not its mean is there.
        self._flight: _Flight | None = None
        # Has it trained with others yet?
        self._new = True
        # All, and those since the last change of `every`, or since the last `resume`.
        self._iteration = self._since = 0
        self._swapped = False
        self._exchange_s = self._waited_s = 0.0
        self._sent_before = 0
        self._stepped: float | None = None
        self._step_s: list[float] = []
        self._trial_s: list[float] = []
        self._exchange: Exchange | None = None
        share = self._open(link, group)
        if self._rounds.number:
            self._send(range(len(self._fragments)), 0, share)
        self._hook = optimizer.register_step_post_hook(lambda *_: self._step())

    def _open(self, link: Link | None, group: dist.ProcessGroup | None) -> float:
        """Brings all ranks together: each takes over, drops or copies what the others say. Returns ranks per rank that is not new."""
        standing = None if self._new else self._rounds.standing()
        shapes = [(each.names, each.shapes) for each in self._fragments]
        everybody = gathered((self._said, shapes, standing, self._iteration), group)
        for rank, (said, theirs, *_) in enumerate(everybody):
            if said != everybody[0][0]:
                raise Error(f"rank {rank} has {_told(said)}, rank 0 {_told(everybody[0][0])}: give all ranks the same")
            if theirs != everybody[0][1]:
                raise Error(f"rank {rank} has parameters of other names or shapes than rank 0: give all ranks the same model")
        acts, source = settle([standing for *_, standing, _ in everybody])
        act = acts[dist.get_rank(group)]
        residuals = self._settled(act)
        if Act.COPY in acts:
            self._copy(act, source, group)
        self._new = False
        self._exchange = opened(self._plan, link, group, self._device, shapes)
        if residuals is not None:
            self._exchange.resume(residuals)
        self._place = Place("local", self._exchange.rank, self._exchange.ranks)
        # A rank that saw a death earlier took fewer. The warmup ends for all together.
        self._iteration, self._since = max(iteration for *_, iteration in everybody), 0
        return len(acts) / max(len(acts) - acts.count(Act.COPY), 1)

    def _settled(self, act: Act) -> Any:
        """Ends what was under way when the ranks parted, and returns this rank's residuals."""
        if self._exchange is None:
            return None
        flight, self._flight = self._flight, None
        if act is Act.TAKE_OVER:
            flight = self._rounds.take_over()
            self._exchange.commit()
        elif flight is not None and not flight.ended:
            # Its weights still have what it sent.
            self._rounds.drop()
            self._exchange.undo()
            flight = None
        if flight is not None:
            self._take_over(flight)
        self._sent_before += self._exchange.sent_bytes
        return self._exchange.residuals()

    def _copy(self, act: Act, source: int, group: dist.ProcessGroup | None) -> None:
        """Gives the state of rank `source` of the group to those that are new."""
        sends = act is not Act.COPY and dist.get_rank(group) == source
        sharded = bool(sharded_modules(self._model))
        state: list[Any] = [None]
        if sends:
            inner = None if sharded else self._optimizer.state_dict()
            state = [(self._common_state(), inner, self._rounds.number, self.every, self._auto)]
        whole = dist.group.WORLD if group is None else group
        dist.broadcast_object_list(state, src=dist.get_global_rank(whole, source), group=group)
        if act is not Act.COPY:
            return
        common, inner, self._rounds.number, self.every, self._auto = state[0]
        if self._rounds.number and sharded:
            raise Error("a new rank with FSDP shards cannot copy the optimizer's state of others: start all ranks from a checkpoint")
        self._load_common(common)
        self._use_common()
        if inner is not None and inner["state"]:
            self._optimizer.load_state_dict(inner)

    def _step(self) -> None:
        """Ends an iteration: `optimizer.step()` has just moved the weights."""
        if self._swapped:
            raise Error("optimizer.step() inside of mean(): the common weights are there to be looked at")
        self._opened()
        if self._auto and self._stepped is not None:
            self._step_s.append(time.monotonic() - self._stepped)
        self._iteration += 1
        self._since += 1
        if self._flight is not None and self._iteration >= self._flight.due:
            self._arrive()
        if self._iteration <= self._warmup:
            self._since = 0
            self._send(range(len(self._fragments)), 0)
        else:
            stride = self.every // len(self._fragments)
            if self._since % stride == 0:
                self._send([(self._since // stride - 1) % len(self._fragments)], self._delay)
            if self._auto and self._since == TRIALS * self.every:
                self._choose()
        self._stepped = time.monotonic()

    def _send(self, numbers: Iterable[int], delay: int, share: float = 1.0) -> None:
        """Begins a round of some fragments, and ends it at once if there is no delay. The mean becomes `share` times as large.

        If there are new ranks, who moved nothing yet, it is thus the mean over the others.
        """
        exchange = self._opened()
        self._arrive()
        with torch.no_grad():
            deltas = {number: self._fragments[number].delta() for number in numbers}
            buffers = flat(self._buffers) if self._buffers and 0 in deltas else None
            means = {number: (delta * share).to(exchange.device) for number, delta in deltas.items()}
            mean_of_buffers = None if buffers is None else buffers.to(exchange.device, copy=True)
        flight = _Flight(deltas, buffers, means, mean_of_buffers, self._iteration + delay, bool(delay))
        exchange.wait()

        def job() -> None:
            begin = time.monotonic()
            with exchange.lane():
                for number, mean in means.items():
                    exchange.mean(number, mean)
                if mean_of_buffers is not None:
                    exchange.exact_mean(mean_of_buffers)
                exchange.wait()
                self._rounds.hold(flight)
                # Nobody has this sum before all hold their means.
                exchange.exact_mean(torch.ones(1, device=exchange.device))
                exchange.wait()
            self._rounds.take_over()
            exchange.commit()
            flight.ended = True
            flight.seconds = time.monotonic() - begin

        self._flight = flight
        flight.future = exchange.thread.run(job, next(iter(means.values())))
        if not delay:
            self._arrive()

    def _arrive(self) -> None:
        """Waits for the round under way, and takes its mean over."""
        flight = self._flight
        if flight is None:
            return
        if flight.future is not None:
            begin = time.monotonic()
            with contextlib.suppress(RuntimeError):
                flight.future.wait()
            # Not what the future makes of it.
            self._opened().thread.check()
            self._waited_s += time.monotonic() - begin
            self._exchange_s += flight.seconds
            if self._auto:
                self._trial_s.append(flight.seconds)
        self._flight = None
        self._take_over(flight)

    def _take_over(self, flight: _Flight) -> None:
        """Moves the common weights by the mean, and this rank's by what is between the mean and its own delta."""
        with torch.no_grad():
            for number, delta in flight.deltas.items():
                fragment = self._fragments[number]
                moved = fragment.step(flight.means[number].to(self._device))
                # Else, what it learned since stays.
                fragment.move(delta - moved) if flight.late else fragment.assign()
            if flight.buffers is not None and flight.mean_of_buffers is not None:
                self._common_buffers = flight.mean_of_buffers.to(self._device)
                learned = flat(self._buffers) - flight.buffers if flight.late else 0.0
                put(self._common_buffers + learned, self._buffers)

    def _choose(self) -> None:
        """Chooses `every`, as the slowest rank saw its iterations and exchanges."""
        exchange = self._opened()
        self._arrive()
        table = torch.zeros(exchange.ranks, 2, device=exchange.device)
        exchange_s = min(self._trial_s[len(self._fragments) :]) * len(self._fragments)
        table[exchange.rank] = torch.tensor([statistics.median(self._step_s), exchange_s])
        exchange.thread.run(lambda: exchange.exact_mean(table.view(-1)), table).wait()
        step_s, exchange_s = table.amax(0).tolist()
        self.every = chosen(step_s, exchange_s, self._least)
        self._auto, self._since = False, 0

    def _opened(self) -> Exchange:
        if self._exchange is None:
            raise Error("this LocalSteps is closed: make another one")
        return self._exchange

    def resume(self, group: dist.ProcessGroup | None = None, *, link: Link | None = None) -> None:
        """Goes on among the ranks of a group, after an exchange failed or with ranks that are new, which make their LocalSteps meanwhile.

        It then exchanges what each rank moved since the last round that all took over: what a living rank learned is not lost.
        """
        exchange = self._opened()
        if self._flight is not None and self._flight.future is not None:
            with contextlib.suppress(BaseException):
                self._flight.future.wait()
        exchange.close()
        share = self._open(link, group_of(link, group))
        self._send(range(len(self._fragments)), 0, share)

    @contextlib.contextmanager
    def mean(self) -> Iterator[None]:
        """Lets the model have the common weights and buffers, those after the last round, the same at all ranks; then its own again."""
        if self._swapped:
            raise Error("mean() inside of mean()")
        own = [[weight.clone() for weight in fragment.weights()] for fragment in self._fragments]
        buffers = [buffer.clone() for buffer in self._buffers]
        self._swapped = True
        try:
            self._use_common()
            yield
        finally:
            with torch.no_grad():
                for fragment, weights in zip(self._fragments, own):
                    for weight, value in zip(fragment.weights(), weights):
                        weight.copy_(value)
                for buffer, value in zip(self._buffers, buffers):
                    buffer.copy_(value)
            self._swapped = False

    def _use_common(self) -> None:
        with torch.no_grad():
            for fragment in self._fragments:
                fragment.assign()
            if self._common_buffers is not None:
                put(self._common_buffers, self._buffers)

    def report(self) -> LocalReport:
        """Returns the costs so far. It takes part in no exchange."""
        exchange = self._opened()
        exchange.thread.drain()
        values = sum(fragment.common.numel() for fragment in self._fragments)
        return LocalReport(
            exchange.plan,
            self._place.rank,
            self._place.ranks,
            self.every,
            self._iteration,
            self._rounds.number,
            values,
            self._sent_before + exchange.sent_bytes,
            self._exchange_s,
            self._waited_s,
            exchange.largest_residual(),
        )

    def _common_state(self) -> dict[str, Any]:
        buffers = None if self._common_buffers is None else self._common_buffers.cpu()
        return {"fragments": [fragment.state_dict() for fragment in self._fragments], "buffers": buffers}

    def _load_common(self, saved: dict[str, Any]) -> None:
        if len(saved["fragments"]) != len(self._fragments):
            raise ValueError(f"this state has {len(saved['fragments'])} fragments: give LocalSteps fragments={len(saved['fragments'])}")
        for fragment, state in zip(self._fragments, saved["fragments"]):
            fragment.load_state_dict(state)
        if saved["buffers"] is not None and self._common_buffers is not None:
            self._common_buffers = saved["buffers"].to(self._device)

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's part of a checkpoint, after the round under way; the model's and the optimizer's states are saved beside it."""
        exchange = self._opened()
        exchange.thread.drain()
        flight = self._flight
        under_way = None
        if flight is not None:
            tensors = (*flight.deltas.values(), flight.buffers, *flight.means.values(), flight.mean_of_buffers)
            under_way = (list(flight.deltas), [None if each is None else each.cpu() for each in tensors], flight.due)
        return self._place.state(
            exchange.plan,
            self._iteration,
            {
                **self._common_state(),
                "rounds": self._rounds.number,
                "every": self.every,
                "auto": self._auto,
                "since": self._since,
                "under_way": under_way,
                "sent_bytes": self._sent_before + exchange.sent_bytes,
                "residuals": exchange.residuals(),
            },
        )

    def load_state_dict(self, saved: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
        """Goes on from a checkpoint, behind those of the model and of the optimizer: with this rank's own, or with those of all ranks.

        Those of all serve another number of ranks. All then begin with the common weights: what each moved since the last round is lost.
        """
        exchange = self._opened()
        exchange.thread.drain()
        states, own = self._place.checked(saved)
        state = states[0]
        self._load_common(state)
        self._flight = None
        if own:
            exchange.resume(state["residuals"])
            if state["under_way"] is not None:
                self._flight = _resumed(state["under_way"], exchange.device, self._device)
        else:
            exchange.share([each["residuals"] for each in states])
            self._use_common()
        self._iteration, self.every, self._auto = state["iteration"], state["every"], state["auto"]
        self._since = state["since"] if own else 0
        self._rounds.number = state["rounds"]
        self._sent_before = state["sent_bytes"] - exchange.sent_bytes

    def close(self) -> None:
        """Exchanges what ranks moved since the last round, so all end with the same weights, and closes. A second call does nothing."""
        if self._exchange is None:
            return
        try:
            if self._exchange.thread.error is None:
                self._send(range(len(self._fragments)), 0)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Closes without an exchange."""
        self._hook.remove()
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def __enter__(self) -> LocalSteps:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        # After an exception, others must not wait for an exchange that this rank does not begin.
        self._leave() if kind is not None else self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire.LocalSteps cannot be pickled or copied: save its state_dict()")


def chosen(step_s: float, exchange_s: float, least: int) -> int:
    """Returns the smallest power of two, from `least` on, of whose iterations the exchange takes at most a tenth; 32 if none does, or `least`."""
    every = least
    while every < MOST and exchange_s > WORTH * (every * step_s + exchange_s):
        every *= 2
    return every


def _compared(plan: str | Plan) -> str:
    """Returns what ranks compare of a plan."""
    text = str(plan)
    return PREFIX + identity(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else text


def _power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 0).bit_length()


def _told(said: tuple[Any, ...]) -> str:
    version, plan, every, warmup, delay, fragments, outer = said
    return f"gradwire {version}, plan {plan!r}, every={every}, warmup={warmup}, delay={delay}, fragments={fragments} and outer={outer}"


def _resumed(saved: Any, exchange: torch.device, device: torch.device) -> _Flight:
    numbers, tensors, due = saved
    half = len(numbers) + 1
    *deltas, buffers = (None if each is None else each.to(device) for each in tensors[:half])
    *means, mean_of_buffers = (None if each is None else each.to(exchange) for each in tensors[half:])
    return _Flight(dict(zip(numbers, deltas)), buffers, dict(zip(numbers, means)), mean_of_buffers, due, True, ended=True)


def _check_numbers(every: int | str, warmup: int, delay: int, fragments: int) -> None:
    if isinstance(every, str) and every != "auto" or isinstance(every, int) and every < 1:
        raise ValueError(f"every={every!r}: expected a number of iterations, 1 or more, or 'auto'")
    if warmup < 0 or delay < 0 or fragments < 1:
        raise ValueError(f"warmup={warmup}, delay={delay}, fragments={fragments}: expected 0 or more, 0 or more, and 1 or more")
    if isinstance(every, int) and every % fragments:
        raise ValueError(f"every={every} with fragments={fragments}: one fragment after the other is exchanged, so give a multiple of them")
    if isinstance(every, str) and fragments & (fragments - 1):
        raise ValueError(f"every='auto' with fragments={fragments}: it chooses a power of two, so give one of those")
    if isinstance(every, int) and delay > every // fragments:
        raise ValueError(f"delay={delay}: the next messages begin after {every // fragments} iterations, so give at most these")


def _check_model(model: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    if modules := sharded_modules(model):
        if group is None:
            raise Error("an FSDP2 model without a group: give group=..., the ranks that hold the same shards, as mesh['host'].get_group() is")
        check_shards(modules, group)
    if isinstance(model, DistributedDataParallel):
        whole = dist.get_process_group_ranks(group or dist.group.WORLD)
        shared = sorted(set(whole) & set(dist.get_process_group_ranks(model.process_group)) - {dist.get_rank()})
        if shared:
            raise Error(
                f"DistributedDataParallel averages the gradients of ranks {shared} at each iteration already: give LocalSteps the module alone, or "
                "the group between hosts, and DDP that of this host's ranks"
            )
