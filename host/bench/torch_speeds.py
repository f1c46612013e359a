"""Speeds of torch where it does what some host codecs do, beside its own `copy_`; prints the table of docs/host-codecs.md.

    python torch_speeds.py

One thread. A round times each operation twice in a row, so that what fits into the cache is there; the table has the best of many rounds,
in GB/s of gradient and as a part of `copy_`, as the example `speeds` of gradwire-codecs has them.
"""

import time
from collections.abc import Callable

import torch

ROUNDS = 40
SIZES = [225_000, 1_000_000]


def operations(n: int) -> dict[str, Callable[[], torch.Tensor]]:
    """The operations on `n` values, by name; what they need is made before."""
    gradient = (torch.rand(n) - 0.5) ** 3 * 0.01
    total, half = torch.zeros(n), gradient.half()
    scale = float(gradient.abs().max()) / 127
    eight = torch.quantize_per_tensor(gradient, scale, 0, torch.qint8)
    return {
        "`copy_`": lambda: total.copy_(gradient),
        "`half()`": lambda: gradient.half(),
        "`add_` of a half tensor": lambda: total.add_(half),
        "`abs().max()` and `quantize_per_tensor`": lambda: torch.quantize_per_tensor(gradient, float(gradient.abs().max()) / 127, 0, torch.qint8),
        "`dequantize` and `add_`": lambda: total.add_(eight.dequantize()),
        "`abs()` and `topk` of 1 %": lambda: torch.topk(gradient.abs(), n // 100),
    }


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}\n\n| torch | 0.9 MB | 4 MB |\n|---|---|---|")
    speeds = {}
    for n in SIZES:
        work = operations(n)
        best = dict.fromkeys(work, float("inf"))
        for _ in range(ROUNDS):
            for name, operation in work.items():
                for _ in range(2):
                    start = time.perf_counter()
                    operation()
                    best[name] = min(best[name], time.perf_counter() - start)
        for name, seconds in best.items():
            speeds.setdefault(name, []).append(f"{4e-9 * n / seconds:.1f} ({best['`copy_`'] / seconds:.2f})")
    for name, row in speeds.items():
        print(f"| {name} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
