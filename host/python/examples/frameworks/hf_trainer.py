"""Hugging Face's Trainer, which makes the DistributedDataParallel in `train`.

torchrun --nproc_per_node 2 examples/frameworks/hf_trainer.py
"""

import tempfile

import gradwire
import tiny
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Compress(TrainerCallback):
    def on_train_begin(self, *_, **__):
        self.state = gradwire.attach(trainer.model_wrapped, "group:q8")

    def on_train_end(self, *_, **__):
        print(self.state.report())
        tiny.result(trainer.model, self.state.report())
        self.state.close()


torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2))
tokens = torch.randint(0, 64, (192, 16))
data = [{"input_ids": each, "labels": each} for each in tokens]
folder = tempfile.mkdtemp()
arguments = TrainingArguments(folder, max_steps=12, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True)
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Compress()])
trainer.train()
