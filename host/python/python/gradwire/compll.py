"""CompLL's five algorithms (Bai et al., SOSP 2021), and AdaComp, each a class of at most 30 lines: plans over a process group.

`onebit`, `tbq`, `terngrad`, `dgc` and `graddrop` are those of docs/host-codecs.md in messages of one size: the same values arrive.
docs/codecs.md counts their lines, and says what differs.
"""

from __future__ import annotations

import math

import torch

from gradwire.codec import (
    INFINITE,
    Codec,
    concat,
    dense,
    divided,
    extract,
    filter,
    index_bits,
    magnitude,
    map,
    peak,
    random,
    reduce,
    register,
    share,
    sort,
    sparse,
)

SAMPLE = 1024
"""Values of which `graddrop` takes its threshold."""
SHARED = 16
"""Bins of `adacomp` that share a scale."""


def _block(block: int) -> int:
    """Returns a checked number of values that share something; 0 is all of a message."""
    if not 0 <= block <= 1 << 24:
        raise ValueError(f"expected a BLOCK of 1 to {1 << 24} values, or none, for all")
    return block


@register("onebit")
class OneBit(Codec):
    """`onebit[:BLOCK]`, 1-bit SGD: signs, and for each block the means of its negative and of its other values."""

    def __init__(self, block: int = 0) -> None:
        self.block = _block(block)
        self.unit = block or 1

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        blocks = values.unflatten(1, (-1, self.block or values.shape[1]))
        means = []
        for side in (~(blocks >= 0), blocks >= 0):
            total = reduce(torch.where(side, blocks, 0.0).to(torch.float64), torch.sum)
            means.append((total / reduce(side, torch.sum).clamp(min=1)).to(torch.float32))
        return concat(*means, map(blocks, lambda value: value >= 0, 1))

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        blocks = messages.unflatten(1, (n // (self.block or n), -1))
        low, high, codes = extract(blocks, (torch.float32, 1), (torch.float32, 1), (1, self.block or n))
        return torch.where(codes == 1, high, low).flatten(1)


@register("tbq")
class Threshold(Codec):
    """`tbq:T`, threshold binary quantisation: values of at least T become T, of at most -T become -T, all others wait."""

    def __init__(self, threshold: float) -> None:
        self.threshold = torch.tensor(threshold, dtype=torch.float32).item()
        if not torch.finfo(torch.float32).tiny <= self.threshold < math.inf:
            raise ValueError("expected a threshold above 0, a normal f32")

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        far = (values >= self.threshold) + 2 * (values <= -self.threshold)
        return concat(map(values, lambda value: torch.where(value.isfinite(), far, 3), 2))

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        (codes,) = extract(messages, (2, n))
        far = (codes == 1).to(torch.float32) - (codes == 2).to(torch.float32)
        return torch.where(codes == 3, math.nan, far * self.threshold)


@register("terngrad")
class TernGrad(Codec):
    """`terngrad[:BITS[:BLOCK]]`: equal steps from a block's smallest to its largest value, the one above or below by chance."""

    feeds_back = False

    def __init__(self, bits: int = 2, block: int = 0) -> None:
        if bits not in (2, 4, 8):
            raise ValueError("expected 2, 4 or 8 bits")
        self.bits, self.block, self.steps = bits, _block(block), 2**bits - 1
        self.unit = block or 1

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        blocks = values.unflatten(1, (-1, self.block or values.shape[1]))
        wrong, low, high = peak(blocks).isnan(), reduce(blocks, torch.amin), reduce(blocks, torch.amax)
        gap = torch.where(wrong, 0.0, divided(high, self.steps) - divided(low, self.steps))
        inverse = torch.where(gap < torch.finfo(torch.float32).tiny, 0.0, gap.reciprocal())
        chance = random(blocks)

        def code(value: torch.Tensor) -> torch.Tensor:
            return torch.where(wrong, 0.0, ((value - low) * inverse + chance).floor().clamp(max=self.steps))

        return concat(torch.where(wrong, math.nan, low), gap, map(blocks, code, self.bits))

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        blocks = messages.unflatten(1, (n // (self.block or n), -1))
        low, gap, codes = extract(blocks, (torch.float32, 1), (torch.float32, 1), (self.bits, self.block or n))
        return (low + codes * gap).flatten(1)


@register("dgc")
class Dgc(Codec):
    """`dgc:PERCENT`, deep gradient compression without momentum: the values of the largest magnitudes, all others wait."""

    def __init__(self, percent: float) -> None:
        if not 0 < percent <= 100:
            raise ValueError("expected a percentage of values that are sent, above 0 and at most 100")
        self.percent = percent

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        largest = sort(magnitude(values), share(values.shape[1], self.percent))
        return sparse(values, largest.sort(-1).values)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        return dense(messages, share(n, self.percent), n)


@register("graddrop")
class GradDrop(Codec):
    """`graddrop:PERCENT`: drops so many percent of the values, those below a threshold of a sample; at most twice what is left is sent."""

    def __init__(self, percent: float) -> None:
        if not 50 <= percent < 100:
            raise ValueError("expected a percentage of values that are dropped, at least 50 and below 100")
        self.percent = percent

    def _most(self, n: int) -> int:
        return min(2 * share(n, 100 - self.percent), n)

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        keys, n = magnitude(values), values.shape[1]
        sample = keys if n <= SAMPLE else keys.gather(1, random(keys[:, :SAMPLE], n))
        place = sort(sample, share(sample.shape[1], 100 - self.percent))[:, -1:]
        least = torch.where(peak(values).isnan(), INFINITE, sample.gather(1, place))
        indices = filter(keys >= least, self._most(n))
        return sparse(torch.where(keys >= least, values, 0.0), indices)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        return dense(messages, self._most(n), n)


@register("adacomp")
class AdaComp(Codec):
    """`adacomp[:BIN[:MOST]]` (Chen et al., 2018): of each bin at most MOST values that, with the newest gradient added once more, reach
    the bin's largest magnitude. They are sent as that magnitude's mean over 16 bins; all others wait.
    """

    def __init__(self, bin: int = 500, most: int = 4) -> None:
        if not 1 <= most <= bin <= 1 << 16:
            raise ValueError(f"expected a BIN of 1 to {1 << 16} values, and MOST of these")
        self.bin, self.most, self.unit = bin, most, bin * SHARED
        self.index_bits = index_bits(bin)

    def encode_with(self, values: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        bins = values.unflatten(1, (-1, SHARED, self.bin))
        soft = (values + gradient).view_as(bins).abs()
        reach = (soft >= peak(bins)) & (bins != 0) | ~bins.isfinite()
        indices = sort(torch.where(reach, magnitude(bins), 0), self.most)
        signs = torch.where(reach, torch.where(bins < 0, -1, 1), 0).gather(-1, indices)
        scale = reduce(peak(bins).squeeze(-1) / SHARED, torch.sum)
        codes = (map(each.flatten(2), lambda code: code, bits) for each, bits in ((indices, self.index_bits), (signs + 1, 2)))
        return concat(scale, *codes)

    def decode(self, messages: torch.Tensor, n: int) -> torch.Tensor:
        groups, slots = messages.unflatten(1, (n // self.unit, -1)), SHARED * self.most
        scale, indices, signs = extract(groups, (torch.float32, 1), (self.index_bits, slots), (2, slots))
        sent = torch.where(signs == 1, 0.0, (signs - 1) * scale).unflatten(2, (SHARED, -1))
        bins = torch.zeros(*sent.shape[:3], self.bin, device=messages.device)
        return bins.scatter(-1, indices.to(torch.int64).unflatten(2, (SHARED, -1)), sent).flatten(1)
