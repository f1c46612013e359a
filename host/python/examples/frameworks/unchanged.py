"""A script that knows nothing of gradwire.

torchrun --nproc_per_node 2 -m gradwire run --plan q8 examples/frameworks/unchanged.py
"""

import tiny
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(tiny.model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in tiny.batches(dist.get_rank(), dist.get_world_size()):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
tiny.result(model)
