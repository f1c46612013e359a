#!/usr/bin/env python3
"""Measures the tables of docs/collectives.md with `gradwire allreduce`, and prints them.

    cargo build --release -p gradwire-testbench
    python3 host/collectives/bench/tables.py target/release/gradwire loopback
    sudo python3 host/collectives/bench/tables.py target/release/gradwire namespaces

`namespaces` needs root, iproute2 and tc. Each member has a network namespace of its own; all hang on one bridge, and both ends of
each link send no faster than RATE.
"""

import json
import os
import secrets
import statistics
import subprocess
import sys

STRATEGIES = ["ring", "servers", "hierarchy:2", "halving", "butterfly", "all-gather"]
CODECS = ["f32", "f16", "q8:256", "3lc:1.5:256", "onebit:256", "tbq:0.05", "terngrad:2", "dgc:1", "graddrop:99",
          "low-rank:4", "bounded:10", "wire:2:10"]
RATE = "200mbit"
VALUES = "1M"
ROUNDS = 5


def refused(strategy, codec):
    """Pairs that make no sense, as `gradwire allreduce --help` lists them."""
    return strategy == "butterfly" and codec != "f32" or codec.startswith("wire:") and strategy != "ring"


def words(program, strategy, codec, more):
    return [program, "allreduce", "--strategy", strategy, "--codec", codec, "--values", VALUES, "--rounds", str(ROUNDS),
            "--json", *more]


def report(text):
    report = json.loads(text)
    assert report["ok"], report
    return report


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def loopback(program):
    """Every pair of strategy and codec among four threads: milliseconds, and below them the bytes that rank 0 sends."""
    def cells(codec):
        for strategy in STRATEGIES:
            if refused(strategy, codec):
                yield "-"
                continue
            done = subprocess.run(words(program, strategy, codec, ["--local", "4"]), check=True, capture_output=True)
            got = report(done.stdout)
            yield f"{1e3 * got['time_s']:.0f} ({got['sent_bytes'] / 1e3:.0f})"
    table(["codec", *(f"`{strategy}`" for strategy in STRATEGIES)], ([f"`{codec}`", *cells(codec)] for codec in CODECS))


class Wire:
    """Members in namespaces on one bridge."""

    def __init__(self, members):
        self.names = [f"gwc{os.getpid():x}-{rank}" for rank in range(members)]
        self.switch = f"gwc{os.getpid():x}-w"

    def __enter__(self):
        ip(f"netns add {self.switch}")
        ip(f"-n {self.switch} link add br0 type bridge")
        ip(f"-n {self.switch} link set br0 up")
        for rank, name in enumerate(self.names):
            ip(f"netns add {name}")
            ip(f"link add eth0 netns {name} type veth peer name p{rank} netns {self.switch}")
            ip(f"-n {self.switch} link set p{rank} master br0 up")
            ip(f"-n {name} address add 10.78.0.{rank + 1}/24 dev eth0")
            ip(f"-n {name} link set lo up")
            ip(f"-n {name} link set eth0 up")
            for place, port in [(name, "eth0"), (self.switch, f"p{rank}")]:
                run(f"ip netns exec {place} tc qdisc add dev {port} root tbf rate {RATE} burst 64kb latency 100ms")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def allreduce(self, program, strategy, codec, more=()):
        addresses = ",".join(f"10.78.0.{rank + 1}:7000" for rank in range(len(self.names)))
        environment = {**os.environ, "GRADWIRE_TOKEN": secrets.token_hex(32)}
        members = []
        for rank, name in enumerate(self.names):
            place = ["--listen", f"10.78.0.{rank + 1}:7000", "--members", addresses, *more]
            command = ["ip", "netns", "exec", name, *words(program, strategy, codec, place)]
            members.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
        outputs = [member.communicate()[0] for member in members]
        assert all(member.returncode == 0 for member in members)
        return report(outputs[0])


def ip(command):
    run(f"ip {command}")


def run(command):
    subprocess.run(command.split(), check=True)


def namespaces(program):
    """The ring stays flat in members and one server does not; and who decides when a message leaves."""
    milliseconds = lambda got: f"{1e3 * got['time_s']:.0f}"
    sizes = [2, 4, 8]
    flat = [("ring", "f32"), ("servers", "f32"), ("servers:1", "f32"), ("servers", "q8:256"), ("servers", "low-rank:4")]
    orders = ["turns", "coordinated", "free"]
    cells, ordered = {}, {}
    for size in sizes:
        with Wire(size) as wire:
            for strategy, codec in flat:
                cells[strategy, codec, size] = milliseconds(wire.allreduce(program, strategy, codec))
            for order in orders:
                got = [wire.allreduce(program, "servers", "f32", ["--order", order])["time_s"] for _ in range(3)]
                ordered[order, size] = f"{1e3 * statistics.median(got):.0f}"
    head = [f"{size} members" for size in sizes]
    table(["strategy", "codec", *head],
          ([f"`{s}`", f"`{c}`", *(cells[s, c, size] for size in sizes)] for s, c in flat))
    table(["order of `servers`, `f32`", *head],
          ([f"`{order}`", *(ordered[order, size] for size in sizes)] for order in orders))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ["loopback", "namespaces"]:
        sys.exit(__doc__)
    {"loopback": loopback, "namespaces": namespaces}[sys.argv[2]](os.path.abspath(sys.argv[1]))
