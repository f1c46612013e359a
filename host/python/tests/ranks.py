"""Runs a function as all ranks of a job, each a process, on loopback."""

import datetime
import hashlib
import multiprocessing
import os
import tempfile
import traceback

import torch
import torch.distributed as dist
from hosts import enter

# A test that waits longer has found something that waits for ever: not an overloaded machine.
PATIENCE_S = 1200

# Torch is loaded once, and each rank is forked from there. An optimizer imports torch._dynamo,
# which takes seconds. Old releases have no such module, and one that is absent is passed over.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch.nn.parallel", "torch._dynamo", "gradwire"])


def finite(values):
    """Returns the values, with 0 where one is not finite."""
    return torch.where(values.isfinite(), values, 0.0)


def run(function, ranks, *args, lost=(), hosts=None):
    """Returns the results of `function(rank, *args)`, by rank. Those in `lost` may end without. With `hosts`, each rank is on one of its own."""
    with tempfile.TemporaryDirectory() as folder:
        store = "file://" + os.path.join(folder, "store")
        pipes, processes = [], []
        for rank in range(ranks):
            receive, send = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=_rank, args=(function, rank, ranks, store, send, args, hosts))
            process.start()
            send.close()
            pipes.append(receive)
            processes.append(process)
        try:
            results = []
            for rank, pipe in enumerate(pipes):
                if rank in lost:
                    results.append(None)
                    continue
                if not pipe.poll(PATIENCE_S):
                    raise AssertionError(f"rank {rank} waits for ever")
                try:
                    result, wrong = pipe.recv()
                except EOFError:
                    raise AssertionError(f"rank {rank} ended without a result") from None
                if wrong:
                    raise AssertionError(f"rank {rank}:\n{wrong}")
                results.append(result)
            return results
        finally:
            for rank, process in enumerate(processes):
                if rank not in lost:
                    process.join(10)
                process.kill()


def _rank(function, rank, ranks, store, pipe, args, hosts):
    torch.set_num_threads(1)
    patience = datetime.timedelta(seconds=PATIENCE_S)
    if hosts:
        enter(*hosts[rank])
        # For gloo's start alone.
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    try:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=patience)
        # Gloo's start ends before the others' does: a rank that left now would fail theirs.
        dist.barrier()
        if hosts:
            del os.environ["GLOO_SOCKET_IFNAME"]
        pipe.send((function(rank, *args), None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))
    # A dead rank would let destroy_process_group wait.
    os._exit(0)


def digest(model):
    """The weights' bits."""
    hashed = hashlib.sha256()
    for value in model.state_dict().values():
        hashed.update(value.detach().numpy().tobytes())
    return hashed.hexdigest()


def weights(model):
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def gathered(value):
    """Everybody's."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
