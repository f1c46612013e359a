"""3LC's accuracies (table 1, figure 3): separate trainings of 25 to 100 % of the standard steps, each with its own cosine decay.

    python three_lc_accuracy.py --results three-lc-accuracy.json

One process trains the convolutional net of `tasks.py` as the paper does: workers push coded gradients, a server steps with their mean and momentum,
and all pull the coded change of its weights. All designs have one learning rate, that of a worker times their number, which decays to a hundredth.
The codecs are written here, of the paper's text. Results are written after every training; a run that was cut goes on where it was, if it is started
with the same --results.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
import sys
from collections.abc import Callable

import torch
from tasks import TASKS
from time_to_accuracy import Results

WORKERS, MOMENTUM = 4, 0.9
SMALL = 1024
"""Tensors with fewer values are not coded."""
PARTS = (25, 50, 75, 100)
"""Percent of the standard steps."""

Values = torch.Tensor
Code = Callable[[Values, torch.Generator], Values]


def eight_bits(values: Values, _random: torch.Generator) -> Values:
    scale = values.abs().max().clamp(min=1e-30) / 127
    return (values / scale).round() * scale


def stochastic(values: Values, random: torch.Generator) -> Values:
    """-1, 0 or 1 times the largest magnitude, by chance, so that the mean is right."""
    scale = values.abs().max().clamp(min=1e-30)
    return values.sign() * (torch.rand(values.shape, generator=random) < values.abs() / scale) * scale


def one_bit(values: Values, _random: torch.Generator) -> Values:
    """Each value's sign decides between two means."""
    above = values >= 0
    means = [values[side].mean() if side.any() else values.new_zeros(()) for side in (above, ~above)]
    return torch.where(above, *means)


def five_percent(values: Values, _random: torch.Generator) -> Values:
    least = values.abs().flatten().topk(math.ceil(values.numel() / 20)).values[-1]
    return torch.where(values.abs() >= least, values, 0.0)


def three_lc(multiplier: float) -> Code:
    def code(values: Values, _random: torch.Generator) -> Values:
        scale = multiplier * values.abs().max().clamp(min=1e-30)
        return (values / scale).round() * scale

    return code


DESIGNS: dict[str, tuple[Code | None, float, int]] = {
    "f32": (None, 0, 1),
    "8 bits": (eight_bits, 0, 1),
    "stochastic ternary": (stochastic, 0, 1),
    "stochastic ternary, feedback": (stochastic, 1, 1),
    "stochastic ternary, a tenth of feedback": (stochastic, 0.1, 1),
    "one bit, two means": (one_bit, 1, 1),
    "largest 5 %": (five_percent, 1, 1),
    "two local steps": (None, 0, 2),
    "3LC, 1.00": (three_lc(1.0), 1, 1),
    "3LC, 1.50": (three_lc(1.5), 1, 1),
    "3LC, 1.75": (three_lc(1.75), 1, 1),
    "3LC, 1.90": (three_lc(1.9), 1, 1),
}
"""What is left of values, the share of a loss that is added to the next ones, and the steps whose gradients' sum is sent."""


class Sender:
    """One end of one direction, with what was not sent."""

    def __init__(self, code: Code | None, feedback: float, random: torch.Generator) -> None:
        self.code, self.feedback, self.random = code, feedback, random
        self.lost: dict[int, Values] = {}

    def sent(self, tensors: list[Values]) -> list[Values]:
        """Returns what arrives of the values."""
        arrive = []
        for number, values in enumerate(tensors):
            if self.code is None or values.numel() < SMALL:
                arrive.append(values)
                continue
            values = values + self.feedback * self.lost[number] if number in self.lost else values
            arrive.append(self.code(values, self.random))
            if self.feedback:
                self.lost[number] = values - arrive[-1]
        return arrive


def accuracy(design: str, steps: int, rate: float, seed: int) -> float:
    """Returns the percentage of test images that the workers' model recognizes after so many steps."""
    code, feedback, every = DESIGNS[design]
    task = TASKS["cnn"]
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    model = task.model()
    weights = list(model.parameters())
    moments = [torch.zeros_like(weight) for weight in weights]
    unsent = [[torch.zeros_like(weight) for weight in weights] for _ in range(WORKERS)]
    workers, server = [Sender(code, feedback, random) for _ in range(WORKERS)], Sender(code, feedback, random)
    batches, (images, labels) = [task.batches(seed, worker) for worker in range(WORKERS)], task.test()
    for step in range(1, steps + 1):
        for own, batch in zip(unsent, batches):
            for total, gradient in zip(own, torch.autograd.grad(task.loss(model, next(batch)), weights)):
                total += gradient
        if step % every:
            continue
        pushed = [worker.sent(own) for worker, own in zip(workers, unsent)]
        unsent = [[torch.zeros_like(weight) for weight in weights] for _ in range(WORKERS)]
        now = rate * (0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2)
        changes = []
        for moment, *gradients in zip(moments, *pushed):
            moment.mul_(MOMENTUM).add_(sum(gradients) / WORKERS)
            changes.append(-now * moment)
        with torch.no_grad():
            for weight, change in zip(weights, server.sent(changes)):
                weight += change
    with torch.no_grad():
        return 100 * (model(images).argmax(1) == labels).float().mean().item()


def table(results: Results, steps: int, rate: float, seeds: int) -> str:
    """Returns Markdown: a row for each design, each cell the median, the least and the greatest of the seeds."""
    lines = [f"| design | {' | '.join(f'{steps * part // 100} steps' for part in PARTS)} |", "|" + "---|" * (len(PARTS) + 1)]
    for design in DESIGNS:
        cells = []
        for part in PARTS:
            found = [results.get(design, steps * part // 100, rate, seed) for seed in range(seeds)]
            cells.append(f"{statistics.median(found):.1f} ({min(found):.1f}-{max(found):.1f})")
        lines.append(f"| {design} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800, help="standard steps, a multiple of 8 [800]")
    parser.add_argument("--rate", type=float, default=0.025, help="a worker's learning rate at the start [0.025]")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each [3]")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("three-lc-accuracy.json"), help="file to write, or to go on with")
    args = parser.parse_args()
    if args.steps < 8 or args.steps % 8:
        parser.error("--steps: expected a multiple of 8, of 8 or more")
    if not args.rate > 0:
        parser.error("--rate: expected a number above 0")
    if args.seeds < 1:
        parser.error("--seeds: expected 1 or more")
    torch.set_num_threads(1)
    results = Results(args.results)
    rate = WORKERS * args.rate
    for design in DESIGNS:
        for part in PARTS:
            steps = args.steps * part // 100
            for seed in range(args.seeds):
                if results.get(design, steps, rate, seed) is None:
                    results.put(accuracy(design, steps, rate, seed), design, steps, rate, seed)
        print(f"{design}: done", file=sys.stderr)
    print(table(results, args.steps, rate, args.seeds))


if __name__ == "__main__":
    main()
