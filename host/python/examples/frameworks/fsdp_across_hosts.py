"""FSDP2 whose shards span hosts: the reduce-scatter is coded.

torchrun --nproc_per_node 2 examples/frameworks/fsdp_across_hosts.py
"""

import gradwire
import tiny
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")  # "nccl" on GPUs
model = fully_shard(tiny.model())
comm = gradwire.attach(model, "q8")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in tiny.batches(dist.get_rank(), dist.get_world_size()):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
print(comm.sent_bytes, "bytes sent by coded reduce-scatters")
tiny.result(model, {"sent_bytes": comm.sent_bytes})
dist.destroy_process_group()
