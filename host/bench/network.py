"""A small network on one machine: namespaces, one for each worker, at the ports of one bridge. Needs root and iproute2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any

PATIENCE_S = 120
"""Processes that are silent for so long have failed."""
READY = "ready"
"""A shim logs a line with this word."""


def _ip(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip() or done.returncode} (the benchmark needs root and iproute2)")


class Network:
    """`workers` namespaces. Each has the interface `eth0` and the address that `address` says.

    With `shim`, the path of `gradwire-xdp` and options of its `run`, each worker has a shim of its own between `eth0` and the network.
    """

    def __init__(self, workers: int, shim: list[str] | None = None) -> None:
        # Others may run the same benchmark.
        self._name = f"gwb{os.getpid() % 100_000}"
        self.workers = workers
        self._made: list[str] = []
        self._shim = shim
        self._shims: list[subprocess.Popen[str]] = []

    def namespace(self, worker: int) -> str:
        """The name of a worker's namespace."""
        return f"{self._name}w{worker}"

    @staticmethod
    def address(worker: int) -> str:
        """A worker's IPv4 address."""
        return f"10.77.0.{worker + 1}"

    def start(self, worker: int, words: list[str], environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Starts a command in a worker's namespace, with text at the pipes that `options` ask for."""
        command = ("ip", "netns", "exec", self.namespace(worker), *words)
        return subprocess.Popen(command, env=os.environ | (environment or {}), text=True, **options)

    def rank(self, rank: int, ranks: int) -> dict[str, str]:
        """Returns the environment of one of so many ranks for torch."""
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
        }

    def __enter__(self) -> Network:
        # Otherwise SIGTERM ends the process at once, and the namespaces stay.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def _make(self) -> None:
        bridge = f"{self._name}b"
        self._add(bridge)
        _ip("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
        _ip("ip", "-n", bridge, "link", "set", "bridge", "up")
        for worker in range(self.workers):
            namespace = self.namespace(worker)
            self._add(namespace)
            port = f"port{worker}"
            if self._shim:
                self._add_shim(self._shim, worker, bridge, port)
            else:
                _ip("ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("ip", "-n", bridge, "link", "set", port, "master", "bridge", "up")
            _ip("ip", "-n", namespace, "address", "add", f"{self.address(worker)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("ip", "-n", namespace, "link", "set", device, "up")

    def _add_shim(self, shim: list[str], worker: int, bridge: str, port: str) -> None:
        """`eth0` - `host` - the shim - `net` - the bridge's `port`."""
        namespace, between = self.namespace(worker), f"{self._name}s{worker}"
        self._add(between)
        _ip("ip", "-n", between, "link", "add", "host", "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "net", "netns", between)
        _ip("ip", "-n", between, "link", "add", "between", "type", "bridge")
        for device in ("host", "net"):
            _ip("ip", "-n", between, "link", "set", device, "master", "between")
            _ip("ip", "netns", "exec", between, "ethtool", "-K", device, "gro", "off")
        for device in ("host", "net", "between"):
            _ip("ip", "-n", between, "link", "set", device, "up")
        # A shim takes frames as they are on a wire.
        _ip("ip", "netns", "exec", namespace, "ethtool", "-K", "eth0", "tso", "off", "gso", "off", "gro", "off")
        _ip("ip", "-n", bridge, "link", "set", port, "up")
        # The busy machine may let a shim wait longer than a network would; its frames then went by,
        # uncompressed.
        words = ("--host", "host", "--net", "net", "--limit-ms", "600000", "--run-dir", f"/run/{between}")
        command = ("ip", "netns", "exec", between, shim[0], "run", *words, *shim[1:])
        process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE)
        self._shims.append(process)
        assert process.stderr
        said = []
        for line in process.stderr:
            said.append(line)
            if READY in line:
                return
        raise SystemExit(f"{' '.join(command)}: {''.join(said).strip() or 'ended'}")

    def _add(self, namespace: str) -> None:
        _ip("ip", "netns", "add", namespace)
        self._made.append(namespace)

    def limit(self, megabits: int) -> None:
        """Limits each port to so many Mbit/s, both ways; with shims, only towards the worker: what a shim sends passes no queue."""
        burst = max(16, megabits // 8)  # a millisecond's worth, in kilobytes
        # A network card cuts long segments into frames. Here the queue would, on the processors
        # that workers need: half of their time at 200 Mbit/s.
        longest = str(min(1000 * burst - 1514, 65_536))
        limit = ("root", "tbf", "rate", f"{megabits}mbit", "burst", f"{burst}kb", "latency", "200ms")
        for worker in range(self.workers):
            ends = [(f"{self._name}b", f"port{worker}"), *([] if self._shim else [(self.namespace(worker), "eth0")])]
            for namespace, device in ends:
                _ip("ip", "-n", namespace, "link", "set", device, "gso_max_size", longest)
                _ip("tc", "-n", namespace, "qdisc", "replace", "dev", device, *limit)

    def _remove(self) -> None:
        for process in self._shims:
            process.terminate()
            process.wait()
        self._shims.clear()
        for namespace in reversed(self._made):
            subprocess.run(("ip", "netns", "delete", namespace), capture_output=True)
        self._made.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()


class Ranks:
    """Processes of a job of torch, one for each rank, which take work, a line of JSON each, and answer with such a line."""

    def __init__(self, network: Network, ranks: int, words: list[str], per_host: int = 1) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        for rank in range(ranks):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._processes.append(network.start(rank // per_host, words, network.rank(rank, ranks), **pipes))

    def run(self, work: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns all answers to this work."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(json.dumps(work) + "\n")
            process.stdin.flush()
        return self.answers()

    def answers(self) -> list[dict[str, Any]]:
        """Returns the next answer of each; `{"error": ...}` of a process that has ended."""
        answers = []
        for rank, process in enumerate(self._processes):
            assert process.stdout
            line = process.stdout.readline()
            answers.append(json.loads(line) if line else {"error": f"rank {rank} ended"})
        return answers

    def stop(self) -> None:
        """Ends them."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
