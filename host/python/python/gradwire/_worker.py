"""The thread of a `State`: it exchanges buckets, one after the other, and makes the trials of `plan="auto"`."""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any, Callable

import torch

from gradwire import _auto, _gpu, _native
from gradwire._native import Error, Plan
from gradwire._returned import Returned


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


class Raised:
    """An exception on its way from the thread to `backward`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        # A GPU's future pickles what it is given, to find tensors; not every exception can be
        # pickled, and none has any.
        return Raised, (Error(),)


def _result(future: torch.futures.Future[Any]) -> torch.Tensor:
    # DDP takes no future with an exception; it does take one whose callback raises.
    value = future.value()
    if isinstance(value, Raised):
        raise value.error
    return value


class Worker:
    """The thread that exchanges buckets, one after the other: in DDP's order, which is the same at all ranks."""

    def __init__(self, channel: _native.Channel, plan: Plan, rank: int, ranks: int) -> None:
        self.channel, self.plan, self.done, self.why = channel, plan, Done(), ""
        self.rank, self.ranks = rank, ranks
        # When each iteration of a trial began, and the one after them.
        self.trials: list[float] = []
        self.process = os.getpid()
        self.queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.closed = False
        # The first one. After it, ranks differ in what they exchanged, so nothing is exchanged any
        # more.
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
        # Not before: what is put while another thread closes may come behind the end, where nobody
        # runs it.
        if self.closed:
            raise Error("this gradwire.State is closed: make another one")

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
                value = Raised(error)
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
        # The collector may run in this thread, and find the state there. Then it ends behind this
        # job.
        if threading.current_thread() is not self.thread:
            self.thread.join()
