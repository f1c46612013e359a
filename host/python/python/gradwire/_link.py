"""Links: the ranks of a process group agree on a plan, a token and an address, and connect."""

from __future__ import annotations

import datetime
import os
import pickle
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout

from gradwire import _address, _native
from gradwire._hosts import this_host
from gradwire._native import Error, Plan
from gradwire._plan import differ

YEAR_S = 366 * 86_400
"""The longest timeout: what is added to the time of day stays in range."""
MAX_STREAMS = 8
"""The most that ranks can tell each other."""


class Link:
    """The way of a job's ranks to each other. Each `State` opens connections of its own.

    `group` is a process group, by default that of all ranks. `timeout` is in seconds: how long ranks wait for each other, by
    default as long as torch does. `address` is where other hosts reach this one; only rank 0's counts. By default it is that of
    the network interface GRADWIRE_IFNAME or GLOO_SOCKET_IFNAME (of a list, the first that has one), or the one that leads to MASTER_ADDR.
    `token_file` has the token of a server, if there is one, or of TLS; without TLS, only rank 0 reads it. By default
    GRADWIRE_TOKEN_FILE names it. `tls` encrypts all connections; by default GRADWIRE_TLS=1 does. Each rank has the token's file
    then, since what the process group carries is not encrypted. `streams` are TCP streams of each connection, 1 to 8: several fill
    a path that is long and fast. By default GRADWIRE_STREAMS says how many. With `relay`, all others connect to rank 0 alone, which
    carries what they send each other; by default GRADWIRE_RELAY=1 says so. `port` is where rank 0 listens; by default GRADWIRE_PORT,
    or one that the system chooses.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        timeout: float | None = None,
        address: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: bool | None = None,
        streams: int | None = None,
        relay: bool | None = None,
        port: int | None = None,
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
        self._tls = _variable("GRADWIRE_TLS", ("0", "1")) == "1" if tls is None else tls
        self._streams = int(_variable("GRADWIRE_STREAMS", tuple("12345678")) or 1) if streams is None else streams
        self._relay = _variable("GRADWIRE_RELAY", ("0", "1")) == "1" if relay is None else relay
        self._port = _port(os.environ.get("GRADWIRE_PORT") or 0, "GRADWIRE_PORT=") if port is None else _port(port, "port ")
        if not 1 <= self._streams <= MAX_STREAMS:
            raise ValueError(f"streams {self._streams}: expected 1 to {MAX_STREAMS}")
        if self._tls and not self._token_file:
            raise Error(
                "TLS needs the job's token at each rank: name its file by GRADWIRE_TOKEN_FILE or Link(token_file=...); "
                "`openssl rand -hex 32` makes one"
            )
        self._process = os.getpid()
        # Of states that are not closed.
        self._closers: list[weakref.finalize[..., Any]] = []

    def open(self, plan: Plan, said: str, server: str | None) -> tuple[_native.Channel, list[str]]:
        """Returns a channel to all ranks, and each rank's host. All ranks call it, with one plan, also if one fails: none waits for it."""
        same_process(self._process)
        listening = token = root = port = source = wrong = None
        try:
            if self._tls or self.rank == 0 and server is not None:
                token = self._token()
            if self.rank == 0 and server is not None:
                (root, port), source = _address.server(server), f"from server={server!r}"
            elif self.rank == 0:
                token, (root, source) = token or _native.token(), _address.own(self._address)
                listening = self._listen(token, plan, root, False, self._port)
                port = listening.port
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        text = said + (f" with server {server}" if server else "")
        text += (", a relay" if self._relay else "") + (", TLS" if self._tls else "") + (f", {self._streams} streams" if self._streams > 1 else "")
        host = this_host()
        # What the process group carries is not encrypted.
        told = None if self._tls else token
        mine = (_native.__version__, text, wrong, told, root, port, source, host, _address.network())
        everybody = self._gathered(mine)
        version, text = everybody[0][:2]
        for rank, theirs in enumerate(everybody):
            if theirs[2]:
                raise Error(f"rank {rank} cannot open a link: {theirs[2]}")
            if theirs[:2] != (version, text):
                one, other = differ(theirs[1], text)
                raise Error(f"rank {rank} has gradwire {theirs[0]} and plan {one}, rank 0 {version} and {other}: give all ranks the same")
        # Another version may say more or less.
        *_, hosts, networks = (list(each) for each in zip(*everybody))
        told, root, port, source = everybody[0][3:7]
        token = told if token is None else token
        advertised = f"rank 0 advertises {root} port {port}, {source}"
        remedy = _address.REMEDY if server is None else _address.REMEDY_OF_SERVER
        if wrong := _address.unreachable(root, networks, hosts):
            raise Error(f"{advertised}: {wrong}; {remedy}")
        if listening is None:
            listening = self._listen(token, plan, root, server is not None)
        # With a server, rank 0 of the link is the server's, and each other rank is one more than in
        # the process group.
        before = int(server is not None)
        try:
            channel = listening.join(self.rank + before, self.ranks + before, root, port)
        except Error as error:
            error.args = (f"{error}; {advertised}: if a rank does not reach that, {remedy}",)
            raise
        return channel, hosts

    def _token(self) -> str:
        if not self._token_file:
            raise Error("a server has a token: name its file by GRADWIRE_TOKEN_FILE or Link(token_file=...)")
        with open(self._token_file, encoding="ascii") as file:
            return file.read().strip()

    def _listen(self, token: str, plan: Plan, root: Any, served: bool, port: int = 0) -> _native.Listening:
        return _native.Listening(token, self.timeout, plan.tagged, root, served, self._tls, self._streams, self._relay, port)

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
        for close in self._closers:
            close()

    def closes(self, close: weakref.finalize[..., Any]) -> None:
        """Lets `close` of this link call it, if nobody has called it before."""
        self._closers = [other for other in self._closers if other.alive] + [close]

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a gradwire.Link cannot be pickled or copied: make one in each process")


def _variable(name: str, values: tuple[str, ...]) -> str | None:
    """Returns a variable of the environment; ValueError if it is none of these."""
    value = os.environ.get(name) or None
    if value is not None and value not in values:
        raise ValueError(f"{name}={value}: expected {values[0]} to {values[-1]}")
    return value


def _port(port: int | str, said: str) -> int:
    """Returns a port, or 0; ValueError if it is none."""
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number < 65536:
        raise ValueError(f"{said}{port}: expected 0 to 65535, of which 0 lets the system choose")
    return number


def group_of(link: Link | None, group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """Returns the process group of a link, or else the one given; None is that of all ranks. ValueError if both are given, and differ."""
    if link is not None and group is not None and link.group is not group:
        raise ValueError("link and group are of different process groups: give one of them")
    return group if link is None else link.group


def same_process(process: int) -> None:
    """Raises if this process is a fork of the one with that number."""
    if os.getpid() != process:
        raise Error("this process was forked from the one that made the link: make links and states after forking")
