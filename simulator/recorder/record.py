"""Records a trace of PyTorch training for `gradwire simulate --trace`.

    from record import Recorder
    with Recorder(model, "trace.jsonl"):
        for batch in batches: ...train as ever...

A line says when the forward pass needs a parameter (to the worker) or its gradient is there (from it):
time in seconds, parameter, bytes as f32, source, destination. Nothing of the training changes. On a GPU,
pass `synchronize=torch.cuda.synchronize`: kernels run later than the code that starts them.

As a program it trains a small convolutional network on noise, on one core, and records that:

    python record.py trace.jsonl
"""

import json
import sys
import time

import torch


class Recorder:
    """Hooks a model's parameters for as long as it is open."""

    def __init__(self, model, path, worker="worker0", synchronize=lambda: None):
        self.model, self.path, self.worker, self.synchronize = model, path, worker, synchronize

    def __enter__(self):
        self.start, self.lines, self.hooks = time.perf_counter(), [], []
        # A parameter that two modules share has one name, and is needed by the first.
        names = {parameter: name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        for module in self.model.modules():
            own = [(names[p], p) for p in module.parameters(recurse=False) if p in names]
            if own:
                self.hooks.append(module.register_forward_pre_hook(self._needs(own)))
        for parameter, name in names.items():
            self.hooks.append(parameter.register_post_accumulate_grad_hook(self._has(name)))
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()
        with open(self.path, "w") as file:
            for line in self.lines:
                file.write(json.dumps(line) + "\n")

    def _needs(self, own):
        def hook(module, inputs):
            # Inference between training steps is not part of an iteration.
            if torch.is_grad_enabled():
                for name, parameter in own:
                    self._record(name, parameter, "ps", self.worker)

        return hook

    def _has(self, name):
        return lambda parameter: self._record(name, parameter, self.worker, "ps")

    def _record(self, name, parameter, source, destination):
        self.synchronize()
        self.lines.append(
            {
                "time": round(time.perf_counter() - self.start, 7),
                "parameter": name,
                "bytes": 4 * parameter.numel(),
                "source": source,
                "destination": destination,
            }
        )


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = []
    for channels_in, channels_out in [(3, 32), (32, 64), (64, 128)]:
        layers += [torch.nn.Conv2d(channels_in, channels_out, 3, padding=1), torch.nn.BatchNorm2d(channels_out)]
        layers += [torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    layers += [torch.nn.Flatten(), torch.nn.Linear(128 * 4 * 4, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with Recorder(model, path):
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(torch.randn(32, 3, 32, 32)), torch.randint(10, (32,)))
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: record.py TRACE.jsonl")
    main(sys.argv[1])
