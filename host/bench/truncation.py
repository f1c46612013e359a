"""INCEPTIONN's premise (section IV, figure 4): gradients tolerate a loss of precision that weights do not.

    python truncation.py --results truncation.json

Trains the MLP and the convolutional net of `tasks.py` as one process for a fixed number of iterations, and truncates the least significant bits
of gradients or of weights: 16 to 22 of a mantissa's 23, then also the exponent's lowest. `gradients`: of each iteration's, before the optimizer.
`weights, sent`: of those that the gradients are computed with, while the optimizer keeps exact ones, as an aggregator does. `weights, kept`: of
those that the optimizer keeps, so that losses add up. The table has the accuracy at the best of the task's learning rates, by its mean over the
seeds. Results are written after every training; a run that was cut goes on where it was, if it is started with the same --results.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

import torch
from tasks import TASKS
from time_to_accuracy import Results

ITERATIONS = {"mlp": 150, "cnn": 400}
BITS = (0, 16, 18, 20, 22, 23, 24)
LOSSY = ("gradients", "weights, sent", "weights, kept")


def truncated(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Returns the `f32` values with their lowest `bits` bits zero, which brings each nearer to zero."""
    return (values.view(torch.int32) & (-1 << bits)).view(torch.float32)


def accuracy(name: str, lossy: str, bits: int, rate: float, seed: int) -> float:
    """Returns the percentage of test images that a model trained so recognizes; its weights are as lossy as those it was trained with."""
    task = TASKS[name]
    torch.manual_seed(seed)
    model = task.model()
    weights = list(model.parameters())
    kept = [weight.detach().clone() for weight in weights]
    optimizer = task.optimizer(iter(weights), rate)
    batches, (images, labels) = task.batches(seed, 0), task.test()

    def take() -> None:
        with torch.no_grad():
            for weight, exact in zip(weights, kept):
                weight.copy_(truncated(exact, bits) if lossy != "gradients" else exact)
                if lossy == "weights, kept":
                    exact.copy_(weight)

    for _ in range(ITERATIONS[name]):
        take()
        optimizer.zero_grad()
        task.loss(model, next(batches)).backward()
        with torch.no_grad():
            for weight, exact in zip(weights, kept):
                weight.copy_(exact)
                if lossy == "gradients" and weight.grad is not None:
                    weight.grad.copy_(truncated(weight.grad, bits))
        optimizer.step()
        for weight, exact in zip(weights, kept):
            exact.copy_(weight.detach())
    take()
    with torch.no_grad():
        return 100 * (model(images).argmax(1) == labels).float().mean().item()


def table(results: Results, name: str, seeds: int) -> str:
    """Returns Markdown: a row for each number of bits, each cell the mean, and the least and the greatest of the seeds."""
    lines = [f"| bits truncated, {name} | {' | '.join(LOSSY)} |", "|" + "---|" * (len(LOSSY) + 1)]
    for bits in BITS:
        cells = []
        for lossy in LOSSY:
            found = [[results.get(name, lossy, bits, rate, seed) for seed in range(seeds)] for rate in TASKS[name].rates]
            best = max(found, key=statistics.mean)
            cells.append(f"{statistics.mean(best):.1f} ({min(best):.1f}-{max(best):.1f})")
        lines.append(f"| {bits} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(ITERATIONS), help=f"of {', '.join(ITERATIONS)} [all]")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each [3]")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("truncation.json"), help="file to write, or to go on with")
    args = parser.parse_args()
    names = args.tasks.split(",")
    if unknown := [name for name in names if name not in ITERATIONS]:
        parser.error(f"--tasks: no task {unknown[0]!r}; there are {', '.join(ITERATIONS)}")
    if args.seeds < 1:
        parser.error("--seeds: expected 1 or more")
    torch.set_num_threads(1)
    results = Results(args.results)
    for name in names:
        for lossy in LOSSY:
            for bits in BITS:
                for rate in TASKS[name].rates:
                    for seed in range(args.seeds):
                        # Without a loss, all three are the same training.
                        if results.get(name, lossy, bits, rate, seed) is None:
                            same = results.get(name, LOSSY[0], bits, rate, seed) if bits == 0 else None
                            results.put(accuracy(name, lossy, bits, rate, seed) if same is None else same, name, lossy, bits, rate, seed)
                print(f"{name}, {lossy}, {bits} bits: done", file=sys.stderr)
    print("\n\n".join(table(results, name, args.seeds) for name in names))


if __name__ == "__main__":
    main()
