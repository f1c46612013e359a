"""Tasks of the benchmark: models, data, optimizers, and the loss that counts as learned. The same on every machine."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "host/python/examples"))

from train import digits  # noqa: E402

ONE = "/one"
"""An exchange of this ending gets all gradients in one bucket, when all are there; others get them in DDP's buckets of 1 and 25 MB."""

SERVED = "server:"
"""An exchange of this beginning has an aggregator beside the ranks: it steps with the mean of their gradients, and returns weights. Behind it comes
the codec of gradients."""

LOCAL = re.compile(r"(?P<by>local|torch-local):(?P<every>\d+)(\+(?P<delay>\d+))?(/(?P<fragments>\d+))?(:(?P<plan>.+))?")
"""Local steps, for one: iterations of a round, those of its delay, and fragments; `torch-local` is PyTorch's PeriodicModelAverager."""

Batch = tuple[torch.Tensor, torch.Tensor]


def load(file: str) -> None:
    """Imports a file, whose codecs register themselves."""
    name = pathlib.Path(file).stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"--codec-module {file}: expected a file of Python")
    # Where `inspect` looks for the source of its classes, which ranks compare.
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def round_of(exchange: str) -> int:
    """Returns the iterations from exchange to exchange."""
    return int(found["every"]) if (found := LOCAL.fullmatch(exchange)) else 1


@dataclasses.dataclass(frozen=True)
class Task:
    """A model and how it learns."""

    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterator[nn.Parameter], float], torch.optim.Optimizer]
    rates: tuple[float, ...]
    """The learning rates that each exchange is tried with."""
    batches: Callable[[int, int], Iterator[Batch]]
    """A rank's batches, by seed and rank, without end."""
    test: Callable[[], Batch]
    target: float
    """The loss on `test` that counts as learned."""
    every: int
    """The loss is looked at once in so many iterations."""
    most: int
    """After so many iterations, the target counts as missed."""

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean cross entropy of a batch."""
        logits = model(batch[0])
        return nn.functional.cross_entropy(logits.flatten(0, -2), batch[1].flatten())

    def served(self, rate: float) -> list[str]:
        """Returns the options by which `gradwire serve` steps as the optimizer does. ValueError if it cannot."""
        optimizer = self.optimizer(iter([nn.Parameter(torch.zeros(1))]), rate)
        said = optimizer.defaults
        if others := [name for name in ("amsgrad", "dampening", "maximize", "nesterov") if said.get(name)]:
            raise ValueError(f"the server has no {type(optimizer).__name__} with {others[0]}")
        if type(optimizer) is torch.optim.AdamW:
            name, options = "adamw", {"betas": said["betas"], "eps": [said["eps"]]}
        elif type(optimizer) is torch.optim.SGD:
            name, options = ("momentum", {"momentum": [said["momentum"]]}) if said["momentum"] else ("sgd", {})
        else:
            raise ValueError(f"the server has no {type(optimizer).__name__}: expected SGD or AdamW")
        options |= {"lr": [rate], "weight-decay": [said["weight_decay"]]}
        return ["--optimizer", name, *(word for option, values in options.items() for word in (f"--{option}", *map(str, values)))]


def _drawn(size: int) -> Callable[[int, int], Iterator[Batch]]:
    def batches(seed: int, rank: int) -> Iterator[Batch]:
        images, labels = digits(8000, seed=1)
        order = torch.Generator().manual_seed(1000 * seed + rank)
        while True:
            chosen = torch.randint(len(images), (size,), generator=order)
            yield images[chosen], labels[chosen]

    return batches


def _mlp() -> nn.Module:
    widths = [64, 700, 700, 700, 10]
    layers = [layer for sizes in zip(widths, widths[1:]) for layer in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class _Convex(nn.Module):
    """Logistic regression on features that do not learn: the loss is convex in what does."""

    def __init__(self) -> None:
        super().__init__()
        # No buffer, since DDP would send those in every iteration. All ranks have the same seed.
        self.features = torch.randn(64, 2000) / 8
        self.classes = nn.Linear(2000, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes((x @ self.features).relu())


CONTEXT, WIDTH, HEADS, BLOCKS = 64, 144, 4, 4
TEXTS_AT = "27d677a"
"""The commit whose documents are the text, so that it stays the same while documents change."""
TEXTS = ("FORMAT.md", "ARCHITECTURE.md", "TESTING.md", "docs/performance.md", "docs/deploy.md", "docs/simulator.md")


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(CONTEXT, CONTEXT).triu(1).bool(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=self.mask, need_weights=False)[0]
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


class _Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, WIDTH), nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(_Block() for _ in range(BLOCKS)))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.blocks(self.characters(x) + self.places)))


@functools.cache
def _text() -> torch.Tensor:
    """The project's own documents, as ASCII."""
    show = ["git", "-C", str(ROOT), "show", *(f"{TEXTS_AT}:{name}" for name in TEXTS)]
    text = subprocess.run(show, check=True, capture_output=True, encoding="utf-8").stdout
    return torch.tensor([code if (code := ord(character)) < 128 else 127 for character in text])


def _windows(text: torch.Tensor, starts: torch.Tensor) -> Batch:
    windows = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def _characters(seed: int, rank: int) -> Iterator[Batch]:
    text = _text()
    text = text[: len(text) * 9 // 10]
    order = torch.Generator().manual_seed(1000 * seed + rank)
    while True:
        yield _windows(text, torch.randint(len(text) - CONTEXT - 1, (8,), generator=order))


def _unseen() -> Batch:
    text = _text()
    text = text[len(text) * 9 // 10 :]
    return _windows(text, torch.linspace(0, len(text) - CONTEXT - 2, 64).long())


def _sgd(parameters: Iterator[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate)


def _momentum(parameters: Iterator[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def _adamw(parameters: Iterator[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate)


TASKS = {
    "mlp": Task(_mlp, _momentum, (0.05, 0.1, 0.2), _drawn(64), lambda: digits(2000, seed=2), 0.2, 5, 300),
    "cnn": Task(_cnn, _momentum, (0.02, 0.05, 0.1), _drawn(32), lambda: digits(2000, seed=2), 0.1, 10, 800),
    "convex": Task(_Convex, _sgd, (0.2, 0.5, 1.0), _drawn(64), lambda: digits(2000, seed=2), 0.3, 5, 400),
    "mlp-sgd": Task(_mlp, _sgd, (0.2, 0.5, 1.0), _drawn(64), lambda: digits(2000, seed=2), 0.2, 5, 300),
    "cnn-sgd": Task(_cnn, _sgd, (0.1, 0.2, 0.5), _drawn(32), lambda: digits(2000, seed=2), 0.1, 10, 800),
    "gpt": Task(_Gpt, _adamw, (1e-3, 2e-3), _characters, _unseen, 2.4, 10, 800),
}
