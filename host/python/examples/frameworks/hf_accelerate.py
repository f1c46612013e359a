"""Hugging Face Accelerate, whose `prepare` makes the DistributedDataParallel.

torchrun --nproc_per_node 2 examples/frameworks/hf_accelerate.py
"""

import gradwire
import tiny
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)  # nothing in parentheses on GPUs
model = tiny.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(tiny.data(), batch_size=8))
state = gradwire.attach(model, "group:q8")
for inputs, targets in batches:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
    optimizer.step()
accelerator.print(state.report())
tiny.result(model, state.report())
state.close()
accelerator.end_training()
