#!/usr/bin/env python3
"""Measures HiPress' stack with `gradwire allreduce` between four namespaces, and prints it.

    cargo build --release -p gradwire-testbench
    sudo python3 host/bench/stack.py target/release/gradwire [MODEL FORWARD BACKWARD]

It needs root, iproute2 and tc. MODEL is one of `gradwire simulate --model`, or a CSV file of name,values: without it, the GPT that
time_to_accuracy.py trains. FORWARD and BACKWARD are the times of its passes. The plans are those of `gradwire simulate stack` for the same
network, so the simulated stack is beside the measured one; "bulk, coded" codes small tensors in a batch, where bulk sends f32.
Nothing computes here: a time is that of an exchange by itself.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from collectives import Ranks, shown, table

GPT = [str(pathlib.Path(__file__).with_name("gpt.csv")), "40ms", "80ms"]
"""The times are assumed, not measured."""
RANKS = 4
RATES = [200, 50]
"""Mbit/s of each port, both ways."""
ROUNDS = 15
ORDERS = ["turns", "coordinated", "free"]


def simulated(program, model, forward, backward, rate):
    """The steps of all codecs, each with its plan."""
    network = ["--ranks", str(RANKS), "--bandwidth", f"{rate}M"]
    command = [program, "simulate", "stack", "--model", model, "--forward", forward, "--backward", backward, *network, "--json"]

    def rows(*more):
        return json.loads(subprocess.run([*command, *more], check=True, capture_output=True).stdout)["rows"]

    for row, batch in zip(rows(), rows("--batch"), strict=True):
        yield row
        if row["step"] == "bulk":
            yield {**batch, "step": "bulk, coded"}


def main(program, model, forward, backward):
    with Ranks(RANKS) as ranks, tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder, "plan.toml")
        for rate in RATES:
            ranks.limit(rate)

            def cells(step):
                plan.write_text(step["plan"])
                options = ["--model", model, "--plan", str(plan)]
                got = [ranks.exchange(program, [*options, "--order", order], ROUNDS) for order in ORDERS]
                # As the simulator has it: what a worker alone would take, over what it takes.
                compute = step["efficiency"] * step["iteration_s"]
                alone = compute / (compute + got[0]["time_s"])
                yield from (f"{1e2 * part:.0f} %" for part in (alone, 1 - alone, step["efficiency"], step["communication"]))
                yield from (shown(1e3 * order["time_s"]) for order in got)
                yield from (shown(1e3 * got[0]["compute_s"]), f"{got[0]['sent_bytes'] / 1e3:.0f}", str(got[0]["sent_messages"]))

            head = ["codec", "step", "efficiency", "communication", "simulated efficiency", "simulated communication"]
            steps = simulated(program, model, forward, backward, rate)
            name = {"none": "`f32`"}
            rows = ([name.get(step["step"], f"`{step['codec']}`"), step["step"], *cells(step)] for step in steps)
            table(
                f"{pathlib.Path(model).stem}, four ranks, {rate} Mbit/s",
                [*head, *(f"ms, `{order}`" for order in ORDERS), "ms of codec", "kB sent", "messages"],
                rows,
            )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 5):
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), *(sys.argv[2:] or GPT))
