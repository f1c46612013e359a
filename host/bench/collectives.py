#!/usr/bin/env python3
"""Measures what `results/collectives.csv` has with `gradwire allreduce`, and prints it as tables.

    cargo build --release -p gradwire-testbench
    python3 host/bench/collectives.py target/release/gradwire loopback
    sudo python3 host/bench/collectives.py target/release/gradwire wires

`wires` needs root, iproute2 and tc: ranks have network namespaces whose ports are limited. If this Python has torch, gloo's
all-reduce of the same values is measured in the same run.
"""

import importlib.util
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys

from network import Network

HERE = pathlib.Path(__file__).resolve().parent
STRATEGIES = ["ring", "servers", "hierarchy:2", "halving-doubling", "butterfly", "all-gather"]
CODECS = ["f32", "f16", "q8:256", "3lc:1.5:256", "onebit:256", "tbq:0.05", "terngrad:2", "dgc:1", "graddrop:99",
          "low-rank:4", "bounded:10", "bounded:4", "wire:2:10"]  # fmt: skip
RATES = [1000, 200, 50]
"""Mbit/s of each port, both ways."""
RANKS = [2, 4, 6, 8]
VALUES = 1_000_000
SMALL = [1_000, 16_000, 64_000]
ROUNDS = 9
FEW_ROUNDS = 5
"""On the slowest wire, where a round takes seconds."""


def refused(strategy, codec):
    """Pairs that make no sense, as `gradwire allreduce --help` lists them."""
    return (strategy == "butterfly" and codec != "f32") or (codec.startswith("wire:") and strategy != "ring")


def words(program, options, rounds):
    # A check sends the gradient three times more.
    return [program, "allreduce", *options, "--rounds", str(rounds), "--checks", "1", "--json"]


def pair(strategy, codec, values=VALUES):
    return ["--strategy", strategy, "--codec", codec, "--values", str(values)]


def report(text):
    report = json.loads(text)
    assert report["ok"], report
    return report


def table(title, head, rows):
    print(f"{title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def loopback(program):
    """Every pair of strategy and codec among four threads: milliseconds, and in brackets the kilobytes that rank 0 sends."""

    def cells(codec):
        for strategy in STRATEGIES:
            if refused(strategy, codec):
                yield "-"
                continue
            command = words(program, [*pair(strategy, codec), "--local", "4"], ROUNDS)
            got = report(subprocess.run(command, check=True, capture_output=True).stdout)
            yield f"{1e3 * got['time_s']:.0f} ({got['sent_bytes'] / 1e3:.0f})"

    rows = ([f"`{codec}`", *cells(codec)] for codec in CODECS)
    table("Loopback", ["codec", *(f"`{strategy}`" for strategy in STRATEGIES)], rows)


class Ranks(Network):
    """Processes in namespaces that exchange."""

    def _outputs(self, command_of, environment=None):
        ranks = [self.start(rank, command_of(rank), environment, stdout=subprocess.PIPE) for rank in range(self.workers)]
        outputs = [rank.communicate()[0] for rank in ranks]
        assert all(rank.returncode == 0 for rank in ranks)
        return outputs

    def exchange(self, program, options, rounds):
        """Returns the report of rank 0."""
        addresses = [f"{self.address(rank)}:7000" for rank in range(self.workers)]
        environment = {"GRADWIRE_TOKEN": secrets.token_hex(32)}

        def command(rank):
            place = ["--listen", addresses[rank], "--ranks", ",".join(addresses)]
            return words(program, [*options, *place], rounds)

        return report(self._outputs(command, environment)[0])

    def allreduce(self, program, strategy, codec, values=VALUES, rounds=ROUNDS, more=()):
        """Milliseconds of an exchange."""
        return 1e3 * self.exchange(program, [*pair(strategy, codec, values), *more], rounds)["time_s"]

    def gloo(self, values=VALUES, rounds=ROUNDS):
        """Milliseconds of gloo's, or None without torch."""
        if importlib.util.find_spec("torch") is None:
            return None
        size, address = str(self.workers), self.address(0)

        def command(rank):
            return [sys.executable, str(HERE / "gloo.py"), str(rank), size, address, str(values), str(rounds)]

        return float(self._outputs(command)[0])


def shown(milliseconds):
    if milliseconds is None:
        return "-"
    return f"{milliseconds:.0f}" if milliseconds >= 20 else f"{milliseconds:.1f}"


def wires(program):
    head = [f"`{strategy}`" for strategy in STRATEGIES]
    with Ranks(4) as ranks:
        for rate in RATES:
            ranks.limit(rate)
            rounds = ROUNDS if rate > RATES[-1] else FEW_ROUNDS

            def cells(codec):
                for strategy in STRATEGIES:
                    yield "-" if refused(strategy, codec) else shown(ranks.allreduce(program, strategy, codec, rounds=rounds))

            title = f"Four ranks, {rate} Mbit/s; gloo, `f32`: {shown(ranks.gloo(rounds=rounds))}"
            table(title, ["codec", *head], ([f"`{codec}`", *cells(codec)] for codec in CODECS))

    flat = [("ring", "f32"), ("servers", "f32"), ("servers:1", "f32"), ("servers", "q8:256"), ("servers", "low-rank:4")]
    orders = ["turns", "coordinated", "free"]
    cells, gloo, ordered, small = {}, {}, {}, {}
    for size in RANKS:
        with Ranks(size) as ranks:
            ranks.limit(200)
            gloo[size] = ranks.gloo()
            for strategy, codec in flat:
                cells[strategy, codec, size] = ranks.allreduce(program, strategy, codec)
            for order in orders:
                got = [ranks.allreduce(program, "servers", "f32", more=["--order", order]) for _ in range(3)]
                ordered[order, size] = statistics.median(got)
            if size == 4:
                for values in SMALL:
                    small["gloo", values] = ranks.gloo(values, 20)
                    for strategy in ["ring", "servers", "halving-doubling"]:
                        small[strategy, values] = ranks.allreduce(program, strategy, "f32", values, 20)
    head = [f"{size} ranks" for size in RANKS]
    rows = [[f"`{s}`", f"`{c}`", *(shown(cells[s, c, size]) for size in RANKS)] for s, c in flat]
    rows.append(["gloo", "`f32`", *(shown(gloo[size]) for size in RANKS)])
    table("By ranks, 200 Mbit/s", ["strategy", "codec", *head], rows)
    table("Orders, 200 Mbit/s", ["order of `servers`, `f32`", *head],
          ([f"`{order}`", *(shown(ordered[order, size]) for size in RANKS)] for order in orders))  # fmt: skip
    table("Small messages, four ranks, 200 Mbit/s", ["strategy, `f32`", *(f"{values} values" for values in SMALL)],
          ([f"`{s}`", *(shown(small[s, values]) for values in SMALL)] for s in ["ring", "servers", "halving-doubling", "gloo"]))  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ["loopback", "wires"]:
        sys.exit(__doc__)
    {"loopback": loopback, "wires": wires}[sys.argv[2]](os.path.abspath(sys.argv[1]))
