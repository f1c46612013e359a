import os
from ipaddress import IPv4Address, IPv6Address

import torch

__version__: str

class Error(RuntimeError):
    """The ranks of a job cannot exchange gradients."""

    reporter: int | None
    """The rank that saw why; None if nothing was exchanged yet, or if a server saw it."""
    cause: str | None
    """The cause as that rank saw it, with the rank that is to blame."""

class Coder:
    """The codec `q8:BLOCK` or `q4:BLOCK`, by its bits, on tensors of the CPU: f32, and uint8 for messages."""

    def __init__(self, bits: int, block: int) -> None: ...
    def encode(self, gradient: torch.Tensor, residual: torch.Tensor, part: int, messages: torch.Tensor) -> None: ...
    def encode_mean(self, received: torch.Tensor, residual: torch.Tensor, message: torch.Tensor) -> None: ...
    def mean(self, received: torch.Tensor, mean: torch.Tensor) -> None: ...
    def decode(self, messages: torch.Tensor, part: int, values: torch.Tensor) -> None: ...

class Plan:
    """A plan: what `State(plan=...)` takes, read once."""

    def __init__(self, text: str) -> None:
        """Reads the short form, such as "low-rank:8", or the file of "@FILE". ValueError if there is no such plan, OSError if no such file."""
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan:
        """Reads a file of TOML, with a row for each kind of tensor (docs/collectives.md)."""
    @property
    def tagged(self) -> int | None:
        """Does it need connections that the network compresses?"""
    def check_served(self) -> None:
        """ValueError if a server cannot sum what it sends."""

class Layout:
    def __init__(self, tensors: list[tuple[str, int, int]]) -> None: ...

class Listening:
    def __init__(
        self,
        token: str,
        timeout_s: float,
        tagged: int | None,
        root: IPv4Address | IPv6Address,
        served: bool,
        tls: bool = False,
        streams: int = 1,
        relay: bool = False,
        port: int = 0,
    ) -> None: ...
    @property
    def port(self) -> int | None: ...
    def join(self, rank: int, ranks: int, root: IPv4Address | IPv6Address, port: int) -> Channel: ...

class Channel:
    def exchange(
        self, tensor: torch.Tensor, layout: Layout, plan: Plan, compare: bool, scale: float | None = None
    ) -> tuple[float, float, int, int, bool]: ...
    def mark(self) -> None: ...
    def undo(self) -> None: ...
    def sum(self, tensor: torch.Tensor) -> None: ...
    def begin(self, weights: torch.Tensor, layout: Layout, plan: Plan) -> bool: ...
    def save(self) -> bytes: ...
    def load(self, saved: list[bytes], me: int) -> None: ...
    def resume(self, saved: bytes) -> None: ...
    def names(self) -> list[str]: ...
    def largest_residual(self) -> float: ...
    def close(self) -> None: ...

class Server:
    def __init__(
        self,
        listen: str,
        workers: int,
        token: str,
        timeout_s: float,
        optimizer: tuple[float, float, list[float]] | None,
        returns: str,
        tls: bool = False,
        streams: int = 1,
        relay: bool = False,
    ) -> None: ...
    @property
    def address(self) -> str | None: ...
    def run(self) -> tuple[int, int, int, float]: ...

def token() -> str: ...
