"""A bucket on a GPU goes through the host's memory, where it is exchanged. The backward pass goes on meanwhile."""

from __future__ import annotations

import torch


def has(tensor: torch.Tensor) -> bool:
    """Whether it is on a GPU of CUDA, or of ROCm, which torch calls the same."""
    return str(tensor.device.type) == "cuda"


class Way:
    """One bucket's way to the host's memory and back, on a stream of its own.

    The thread of the backward pass makes it, whose current stream writes the bucket; another thread calls `there` and `back`.
    """

    def __init__(self, bucket: torch.Tensor) -> None:
        self._bucket = bucket
        self._stream = torch.cuda.Stream(bucket.device)
        self._written = torch.cuda.Event()
        self._written.record(torch.cuda.current_stream(bucket.device))

    def future(self) -> torch.futures.Future[torch.Tensor]:
        """One that may hold the bucket."""
        return torch.futures.Future(devices=[self._bucket.device])

    def there(self) -> torch.Tensor:
        """The bucket's values, in memory of the host that no page fault interrupts."""
        values = _pinned(self._bucket.numel())
        self._copy(values, self._bucket)
        return values

    def back(self, values: torch.Tensor) -> None:
        """Puts them into the bucket. Both copies have ended when these functions return, so no other stream has to wait for them."""
        self._copy(self._bucket, values)

    def _copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._written)
            to.copy_(source, non_blocking=True)
        self._stream.synchronize()


def _pinned(values: int) -> torch.Tensor:
    # Torch keeps such memory for the next one that asks.
    return torch.empty(values, pin_memory=True)
