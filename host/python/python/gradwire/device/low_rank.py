"""PowerSGD (Vogels, Karimireddy, Jaggi, 2019) on the device: all matrices of a bucket at once, their factors in 8 bits."""

from __future__ import annotations

import dataclasses
import math
import zlib

import torch

from gradwire.device.codecs import ScaledIntegers
from gradwire.device.exchange import Group, Mean, finite, kernels

FACTORS = ScaledIntegers(8, 256)
"""The codec of factors: each is stored one rank after the other, so a block has values of one magnitude."""
MAX_RANK = 32


@dataclasses.dataclass(frozen=True)
class Shape:
    """A matrix `[rows, cols]` at `start` of a flat tensor, and the rank of its factors."""

    name: str
    start: int
    rows: int
    cols: int
    rank: int

    @property
    def values(self) -> slice:
        return slice(self.start, self.start + self.rows * self.cols)


def shape(name: str, start: int, sizes: tuple[int, ...], rank: int) -> Shape | None:
    """Returns the parameter as a matrix with a row for each of its first dimension; None if its factors have no fewer values than it has."""
    if len(sizes) < 2:
        return None
    rows, cols = sizes[0], math.prod(sizes[1:])
    rank = min(rank, rows, cols)
    return Shape(name, start, rows, cols, rank) if (rows + cols) * rank < rows * cols else None


class Factors:
    """The right factor of each matrix, where the next iteration begins."""

    def __init__(self, shapes: list[Shape], device: torch.device, saved: dict[str, torch.Tensor]) -> None:
        self.shapes = shapes
        self.first = [_random(each).to(device) for each in shapes]
        found = [(saved.get(each.name), first) for each, first in zip(shapes, self.first)]
        # Those of a plan of another rank have another shape.
        self.right = [first if old is None or old.shape != first.shape else old.to(device) for old, first in found]

    def mean(self, group: Group, values: torch.Tensor, mean: torch.Tensor, exact: torch.Tensor | None) -> list[torch.Tensor]:
        """Makes `mean`, f32 `[n]`, the mean of all ranks' matrices in `values`, likewise, and `values` what this rank lost of them.

        What is in no matrix stays in both, and `exact`, f32, becomes its own mean. What a factor's messages lose is part of what is lost.
        If a value of a matrix is not finite at a rank, the whole mean of that matrix is NaN, nothing of it is lost, and its factor starts
        anew. Returns the next right factors.
        """
        matrices = [values[each.values].view(each.rows, each.cols) for each in self.shapes]
        rights = [_normal(right, first) for right, first in zip(self.right, self.first)]
        lefts = [torch.mm(right, matrix.t()) for right, matrix in zip(rights, matrices)]
        summed = _mean(group, _flat(lefts), exact).values
        lefts = orthonormal(_split(summed, lefts))
        rights = [torch.mm(left, matrix) for left, matrix in zip(lefts, matrices)]
        coded = _mean(group, _flat(rights))
        lost_of_rights = coded.lost
        owned = group.owned(len(coded.values), FACTORS.unit)
        lost_of_rights[owned] += group.ranks * coded.lost_of_owned[: owned.stop - owned.start]
        following = []
        parts = zip(self.shapes, matrices, lefts, rights, _split(coded.values, rights), _split(lost_of_rights, rights), self.first)
        for each, matrix, left, own, right, lost_of_right, first in parts:
            are_finite = _is_finite(right) & _is_finite(left)
            # Added to a factor, it reaches the whole product.
            nan = torch.where(are_finite, 0.0, math.nan)
            torch.mm(left.t(), right + nan, out=mean[each.values].view_as(matrix))
            finite(matrix.addmm_(left.t(), own - lost_of_right + nan, alpha=-1))
            following.append(torch.where(are_finite, right, first))
        return following


def _mean(group: Group, factors: torch.Tensor, exact: torch.Tensor | None = None) -> Mean:
    """Returns the mean of all ranks' `factors`, f32 `[n]`, which it may overwrite; `exact` becomes its own."""
    by = kernels(FACTORS, factors)
    if by is None:
        return group.mean(factors, FACTORS, exact=exact)
    lost, lost_of_owned = torch.zeros_like(factors), factors.new_zeros(group.part(len(factors), FACTORS.unit))
    mean = group.mean_by_kernels(factors, FACTORS, by, lost, lost_of_owned, None, lambda part: part, exact)
    return Mean(mean, lost, lost_of_owned)


def orthonormal(factors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns factors `[rank, n]` whose rows span the same and are orthonormal; a row that depends on others may become shorter.

    Cholesky's: with G = P Pᵀ = L Lᵀ, the rows of L⁻¹ P are orthonormal. It takes one product and one solution for each factor, where
    Gram and Schmidt take several operations a row. In f64, and with 10^-12 of G's trace added to its diagonal, L exists whatever the
    rows are, and L⁻¹ P is never longer than an orthonormal basis.
    """
    result = []
    for factor in factors:
        wide = factor.to(torch.float64)
        gram = torch.mm(wide, wide.t())
        # The second term lets a factor of zeros be one.
        gram.diagonal().add_(gram.diagonal().sum() * 1e-12 + 1e-200)
        lower, _ = torch.linalg.cholesky_ex(gram)
        basis = torch.linalg.solve_triangular(lower, wide, upper=False).to(torch.float32)
        # Of a factor that is not finite, no library says what it makes.
        result.append(torch.where(_is_finite(factor), basis, math.nan))
    return result


def _normal(right: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Returns the factor with rows of a largest magnitude of 1, and the first factor's rows in place of zeros."""
    peaks = right.abs().amax(1, keepdim=True)
    return torch.where(peaks > torch.finfo(torch.float32).tiny, right / peaks, first)


def _is_finite(factor: torch.Tensor) -> torch.Tensor:
    # A third of the time of isfinite().all().
    return factor.abs().amax() < math.inf


def _random(each: Shape) -> torch.Tensor:
    # By name: a matrix begins with the same factor at all ranks, whatever bucket it is in.
    seed = torch.Generator().manual_seed(zlib.crc32(each.name.encode()))
    return torch.randn(each.rank, each.cols, generator=seed)


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([each.reshape(-1) for each in tensors])


def _split(flat: torch.Tensor, like: list[torch.Tensor]) -> list[torch.Tensor]:
    return [part.view_as(each) for part, each in zip(flat.split([each.numel() for each in like]), like)]
