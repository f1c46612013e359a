"""The kernels of q8 and q4 on the CPU: the messages, residuals and means of the torch operations, bit for bit, by the Rust codecs.

They serve gradients of float32 and blocks of any size; torch operations stay for all else, as with Triton's kernels. With
GRADWIRE_KERNELS=0 in the environment, they serve nothing.
"""

from __future__ import annotations

import torch

from gradwire import _native
from gradwire.codec import Codec
from gradwire.device.codecs import ScaledIntegers


class NativeKernels:
    """`Kernels` of `kernels.py`, by Rust."""

    def __init__(self, codec: ScaledIntegers) -> None:
        self._codec = codec
        self._coder = _native.Coder(codec.bits, codec.block)

    def encode(self, gradient: torch.Tensor, residual: torch.Tensor, rows: int, part: int, used: torch.Tensor | None = None) -> torch.Tensor:
        messages = torch.empty(rows, self._codec.size(part), dtype=torch.uint8)
        if used is None:
            self._coder.encode(gradient, residual, part, messages)
        else:
            waits = torch.where(used, 0.0, residual)
            residual -= waits
            self._coder.encode(gradient, residual, part, messages)
            residual.copy_(torch.where(used, residual, waits))
        return messages

    def encode_mean(self, received: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        message = torch.empty(1, received.shape[1], dtype=torch.uint8)
        self._coder.encode_mean(received, residual, message)
        return message

    def mean(self, received: torch.Tensor, part: int) -> torch.Tensor:
        mean = torch.empty(part)
        self._coder.mean(received, mean)
        return mean

    def decode(self, messages: torch.Tensor, part: int, values: torch.Tensor) -> torch.Tensor:
        self._coder.decode(messages, part, values)
        return values


def kernels(codec: Codec, gradient: torch.Tensor) -> NativeKernels | None:
    """Returns the kernels that serve messages of a gradient; None if torch operations have to."""
    # Fake tensors have no values.
    if type(gradient) is not torch.Tensor or gradient.device.type != "cpu":
        return None
    if gradient.dtype != torch.float32 or not gradient.is_contiguous():
        return None
    return NativeKernels(codec) if isinstance(codec, ScaledIntegers) else None
