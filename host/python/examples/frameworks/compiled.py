"""A DistributedDataParallel under torch.compile.

torchrun --nproc_per_node 2 examples/frameworks/compiled.py
"""

import gradwire
import tiny
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")  # "nccl" on GPUs
model = torch.compile(DistributedDataParallel(tiny.model()))
state = gradwire.attach(model, "group:q8")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in tiny.batches(dist.get_rank(), dist.get_world_size()):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
print(state.report())
tiny.result(model, state.report())
state.close()
dist.destroy_process_group()
