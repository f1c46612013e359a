"""3LC's comparison: a server with the optimizer, which all workers push gradients to and pull model deltas from, on slow networks.

    python three_lc.py --wires 1000,100,10 --results three-lc.json

Each design trains the convolutional net of `tasks.py` with the same learning rate, and its accuracy is looked at after a quarter, a half, three
quarters and all of the iterations. What passes a worker's port is counted there, with all headers. Then an iteration is timed on each
wire. Workers and server have a network namespace each, on this machine; root, torch and gradwire in this Python are needed.
Results are written after every step; a run that was cut goes on where it was, if it is started with the same --results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from network import Network
from time_to_accuracy import UNLIMITED, Results

WORKERS = 4
RATE, MOMENTUM = 0.05, 0.9
PORT = 7000
WARM, TIMED = 4, 6
DESIGNS = {
    "f32": ("f32", 1),
    "two local steps": ("f32", 2),
    "8 bits": ("q8", 1),
    "stochastic ternary": ("ternary", 1),
    "one bit, two means": ("onebit", 1),
    "5 % by a sampled threshold": ("graddrop:95", 1),
    "3LC, 1.00": ("3lc:1", 1),
    "3LC, 1.50": ("3lc:1.5", 1),
    "3LC, 1.75": ("3lc:1.75", 1),
    "3LC, 1.90": ("3lc:1.9", 1),
}
"""The codec of both directions, and the steps whose gradients' sum is sent."""


def rank(codec: str, local: int, iterations: int, looks: list[int], server: str) -> dict[str, Any]:
    """Trains as a rank. Says milliseconds an iteration, bits a value pushed and pulled in each, and the accuracy after `looks`."""
    import datetime

    import gradwire
    import torch
    import torch.distributed as dist
    from tasks import TASKS
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    task = TASKS["cnn"]
    ddp = DistributedDataParallel(task.model())
    state = gradwire.State(gradwire.Link(timeout=120), codec, server=server, model=ddp.module)
    ddp.register_comm_hook(state, gradwire.hook)
    optimizer = gradwire.ServedOptimizer(ddp.parameters(), state)
    batches, (images, labels) = task.batches(0, dist.get_rank()), task.test()

    def passed() -> list[int]:
        counters = pathlib.Path("/sys/class/net/eth0/statistics")
        return [int((counters / f"{way}_bytes").read_text()) for way in ("tx", "rx")]

    times, bits, accuracy = [], [], {}
    values = sum(parameter.numel() for parameter in ddp.parameters())
    before = passed()
    for iteration in range(1, iterations + 1):
        began = time.monotonic()
        last = iteration % local == 0
        with contextlib.nullcontext() if last else ddp.no_sync():
            task.loss(ddp, next(batches)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        times.append(1e3 * (time.monotonic() - began))
        now = passed()
        bits.append([8 * (new - old) / values for new, old in zip(now, before)])
        before = now
        if iteration in looks:
            with torch.no_grad():
                accuracy[iteration] = 100 * (ddp.module(images).argmax(1) == labels).float().mean().item()
    state.close()
    dist.destroy_process_group()
    return {"ms": times, "bits": bits, "accuracy": accuracy}


def run(network: Network, design: str, iterations: int, looks: list[int]) -> dict[str, Any]:
    """Starts a server and the ranks, each in its namespace; what rank 1 says, or an error."""
    codec, local = DESIGNS[design]
    listen = f"{network.address(WORKERS)}:{PORT}"
    job = json.dumps({"codec": codec, "local": local, "iterations": iterations, "looks": looks, "server": listen})
    started = []
    with tempfile.TemporaryDirectory() as folder:
        token = f"{folder}/token"
        command = [sys.executable, "-m", "gradwire", "serve", "--listen", listen, "--ranks", str(WORKERS), "--token-file", token]
        command += ["--optimizer", "momentum", "--lr", str(RATE), "--momentum", str(MOMENTUM), "--returns", "deltas", "--codec", codec]
        try:
            started.append(network.start(WORKERS, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
            said = started[0].stderr.readline()
            if "listening" not in said:
                return {"error": said.strip()}
            for number in range(WORKERS):
                environment = network.rank(number, WORKERS) | {"GRADWIRE_TOKEN_FILE": token}
                started.append(network.start(number, [sys.executable, __file__, "--rank", job], environment, stdout=subprocess.PIPE))
            answers = [process.communicate()[0] for process in started[1:]]
        finally:
            for process in started:
                process.kill()
                process.wait()
    return json.loads(answers[1]) if answers[1] else {"error": "rank 1 ended without an answer"}


def table(results: Results, wires: list[int], iterations: int) -> str:
    """Markdown: a row for each design."""
    looks = quarters(iterations)
    head = ["design", "bits a value, pushed", "pulled", *(f"{wire} Mbit/s: ms" for wire in wires), *(f"accuracy after {look}" for look in looks)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for design in DESIGNS:
        learned = results.get("learn", design)
        if not learned or "error" in learned:
            lines.append(f"| {design} | {(learned or {}).get('error', 'not measured')} |")
            continue
        row = [design, *(f"{statistics.mean(way):.2f}" for way in zip(*learned["bits"]))]
        for wire in wires:
            found = results.get("time", design, wire) or {}
            row.append(f"{statistics.mean(found['ms'][WARM:]):.0f}" if "ms" in found else "-")
        row += [f"{learned['accuracy'][str(look)]:.1f}" for look in looks]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "Bits a value pushed and pulled, by iteration:", ""]
    parts = [
        (1, iterations // 40),
        (iterations // 40 + 1, iterations // 4),
        (iterations // 4 + 1, iterations // 2),
        (iterations // 2 + 1, iterations),
    ]
    lines += [f"| design | {' | '.join(f'{a} to {b}' for a, b in parts)} |", "|" + "---|" * (len(parts) + 1)]
    for design in DESIGNS:
        if (learned := results.get("learn", design)) and "bits" in learned:
            means = ([statistics.mean(way) for way in zip(*learned["bits"][a - 1 : b])] for a, b in parts)
            lines.append(f"| {design} | {' | '.join(f'{push:.2f}, {pull:.2f}' for push, pull in means)} |")
    return "\n".join(lines)


def quarters(iterations: int) -> list[int]:
    return [iterations * part // 4 for part in (1, 2, 3, 4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wires", default="1000,100,10", help="Mbit/s of each port, both ways [1000,100,10]")
    parser.add_argument("--iterations", type=int, default=400, help="of a training [400]")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("three-lc.json"), help="file to write, or to go on with")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        print(json.dumps(rank(**json.loads(args.rank))))
        return
    wires = [int(wire) for wire in args.wires.split(",")]
    results = Results(args.results)
    # Whoever is told to end still removes the network.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Network(WORKERS + 1) as network:
        network.limit(UNLIMITED)
        for design in DESIGNS:
            if results.get("learn", design) is None:
                results.put(run(network, design, args.iterations, quarters(args.iterations)), "learn", design)
                print(f"{design}: {results.get('learn', design).get('accuracy')}", file=sys.stderr)
        for wire in wires:
            network.limit(wire)
            for design in DESIGNS:
                if results.get("time", design, wire) is None:
                    # Even numbers: some designs exchange after every second step.
                    results.put(run(network, design, WARM + TIMED, []), "time", design, wire)
                    print(f"{design}, {wire} Mbit/s: {statistics.mean(results.get('time', design, wire).get('ms', [0])):.0f} ms", file=sys.stderr)
    print(table(results, wires, args.iterations))


if __name__ == "__main__":
    main()
