"""Times until a model has learned: PyTorch's own exchanges against gradwire's, on slow networks.

    python time_to_accuracy.py --task mlp --wires 1000,200,50 --results results.json

Runs workers in network namespaces of this machine, as root, with torch and gradwire in this Python. Two things are measured apart:

1. The iterations until the test loss reaches the target, for each exchange and seed. All exchanges get the same grid of learning
   rates; the rate that is best with the first seed counts. The network does not change these figures.
2. The milliseconds an iteration takes on each wire, in rounds that take the exchanges in turn.

Time to accuracy is the product. For each wire, the best exchange of either side then trains once as a whole, to check it.

Results are written after every step; a run that was cut goes on where it was, if it is started with the same --results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from types import TracebackType
from typing import Any

from network import PATIENCE_S, Network, Ranks
from tasks import LOCAL, ONE, SERVED, TASKS, load, round_of

HERE = pathlib.Path(__file__).resolve().parent
THEIRS = ("ddp", "fp16", "fp16/one", "bf16", "bf16/one", "powersgd:1", "powersgd:4", "powersgd:16")
OURS = (
    "f32", "q8", "q8/one", "low-rank:4", "low-rank:4/one", "low-rank:8", "low-rank:8/one", "low-rank:16/one", "3lc:1:1024",
    "3lc:1:1024/one", "bounded:6", "bounded:6/one", "bounded:4/one", "bounded:3/one", "bounded:2/one", "ring:1:10", "ring:2:10", "auto",
)  # fmt: skip
OVER_GROUP = (
    "group:bf16", "group:q8", "group:q8/one", "group:q4/one", "group:low-rank:4/one", "group:low-rank:16", "group:low-rank:16/one",
    "group:3lc:1:1024/one", "group:auto",
)  # fmt: skip
"""Ours as on an accelerator: coded by torch operations, over the script's process group."""
COMPARED = ("none", "server:f32", "server:bounded:10", "bounded:10", "ring:1:8", "ring:1:6", "servers/one", "snappy/one")
"""For INCEPTIONN's comparison: no exchange at all, workers and an aggregator, its bounds, and Snappy beside the same without it."""
OTHERS = (
    "trunc:16", "trunc:22", "trunc:24", "3lc:1.75:1024", "3lc:1.9:1024", "onebit:1024", "tbq:0.001", "terngrad", "terngrad:4", "dgc:1", "dgc:5",
    "graddrop:99",
)  # fmt: skip
"""The codecs that OURS leaves out: other people's, as they are published, and 3LC's wide steps."""
COMPLL = ("group:onebit:1024", "group:tbq:0.001", "group:terngrad:4:1024", "group:dgc:1", "group:graddrop:99", "group:adacomp:500:4")
"""CompLL's codecs and AdaComp, as classes of Python."""
PIPE_SGD = tuple(exchange.format(codec) for exchange in ("server:{}", "{}", "{}/one", "{}+2", "{}+3") for codec in ("f32", "trunc:16", "q8"))
"""For Pipe-SGD's comparison: PS-Sync, D-Sync by buckets and in sequence, and pipelines of 2 and 3 iterations; each plain, cut and quantised."""
LOCAL_STEPS = ("local:2:f32", *(f"local:{round}:bounded:4" for round in ("4", "8", "16", "32", "4+2", "8+2", "16+4/4", "32+8/4")))
"""For local steps: rounds of so many iterations, some with a delay and in fragments, by the plan that learns best with them; and 3LC's
rival, two steps and no codec."""
TORCH_LOCAL = ("torch-local:4", "torch-local:8", "torch-local:16", "torch-local:32")
"""And PyTorch's own, which averages weights as f32."""
ALL = tuple(dict.fromkeys(THEIRS + OURS + OVER_GROUP + COMPARED + OTHERS + COMPLL + PIPE_SGD + LOCAL_STEPS + TORCH_LOCAL))
WARM = 13
"""Iterations before those that are timed: all exchanges have found their buckets and factors by then."""
TRIED = 66
"""The same for `auto`, which tries its plans first."""
TRIED_OVER_GROUP = 78
"""Over a process group, where there is one more."""
TIMED = 10
"""Iterations that are timed in a round."""
UNLIMITED = 100_000
"""Mbit/s: no limit that would be felt."""


class Server:
    """`gradwire serve` for one job, in the namespace behind the workers': it steps as the job's task does, and returns weights."""

    def __init__(self, network: Network, workers: int, job: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.token = f"{self._folder.name}/token"
        options = ["--listen", f"{network.address(workers)}:0", "--ranks", str(workers), "--token-file", self.token, "--timeout", str(PATIENCE_S)]
        command = [sys.executable, "-m", "gradwire", "serve", *options, *TASKS[job["task"]].served(job["rate"])]
        self._process = network.start(workers, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __enter__(self) -> Server:
        assert self._process.stderr
        deadline = threading.Timer(PATIENCE_S, self._process.kill)
        deadline.start()
        said = self._process.stderr.readline()
        deadline.cancel()
        if not said.startswith("listening at "):
            self.__exit__(None, None, None)
            raise SystemExit(f"{' '.join(map(str, self._process.args))}: {said.strip() or 'ended, or silent'}")
        self.address = said.split()[2]
        return self

    def end(self) -> str | None:
        """Returns what went wrong. The workers have left."""
        try:
            said = self._process.communicate(timeout=PATIENCE_S)[1].strip()
        except subprocess.TimeoutExpired:
            return f"the server has not ended {PATIENCE_S} s after its workers"
        return f"the server ended with {self._process.returncode}, {said or 'without a word'}" if self._process.returncode else None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


class Workers:
    """Processes, one in each of the network's first `ranks` namespaces, that take the same jobs."""

    def __init__(self, network: Network, ranks: int, files: list[str]) -> None:
        self._network, self._ranks, self._files = network, ranks, files
        self._processes: Ranks | None = None
        self.torch = ""

    def _started(self) -> Ranks:
        if self._processes is None:
            self._processes = Ranks(self._network, self._ranks, [sys.executable, str(HERE / "worker.py"), *self._files])
            self.torch = self._processes.answers()[0]["torch"]
        return self._processes

    def run(self, **job: Any) -> dict[str, Any]:
        """Returns rank 0's report of a job. If one of them or the job's server failed, that."""
        self._started()  # before a server, which waits for them
        if not job["exchange"].startswith(SERVED):
            return self._train(job)
        with Server(self._network, self._ranks, job) as server:
            answer = self._train(job | {"server": server.address, "token": server.token})
            if wrong := server.end():
                return {"error": "; ".join(said for said in (answer.get("error"), wrong) if said)}
        return answer

    def _train(self, job: dict[str, Any]) -> dict[str, Any]:
        answers = self._started().run(job)
        failed = [answer for answer in answers if "error" in answer]
        if failed:
            # Who failed may have left the others waiting.
            self.stop()
            return failed[0]
        return answers[0]

    def stop(self) -> None:
        """Ends them."""
        if self._processes is not None:
            self._processes.stop()
            self._processes = None


class Results:
    """Measurements so far, kept in a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.rows: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, *key: object) -> Any:
        return self.rows.get(" ".join(map(str, key)))

    def put(self, value: Any, *key: object) -> None:
        self.rows[" ".join(map(str, key))] = value
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self.rows, indent=1) + "\n")
        new.replace(self._path)


MIXED = ("auto", "group:auto", "none")
"""The first's exchanges depend on the wire, and the second exchanges nothing, so they are timed only."""


def learn(workers: Workers, results: Results, task: str, exchange: str, seeds: int) -> None:
    """Iterations to the target: all rates with the first seed, then the best rate with the others. Buckets change nothing here."""
    exchange = exchange.removesuffix(ONE)

    def measure(rate: float, seed: int) -> dict[str, Any]:
        key = ("learn", task, exchange, rate, seed)
        if (found := results.get(*key)) is None:
            # Late gradients take longer.
            most = TASKS[task].most * (2 if "+" in exchange else 1)
            found = workers.run(task=task, exchange=exchange, rate=rate, seed=seed, iterations=most, until=True)
            results.put(found, *key)
            said = found.get("error") or (f"{found['iterations']} iterations" if found["reached"] else f"missed, loss {found['loss']:.3f}")
            print(f"{task} {exchange:12} rate {rate:g} seed {seed}: {said}", file=sys.stderr)
        return found

    if (rate := best_rate({rate: measure(rate, 0) for rate in TASKS[task].rates})) is not None:
        for seed in range(1, seeds):
            measure(rate, seed)


def by_codec(exchange: str) -> bool:
    """Is it, or are its local steps, of a codec over a process group, whatever the arguments?"""
    from gradwire.codec import named

    plan = exchange.removesuffix(ONE)
    plan = found["plan"] or "" if (found := LOCAL.fullmatch(plan)) else plan
    return plan.startswith("group:") and named(plan.removeprefix("group:")) is not None


def best_rate(by_rate: dict[float, dict[str, Any]]) -> float | None:
    """The rate that reached the target first; None if none did."""
    reached = {rate: found["iterations"] for rate, found in by_rate.items() if found.get("reached")}
    return min(reached, key=reached.__getitem__) if reached else None


def tried(results: Results, task: str, exchange: str) -> dict[float, dict[str, Any]]:
    """Returns the results of the first seed at each rate."""
    return {rate: results.get("learn", task, exchange.removesuffix(ONE), rate, 0) or {} for rate in TASKS[task].rates}


def learned(results: Results, task: str, exchange: str, seeds: int) -> tuple[float, list[int]] | None:
    """The rate that counts and the iterations of each seed; None if a seed missed the target."""
    by_rate = tried(results, task, exchange)
    if (rate := best_rate(by_rate)) is None:
        return None
    found = [results.get("learn", task, exchange.removesuffix(ONE), rate, seed) or {} for seed in range(seeds)]
    return (rate, [one["iterations"] for one in found]) if all(one.get("reached") for one in found) else None


def megabytes(results: Results, task: str, exchange: str) -> float | None:
    """What rank 0 sent until the target with the first seed, by gradwire, its first iterations without a codec included."""
    by_rate = tried(results, task, exchange)
    rate = best_rate(by_rate)
    return None if rate is None or not by_rate[rate].get("sent") else by_rate[rate]["sent"] / 1e6


def twice(workers: Workers, results: Results, task: str, exchange: str, seeds: int) -> None:
    """The test loss at twice the iterations that each seed needed, at the rate that counts."""
    if (found := learned(results, task, exchange, seeds)) is None:
        return
    rate, iterations = found
    for seed, needed in enumerate(iterations):
        key = ("twice", task, exchange.removesuffix(ONE), rate, seed)
        if results.get(*key) is None:
            # No loss is below.
            results.put(workers.run(task=task, exchange=exchange, rate=rate, seed=seed, iterations=2 * needed, until=True, target=-1), *key)
            print(f"{task} {exchange:12} rate {rate:g} seed {seed}, twice {needed}: loss {results.get(*key).get('loss')}", file=sys.stderr)


def losses(results: Results, task: str, exchange: str, seeds: int) -> list[float]:
    """Of each seed at twice its iterations; none if they were not all measured."""
    found = learned(results, task, exchange, seeds)
    after = [results.get("twice", task, exchange.removesuffix(ONE), found[0], seed) or {} for seed in range(seeds)] if found else [{}]
    return [one["loss"] for one in after] if all("loss" in one for one in after) else []


def timed(workers: Workers, results: Results, task: str, exchanges: list[str], wire: int, rounds: int) -> None:
    """Milliseconds an iteration, in rounds."""
    for number in range(rounds):
        for exchange in exchanges:
            key = ("time", task, exchange, wire, number)
            if results.get(*key) is None:
                every = round_of(exchange)
                warm = TRIED if exchange == "auto" else TRIED_OVER_GROUP if exchange == "group:auto" else math.ceil(WARM / every) * every
                # Whole rounds.
                many = math.ceil(TIMED / every) * every * (2 if every > 1 else 1)
                found = workers.run(task=task, exchange=exchange, rate=TASKS[task].rates[0], seed=0, iterations=warm + many, warm=warm, until=False)
                results.put({part: time / many * 1000 for part, time in found.get("parts", {}).items()}, "parts", *key[1:])
                results.put(found.get("error") or found["seconds"] / many * 1000, *key)
                print(f"{task} {exchange:12} {wire} Mbit/s: {results.get(*key)} ms", file=sys.stderr)


def table(results: Results, task: str, wires: list[int], exchanges: list[str], seeds: int, rounds: int) -> str:
    """Markdown: a row for each exchange, and for each wire milliseconds an iteration and seconds to the target."""
    further = {exchange: losses(results, task, exchange, seeds) for exchange in exchanges}
    sent = {exchange: megabytes(results, task, exchange) for exchange in exchanges}
    head = (
        ["exchange", "rate", "iterations"]
        + ["MB sent"] * any(sent.values())
        + ["loss at twice these"] * any(further.values())
        + [f"{wire} Mbit/s: ms, s" for wire in wires]
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for exchange in exchanges:
        found = learned(results, task, exchange, seeds)
        row = [f"`{exchange}`", f"{found[0]:g}" if found else "-", ", ".join(map(str, found[1])) if found else "-" if exchange in MIXED else "missed"]
        if any(sent.values()):
            row.append(f"{sent[exchange]:.1f}" if sent[exchange] else "-")
        if any(further.values()):
            row.append(", ".join(f"{loss:.3f}" for loss in further[exchange]) or "-")
        for wire in wires:
            times = milliseconds(results, task, exchange, wire, rounds)
            total = seconds(results, task, exchange, wire, seeds, rounds)
            row.append(
                "-" if not times else f"{statistics.median(times):.0f} ({min(times):.0f} to {max(times):.0f})" + (f", {total:.1f}" if total else "")
            )
        lines.append(f"| {' | '.join(row)} |")
    for wire in wires:
        ours, theirs = (best(results, task, side, wire, seeds, rounds) for side in (OURS, THEIRS))
        if ours and theirs:
            ratio = seconds(results, task, theirs, wire, seeds, rounds) / seconds(results, task, ours, wire, seeds, rounds)
            lines.append(f"\n{wire} Mbit/s: `{ours}` against `{theirs}`: {ratio:.2f} times as fast to a test loss of {TASKS[task].target}.")
            for exchange in (ours, theirs):
                whole = results.get("whole", task, exchange, wire)
                if whole and "error" not in whole:
                    lines.append(
                        f"A whole run of `{exchange}`: {whole['iterations']} iterations, {whole['seconds']:.1f} s with the looks at the test loss."
                    )
    return "\n".join(lines)


def parts_table(results: Results, task: str, wires: list[int], exchanges: list[str], rounds: int) -> str:
    """Markdown: where an iteration's milliseconds go, for each wire and exchange; medians of the rounds."""
    head = ["Mbit/s", "exchange", "whole", "forward", "backward and waiting", "update", "exchange, behind it", "of it coding and summing"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for wire in wires:
        for exchange in exchanges:
            found = [results.get("parts", task, exchange, wire, number) or {} for number in range(rounds)]
            times = milliseconds(results, task, exchange, wire, rounds)
            cells = [f"{statistics.median(times):.1f}" if times else "-"]
            for part in ("forward", "backward", "update", "exchange", "coding"):
                known = [one[part] for one in found if part in one]
                cells.append(f"{statistics.median(known):.1f}" if known else "-")
            lines.append(f"| {wire} | `{exchange}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(results: Results, task: str, wires: list[int], path: pathlib.Path) -> None:
    """The whole runs: test loss by seconds, a panel for each wire."""
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(1, len(wires), figsize=(4 * len(wires), 3.2), sharey=True, squeeze=False)
    for wire, panel in zip(wires, panels[0]):
        for side, style in ((OURS, "-"), (THEIRS, "--")):
            for exchange in side:
                run = results.get("whole", task, exchange, wire) or {}
                if curve := run.get("curve"):
                    panel.plot([point[1] for point in curve], [point[2] for point in curve], style, label=exchange)
        panel.axhline(TASKS[task].target, color="gray", linewidth=0.5)
        panel.set(title=f"{task}, {wire} Mbit/s", xlabel="seconds", xlim=(0, None))
        panel.legend()
    panels[0][0].set_ylabel("test loss")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def curves(results: Results, task: str, wires: list[int], exchanges: list[str], rounds: int, path: pathlib.Path) -> None:
    """The first seed of each exchange at its best rate: test loss by iteration, and by the seconds that these take on each wire."""
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(1, 1 + len(wires), figsize=(4 * (1 + len(wires)), 3.4), sharey=True, squeeze=False)
    for number, exchange in enumerate(exchanges):
        by_rate = tried(results, task, exchange)
        # Who never arrives is shown, too.
        rate = best_rate(by_rate) or min(by_rate, key=lambda rate: by_rate[rate].get("loss") or float("inf"))
        if not (curve := by_rate[rate].get("curve")):
            continue
        color = f"C{number % 10}"
        style = "--" if exchange in THEIRS else "-"
        panels[0][0].plot([point[0] for point in curve], [point[2] for point in curve], style, color=color, label=exchange)
        for wire, panel in zip(wires, panels[0][1:]):
            if times := milliseconds(results, task, exchange, wire, rounds):
                seconds_each = statistics.median(times) / 1000
                panel.plot([point[0] * seconds_each for point in curve], [point[2] for point in curve], style, color=color)
    panels[0][0].set(title=f"{task}, by iteration", xlabel="iterations", xlim=(0, None), ylabel="test loss")
    panels[0][0].legend(fontsize="small")
    for wire, panel in zip(wires, panels[0][1:]):
        fastest = seconds(results, task, best(results, task, OURS, wire, 1, rounds) or exchanges[0], wire, 1, rounds)
        panel.set(title=f"{wire} Mbit/s", xlabel="seconds", xlim=(0, 4 * fastest or None))
    for panel in panels[0]:
        panel.axhline(TASKS[task].target, color="gray", linewidth=0.5)
        panel.set(yscale="log")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    # Text stays text, and one input makes one file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gradwire", "font.family": "sans-serif"})
    from matplotlib import pyplot

    return pyplot


def milliseconds(results: Results, task: str, exchange: str, wire: int, rounds: int) -> list[float]:
    """Of all rounds that were measured."""
    found = [results.get("time", task, exchange, wire, number) for number in range(rounds)]
    return [one for one in found if isinstance(one, float)]


def seconds(results: Results, task: str, exchange: str, wire: int, seeds: int, rounds: int) -> float:
    """To the target: mean iterations times median milliseconds; 0 if it was not reached or not measured."""
    found, times = learned(results, task, exchange, seeds), milliseconds(results, task, exchange, wire, rounds)
    return statistics.mean(found[1]) * statistics.median(times) / 1000 if found and times else 0.0


def best(results: Results, task: str, exchanges: tuple[str, ...], wire: int, seeds: int, rounds: int) -> str | None:
    """The exchange that is first at the target."""
    reached = {exchange: seconds(results, task, exchange, wire, seeds, rounds) for exchange in exchanges}
    reached = {exchange: total for exchange, total in reached.items() if total}
    return min(reached, key=reached.__getitem__) if reached else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(TASKS), default="mlp", help="the model [mlp]")
    parser.add_argument("--wires", default="1000,200,50", help="Mbit/s of each worker's port, both ways; '' only counts iterations [1000,200,50]")
    parser.add_argument(
        "--exchanges",
        default=",".join(THEIRS + OURS),
        help=f"which, of: %(default)s, and for comparison {','.join(exchange for exchange in ALL if exchange not in THEIRS + OURS)}",
    )
    parser.add_argument("--twice", default="", help="of these exchanges, also the test loss at twice the iterations")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results.json"), help="file to write, or to go on with")
    parser.add_argument("--no-whole", dest="whole", action="store_false", help="leave out the whole runs")
    parser.add_argument("--shim", help="path of gradwire-xdp, and options of its run: each worker gets a shim; for ring:1:B, ring:2:B")
    parser.add_argument(
        "--codec-module",
        action="append",
        default=[],
        metavar="FILE",
        help="Python with a codec of your own: group:NAME is an exchange then (docs/codecs.md)",
    )
    parser.add_argument("--parts", action="store_true", help="print where an iteration's time goes, too")
    parser.add_argument("--picture", type=pathlib.Path, help="SVG to draw of the whole runs; needs matplotlib")
    parser.add_argument("--curves", type=pathlib.Path, help="SVG to draw of how each exchange learns, by iteration and by second; needs matplotlib")
    args = parser.parse_args()
    wires = [int(wire) for wire in args.wires.split(",") if wire]
    exchanges, further = args.exchanges.split(","), [exchange for exchange in args.twice.split(",") if exchange]
    for file in args.codec_module:
        load(file)
    if unknown := [exchange for exchange in exchanges + further if not (exchange in ALL or LOCAL.fullmatch(exchange) or by_codec(exchange))]:
        parser.error(f"no exchange {unknown[0]!r}: expected local:ROUND[+DELAY][/FRAGMENTS]:PLAN, or some of {', '.join(ALL)}")
    served = [exchange for exchange in exchanges + further if exchange.startswith(SERVED)]
    if served:
        try:
            TASKS[args.task].served(TASKS[args.task].rates[0])
        except ValueError as error:
            parser.error(f"{served[0]} with task {args.task}: {error}")
    results = Results(args.results)
    # Whoever is told to end still removes the network.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with Network(args.workers + bool(served), shlex.split(args.shim or "") or None) as network:
        workers = Workers(network, args.workers, args.codec_module)
        try:
            network.limit(UNLIMITED)
            for exchange in (exchange for exchange in exchanges if exchange not in MIXED):
                learn(workers, results, args.task, exchange, args.seeds)
            for exchange in further:
                twice(workers, results, args.task, exchange, args.seeds)
            for wire in wires:
                network.limit(wire)
                timed(workers, results, args.task, exchanges, wire, args.rounds)
                for side in (OURS, THEIRS) if args.whole else ():
                    exchange = best(results, args.task, side, wire, args.seeds, args.rounds)
                    if exchange is None or results.get("whole", args.task, exchange, wire) is not None:
                        continue
                    rate, _ = learned(results, args.task, exchange, args.seeds) or (0.0, [])
                    found = workers.run(task=args.task, exchange=exchange, rate=rate, seed=0, iterations=TASKS[args.task].most, until=True)
                    results.put(found, "whole", args.task, exchange, wire)
            results.put(workers.torch or results.get("torch"), "torch")
        finally:
            workers.stop()
    print(table(results, args.task, wires, exchanges, args.seeds, args.rounds))
    if args.parts:
        print("\n" + parts_table(results, args.task, wires, exchanges, args.rounds))
    if args.picture:
        picture(results, args.task, wires, args.picture)
    if args.curves:
        curves(results, args.task, wires, exchanges, args.rounds, args.curves)
    print(f"\ntorch {results.get('torch')}, {args.workers} workers, {os.cpu_count()} cores, {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
