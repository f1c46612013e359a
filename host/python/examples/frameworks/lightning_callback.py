"""Lightning, which makes the DistributedDataParallel in `fit`.

torchrun --nproc_per_node 2 examples/frameworks/lightning_callback.py
"""

import gradwire
import lightning
import tiny
import torch
from torch.utils.data import DataLoader


class Compress(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.state = gradwire.attach(trainer.strategy.model, "group:q8")

    def on_train_end(self, trainer, module):
        print(self.state.report())
        tiny.result(module, self.state.report())
        self.state.close()


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = tiny.model()

    def training_step(self, batch, index):
        inputs, targets = batch
        return torch.nn.functional.cross_entropy(self.model(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, callbacks=[Compress()], **quiet)
trainer.fit(Module(), DataLoader(tiny.data(), batch_size=8))
