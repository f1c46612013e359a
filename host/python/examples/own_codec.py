"""A codec of one's own: signs, and the mean magnitude of each block (EF-SignSGD, Karimireddy et al., 2019). docs/codecs.md explains it."""

import gradwire
import torch
from gradwire.codec import Codec, concat, extract, map, reduce


@gradwire.register("sign")
class Sign(Codec):
    def __init__(self, block: int = 1024):
        self.unit = self.block = block

    def encode(self, values):
        blocks = values.unflatten(1, (-1, self.block))
        mean = reduce(blocks.abs(), torch.sum) / self.block
        return concat(mean, map(blocks, lambda value: value >= 0, 1))

    def decode(self, messages, n):
        blocks = messages.unflatten(1, (n // self.block, -1))
        mean, codes = extract(blocks, (torch.float32, 1), (1, self.block))
        return torch.where(codes == 1, mean, -mean).flatten(1)
