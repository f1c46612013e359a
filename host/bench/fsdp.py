"""Milliseconds of an iteration of FSDP2: two hosts of two ranks, shards inside a host, gradients between them.

    python fsdp.py --wires 200,50

Runs the ranks in two network namespaces of this machine, as root, with torch and gradwire in this Python: what ranks of a host exchange
passes no limit. FSDP's own replication (HSDP) sums between hosts as f32 or, with `reduce_dtype`, as bfloat16; the others are plans of
`attach`. Each round takes all of them in turn; the figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from typing import Any

import gradwire
import torch
import torch.distributed as dist
from network import Network, Ranks
from tasks import TASKS
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

HOSTS, RANKS = 2, 2
"""Ranks of a host."""
OWN = ("hsdp f32", "hsdp bf16")
PLANS = ("bf16", "q8", "q4", "3lc:1:1024")
EXACT = 2
"""Iterations without a codec, which are not timed."""
PATIENCE_S = 120


def run(job: dict[str, Any], mesh: Any) -> dict[str, Any]:
    """Returns the seconds of an iteration, and the bytes that a rank sent between hosts in one, if gradwire counted them."""
    task = TASKS["gpt"]
    torch.manual_seed(1)
    model = task.model()
    own = job["exchange"] in OWN
    reduced = torch.bfloat16 if job["exchange"] == "hsdp bf16" else torch.float32
    options = {"mesh": mesh if own else mesh["gpu"], "mp_policy": MixedPrecisionPolicy(reduce_dtype=reduced)}
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    state = None if own else gradwire.attach(model, job["exchange"], group=mesh["host"].get_group(), exact_iterations=EXACT)
    optimizer = task.optimizer(model.parameters(), 1e-3)
    batches = task.batches(1, dist.get_rank())
    try:
        for iteration in range(EXACT + job["iterations"]):
            if iteration == EXACT:
                dist.barrier()
                began, before = time.monotonic(), state and state.report().sent_bytes
            optimizer.zero_grad()
            task.loss(model, next(batches)).backward()
            optimizer.step()
        dist.barrier()
        seconds = (time.monotonic() - began) / job["iterations"]
        sent = (state.report().sent_bytes - before) / job["iterations"] if state else None
    finally:
        if state:
            state.close()
    return {"seconds": seconds, "sent": sent}


def rank() -> None:
    """Does the jobs of standard input, a line of JSON each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENCE_S))
    mesh = init_device_mesh("cpu", (HOSTS, RANKS), mesh_dim_names=("host", "gpu"))
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), mesh)), flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wires", default="200,50", help="Mbit/s [200,50]")
    parser.add_argument("--rounds", type=int, default=3, help="[3]")
    parser.add_argument("--iterations", type=int, default=5, help="that a round times of each exchange [5]")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        return rank()
    exchanges = OWN + PLANS
    rows: dict[str, Any] = {name: {"ms": {}, "sent_mb": None} for name in exchanges}
    with Network(HOSTS) as network:
        ranks = Ranks(network, HOSTS * RANKS, [sys.executable, __file__, "--rank"], per_host=RANKS)
        try:
            for wire in map(int, args.wires.split(",")):
                network.limit(wire)
                took: dict[str, list[float]] = {name: [] for name in exchanges}
                for round_ in range(args.rounds):
                    for name in exchanges:
                        print(f"{wire} Mbit/s, round {round_ + 1}, {name}", file=sys.stderr)
                        answers = ranks.run({"exchange": name, "iterations": args.iterations})
                        if errors := [answer["error"] for answer in answers if "error" in answer]:
                            raise SystemExit(f"{name}: {errors[0]}")
                        answer = answers[0]
                        took[name].append(1e3 * answer["seconds"])
                        rows[name]["sent_mb"] = answer["sent"] and answer["sent"] / 1e6
                for name in exchanges:
                    rows[name]["ms"][str(wire)] = statistics.median(took[name])
        finally:
            ranks.stop()
    if args.json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
        return
    wires = args.wires.split(",")
    print("| exchange | MB sent | " + " | ".join(f"{wire} Mbit/s, ms" for wire in wires) + " |")
    print("|" + "---|" * (2 + len(wires)))
    for name, row in rows.items():
        sent = f"{row['sent_mb']:.2f}" if row["sent_mb"] else "-"
        print(f"| `{name}` | {sent} | {' | '.join(format(row['ms'][wire], '.0f') for wire in wires)} |")


if __name__ == "__main__":
    main()
