"""A small network on one machine: namespaces, one for each worker, at the ports of one bridge. Needs root and iproute2."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType


def _ip(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip() or done.returncode} (the benchmark needs root and iproute2)")


class Network:
    """`workers` namespaces. Each has the interface `eth0` and the address that `address` says."""

    def __init__(self, workers: int) -> None:
        # Others may run the same benchmark.
        self._name = f"gwb{os.getpid() % 100_000}"
        self.workers = workers
        self._made: list[str] = []

    def namespace(self, worker: int) -> str:
        """The name of a worker's namespace."""
        return f"{self._name}w{worker}"

    @staticmethod
    def address(worker: int) -> str:
        """A worker's IPv4 address."""
        return f"10.77.0.{worker + 1}"

    def __enter__(self) -> Network:
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
            _ip("ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("ip", "-n", bridge, "link", "set", port, "master", "bridge", "up")
            _ip("ip", "-n", namespace, "address", "add", f"{self.address(worker)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("ip", "-n", namespace, "link", "set", device, "up")

    def _add(self, namespace: str) -> None:
        _ip("ip", "netns", "add", namespace)
        self._made.append(namespace)

    def limit(self, megabits: int) -> None:
        """Limits each port to so many Mbit/s, both ways."""
        burst = max(16, megabits // 8)  # a millisecond's worth, in kilobytes
        limit = ("root", "tbf", "rate", f"{megabits}mbit", "burst", f"{burst}kb", "latency", "200ms")
        for worker in range(self.workers):
            _ip("tc", "-n", self.namespace(worker), "qdisc", "replace", "dev", "eth0", *limit)
            _ip("tc", "-n", f"{self._name}b", "qdisc", "replace", "dev", f"port{worker}", *limit)

    def _remove(self) -> None:
        for namespace in reversed(self._made):
            subprocess.run(("ip", "netns", "delete", namespace), capture_output=True)
        self._made.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()
