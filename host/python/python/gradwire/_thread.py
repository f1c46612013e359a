"""A thread that runs jobs one after the other while `backward` goes on, and gives futures for them."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable

import torch

from gradwire._native import Error


class Raised:
    """An exception on its way from the thread to `backward`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _result(future: torch.futures.Future[Any]) -> torch.Tensor:
    # DDP takes no future with an exception; it does take one whose callback raises.
    value = future.value()
    if isinstance(value, Raised):
        raise value.error
    return value


class JobThread:
    """Runs jobs in their order. After the first failure, all later ones fail with the same error."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.closed = False
        # The first one. After it, ranks differ in what they exchanged, so nothing is exchanged any
        # more.
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, name="gradwire", daemon=True)
        self.thread.start()

    def leave(self) -> None:
        """Tells other ranks that this one exchanges no more: called at the first failure, and at the end."""

    def _work(self) -> None:
        try:
            while (job := self.queue.get()) is not None:
                try:
                    job()
                except BaseException as error:  # the thread goes on, or others wait for it for ever
                    self.fail(error)
                del job  # and with it the bucket
        finally:
            self.leave()

    def post(self, job: Callable[[], None]) -> None:
        """Lets the thread run it."""
        self.check()
        self.queue.put(job)
        # Not before: what is put while another thread closes may come behind the end, where nobody
        # runs it.
        if self.closed:
            raise Error("this gradwire.State is closed: make another one")

    def run(self, job: Callable[[], None], tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Lets the thread run it. The future then has the tensor, or raises what the job raised."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        result = future.then(_result)

        def whole() -> None:
            value: Any = tensor
            try:
                self.check()
                job()
            except BaseException as error:  # whatever it is, backward must not wait for ever
                self.fail(error)
                value = Raised(error)
            future.set_result(value)

        self.post(whole)
        return result

    def fail(self, error: BaseException) -> None:
        """Keeps the first error. The others are told that this rank has left: they must not wait for what it will not send."""
        if self.error is None:
            self.error = error
            self.leave()

    def check(self) -> None:
        """Raises the first error."""
        if self.error is not None:
            raise self.error

    def drain(self) -> None:
        """Waits for all jobs, and raises the first error."""
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
