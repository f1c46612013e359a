"""Where exchanges run while the backward pass goes on: a stream of the accelerator, or a thread on CPUs."""

from __future__ import annotations

import collections
import time
from typing import Any, Callable

import torch

from gradwire._thread import JobThread
from gradwire.device.exchange import Group


class StreamLane:
    """A stream of its own: the host only enqueues there, so nothing waits and order is the caller's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream(device)
        # Where each job begins and ends on the stream, and the seconds of those that are gone.
        self._spans: collections.deque[tuple[Any, Any]] = collections.deque()
        self._seconds = 0.0

    def post(self, job: Callable[[], None]) -> None:
        """Enqueues the job behind what the stream of exchanges has so far."""
        with self._module.stream(self._stream):
            job()

    def run(self, job: Callable[[], None], tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Enqueues the job behind what the current stream has so far. Streams that wait for the future wait for the job."""
        self._stream.wait_stream(self._module.current_stream(self._device))
        # With its device, the future makes waiting streams wait; without, nobody would.
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[self._device])
        begin, end = (self._module.Event(enable_timing=True) for _ in range(2))
        with self._module.stream(self._stream):
            begin.record()
            job()
            tensor.record_stream(self._stream)
            end.record()
            future.set_result(tensor)
        self._spans.append((begin, end))
        while len(self._spans) > 1 and self._spans[0][1].query():
            self._count()
        return future

    def _count(self) -> None:
        begin, end = self._spans.popleft()
        self._seconds += begin.elapsed_time(end) / 1000

    def seconds(self) -> float:
        """Returns the seconds of all jobs so far. It waits for them."""
        self.drain()
        while self._spans:
            self._count()
        return self._seconds

    def drain(self) -> None:
        self._stream.synchronize()

    def close(self) -> None:
        self.drain()


class ThreadLane(JobThread):
    """A thread, with the same methods. At its first failure, and at its end, it leaves the groups that it alone uses."""

    def __init__(self, *groups: Group) -> None:
        self._seconds, self._groups = 0.0, groups
        super().__init__()

    def leave(self) -> None:
        for group in self._groups:
            group.leave(self.error)

    def run(self, job: Callable[[], None], tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        def timed() -> None:
            begin = time.perf_counter()
            job()
            self._seconds += time.perf_counter() - begin

        return super().run(timed, tensor)

    def seconds(self) -> float:
        self.drain()
        return self._seconds


class Inline:
    """The current stream, or thread, of whoever calls: nothing runs in the background."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def post(self, job: Callable[[], None]) -> None:
        job()

    def run(self, job: Callable[[], None], tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        begin = time.perf_counter()
        job()
        self._seconds += time.perf_counter() - begin
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(None)
        return future

    def seconds(self) -> float:
        return self._seconds

    def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def later(value: torch.Tensor) -> Callable[[], Any]:
    """Returns what returns the value's numbers once the current stream has them, and None before: asking never waits."""
    if value.device.type == "cpu":
        numbers = value.tolist()
        return lambda: numbers
    on_host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    on_host.copy_(value, non_blocking=True)
    there = torch.get_device_module(value.device).Event()
    there.record()
    return lambda: on_host.tolist() if there.query() else None
