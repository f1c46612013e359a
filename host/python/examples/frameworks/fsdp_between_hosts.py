"""FSDP2 whose shards stay inside a host: two hosts with two accelerators each, as four processes.

torchrun --nproc_per_node 4 examples/frameworks/fsdp_between_hosts.py
"""

import gradwire
import tiny
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")  # "nccl" on GPUs, and "cuda" for "cpu" below
mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("host", "gpu"))
model = fully_shard(tiny.model(), mesh=mesh["gpu"])
state = gradwire.attach(model, "q8", group=mesh["host"].get_group())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in tiny.batches(dist.get_rank(), dist.get_world_size()):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
print(state.report())
tiny.result(model, state.report())
state.close()
dist.destroy_process_group()
