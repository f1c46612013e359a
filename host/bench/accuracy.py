"""Accuracy after equal iterations: what INCEPTIONN's codecs cost (section VIII-C), and what Pipe-SGD's late gradients do (figure 4).

    python accuracy.py --results accuracy.json

Four ranks train as one process, each with batches of its own; all apply the mean of their gradients. `codecs`: SGD with momentum; the gradients
pass a ring of gradwire's links, whose ends are threads, so that each hop codes. `late`: plain SGD, whose rate falls to 0 as half a cosine; the
gradients of K - 1 iterations before are applied, at first those of the same iteration, for a number of epochs. The table has the accuracy on
unseen images at the best of the task's learning rates, by its mean over the seeds. Results are written after every training; a run that was cut
goes on where it was, if it is started with the same --results.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import ipaddress
import pathlib
import statistics
import sys
from collections.abc import Callable, Iterator

import torch
from gradwire import _native
from network import PATIENCE_S
from tasks import TASKS
from time_to_accuracy import Results
from torch.nn.utils import parameters_to_vector

RANKS = 4
ITERATIONS = {"codecs": {"mlp": 150, "cnn": 400}, "late": {"mlp-sgd": 300, "cnn-sgd": 400}}
EPOCH = {"mlp-sgd": 31, "cnn-sgd": 62}
"""Iterations in which the ranks see as many images as there are."""
ROWS: dict[str, tuple[tuple[str, int, int], ...]] = {
    "codecs": tuple((codec, 1, 0) for codec in ("f32", "bounded:10", "bounded:8", "bounded:6", "trunc:16", "trunc:22", "trunc:24")),
    "late": tuple(("f32", *late) for late in ((1, 0), (2, 0), (2, 2), (3, 0), (3, 2))),
}
"""What is compared: the codec, the pipeline's width K, and the epochs before it begins."""
BEHIND = 5
"""A rate that is so many points behind the best with the first seed is not tried with the others."""


@contextlib.contextmanager
def ring(codec: str, parameters: list[torch.Tensor]) -> Iterator[Callable[[list[torch.Tensor]], torch.Tensor]]:
    """What makes the mean of the ranks' gradients of these parameters, which are vectors: links between threads."""
    here, token, plan = ipaddress.IPv4Address("127.0.0.1"), _native.token(), _native.Plan(codec)
    layout = _native.Layout([(f"{i}", one.numel(), one.shape[0] if one.dim() > 1 else 1) for i, one in enumerate(parameters)])
    ends = [_native.Listening(token, PATIENCE_S, None, here, False) for _ in range(RANKS)]
    port = ends[0].port
    with concurrent.futures.ThreadPoolExecutor(RANKS) as threads:
        channels = list(threads.map(lambda rank: ends[rank].join(rank, RANKS, here, port), range(RANKS)))

        def mean(gradients: list[torch.Tensor]) -> torch.Tensor:
            list(threads.map(lambda channel, gradient: channel.exchange(gradient, layout, plan, False), channels, gradients))
            return gradients[0]

        yield mean
        list(threads.map(lambda channel: channel.close(), channels))


def accuracy(name: str, iterations: int, rate: float, seed: int, row: tuple[str, int, int], decays: bool) -> float:
    """Returns the percentage of test images that a model trained so recognizes."""
    codec, width, warm = row
    task = TASKS[name]
    torch.manual_seed(seed)
    model = task.model()
    parameters = list(model.parameters())
    optimizer = task.optimizer(iter(parameters), rate)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations) if decays else None
    batches, (images, labels) = [task.batches(seed, rank) for rank in range(RANKS)], task.test()
    late: collections.deque[torch.Tensor] = collections.deque()

    def gradient(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return parameters_to_vector(torch.autograd.grad(task.loss(model, batch), parameters))

    with ring(codec, parameters) if codec != "f32" else contextlib.nullcontext() as mean:
        for iteration in range(iterations):
            drawn = [next(one) for one in batches]
            # Batches are of one size, so the mean gradient is that of all their images.
            applied = mean([gradient(batch) for batch in drawn]) if mean else gradient(tuple(map(torch.cat, zip(*drawn))))
            if width > 1 and iteration >= warm * EPOCH[name]:
                late.append(applied)
                applied = late.popleft() if len(late) == width else torch.zeros_like(applied)
            for parameter, values in zip(parameters, applied.split([parameter.numel() for parameter in parameters])):
                parameter.grad = values.view_as(parameter)
            optimizer.step()
            if falls:
                falls.step()
    with torch.no_grad():
        return 100 * (model(images).argmax(1) == labels).float().mean().item()


def hopeful(results: Results, comparison: str, name: str, row: tuple[str, int, int]) -> list[float]:
    """Returns the rates that are tried with all seeds."""
    first = {rate: results.get(comparison, name, *row, rate, 0) for rate in TASKS[name].rates}
    return [rate for rate in first if max(first.values()) - first[rate] < BEHIND]


def table(results: Results, comparison: str, seeds: int) -> str:
    """Returns Markdown: a row for each of ROWS; the best rate of each model, and the mean, the least and the greatest of the seeds."""
    names = ITERATIONS[comparison]
    head = [*(("codec",) if comparison == "codecs" else ("width", "epochs before")), *(cell for name in names for cell in (f"rate, {name}", "%"))]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in ROWS[comparison]:
        cells = [f"`{row[0]}`"] if comparison == "codecs" else [*map(str, row[1:])]
        for name in names:
            rates = hopeful(results, comparison, name, row)
            found = {rate: [results.get(comparison, name, *row, rate, seed) for seed in range(seeds)] for rate in rates}
            best = max(found, key=lambda rate: statistics.mean(found[rate]))
            cells += [f"{best:g}", f"{statistics.mean(found[best]):.1f} ({min(found[best]):.1f}-{max(found[best]):.1f})"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparison", choices=list(ROWS), action="append", help="one of the two [both]")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each [3]")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("accuracy.json"), help="file to write, or to go on with")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error("--seeds: expected 1 or more")
    torch.set_num_threads(1)
    results = Results(args.results)
    comparisons = args.comparison or list(ROWS)
    for comparison in comparisons:
        for name, iterations in ITERATIONS[comparison].items():
            for row in ROWS[comparison]:
                for seed in range(args.seeds):
                    for rate in hopeful(results, comparison, name, row) if seed else TASKS[name].rates:
                        key = (comparison, name, *row, rate, seed)
                        if results.get(*key) is None:
                            results.put(accuracy(name, iterations, rate, seed, row, comparison == "late"), *key)
                            print(f"{name}, {row}, rate {rate:g}, seed {seed}: {results.get(*key):.1f} %", file=sys.stderr)
    print("\n\n".join(table(results, comparison, args.seeds) for comparison in comparisons))


if __name__ == "__main__":
    main()
