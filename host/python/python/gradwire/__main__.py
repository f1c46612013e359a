"""`python -m gradwire`: `run` compresses what an unchanged script trains; `serve` is a parameter server, and needs no torch."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys

from gradwire import _native

RUN = """\
Runs a script whose DistributedDataParallel models are compressed, as if it called gradwire.attach for each:

  torchrun --nproc_per_node 8 -m gradwire run --plan hierarchy:hosts:q8 train.py --its own arguments
  torchrun --nproc_per_node 8 -m gradwire run --plan group:low-rank:16 -m package.train

Gradients on an accelerator go over the script's own process group; those on the CPU over connections of gradwire's, or over
the process group if the plan begins with "group:". docs/training.md says which plan to choose.

It logs what the first iteration with a codec sends, and ends with a report. A script that makes no DistributedDataParallel runs as
without, and is told so at its end.
"""
SERVE = """\
A parameter server: it sums the gradients of all workers, and sends them the sums.

  python -m gradwire serve --listen 10.0.0.1:7000 --ranks 4 --token-file token

The token keeps strangers out. If there is no such file, it is made; copy it to the host of rank 0. There:

  GRADWIRE_TOKEN_FILE=token torchrun ... train.py

and in train.py:

  state = gradwire.State(gradwire.Link(), plan="3lc:1:1024", server="10.0.0.1:7000")
  ddp.register_comm_hook(state, gradwire.hook)

Without --optimizer, workers say which codec: it codes what they send, and what they get. The server encodes each sum once, sends the
same bytes to all, and adds what these lost to the next sum.

With --optimizer, the server steps with the mean of the gradients, and returns its weights, or with --returns deltas what they have
that the workers' have not, by --codec; what a message loses is still missing at the next one. The plan codes what workers send, and

  optimizer = gradwire.ServedOptimizer(ddp.parameters(), state)

takes the place of PyTorch's optimizer: its step() takes what the server returned.

A server serves one model of one job, and ends with it: with 0 if all workers left in order,
with 1 and the cause, which all workers are told too, if anything fails.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gradwire", description="Compressed gradient exchange for PyTorch.")
    parser.add_argument("--version", action="version", version=f"gradwire {_native.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="a script, with compressed gradients", description=RUN, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    run.add_argument("--plan", default="q8", help="what is sent, as gradwire.State takes it (default: q8)")
    run.add_argument("--profile", metavar="FILE", help="write there what iterations took, for gradwire plan --profile; best with --plan auto")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name, as of python -m")
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own")
    serve = commands.add_parser("serve", help="a parameter server", description=SERVE, formatter_class=argparse.RawDescriptionHelpFormatter)
    serve.add_argument("--listen", required=True, metavar="IP:PORT", help="where workers reach this server; [IP]:PORT for IPv6")
    serve.add_argument("--ranks", required=True, type=int, metavar="N", help="how many ranks train; the server is none of them")
    serve.add_argument("--token-file", required=True, metavar="FILE", help="the job's token; made if it is not there")
    serve.add_argument(
        "--timeout",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long to wait for workers at the start and in each exchange (default: 1800, as torch)",
    )
    serve.add_argument("--optimizer", choices=["sgd", "momentum", "adamw"], help="step here: torch.optim's SGD or AdamW")
    serve.add_argument("--lr", type=float, help="learning rate (needed by --optimizer)")
    serve.add_argument("--momentum", type=float, help="of --optimizer momentum (default: 0.9)")
    serve.add_argument("--weight-decay", type=float, help="default: 0, and 0.01 with adamw")
    serve.add_argument("--betas", type=float, nargs=2, metavar=("B1", "B2"), help="of adamw (default: 0.9 0.999)")
    serve.add_argument("--eps", type=float, help="of adamw (default: 1e-8)")
    serve.add_argument("--returns", choices=["weights", "deltas"], help="what --optimizer answers (default: weights)")
    serve.add_argument("--codec", help="of --returns deltas, as of plans (default: 3lc:1:1024)")
    serve.add_argument("--tls", action="store_true", help="encrypt connections, as workers with Link(tls=True), which all have the token's file")
    serve.add_argument("--streams", type=int, default=1, metavar="N", help="TCP streams of each connection, as Link(streams=N) (default: 1)")
    serve.add_argument("--relay", action="store_true", help="carry what workers send each other, as of Link(relay=True)")
    serve.add_argument("--json", action="store_true", help="end with one object that says what was exchanged")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return _run(run, arguments)
    if arguments.ranks < 1:
        serve.error(f"--ranks {arguments.ranks}: expected at least one")
    if arguments.optimizer and arguments.lr is None:
        serve.error("--optimizer needs --lr")
    # What is written has an effect or is refused, also if it is the default.
    optimizer = arguments.optimizer
    for option, used, of in (
        ("lr", optimizer, "--optimizer"),
        ("weight_decay", optimizer, "--optimizer"),
        ("returns", optimizer, "--optimizer"),
        ("momentum", optimizer == "momentum", "--optimizer momentum"),
        ("betas", optimizer == "adamw", "--optimizer adamw"),
        ("eps", optimizer == "adamw", "--optimizer adamw"),
        ("codec", arguments.returns == "deltas", "--returns deltas; without --optimizer, the workers' plan says the codec"),
    ):
        if getattr(arguments, option) is not None and not used:
            serve.error(f"--{option.replace('_', '-')} is of {of}")
    # Python's own handler runs only after the server has ended. Workers see its connections close.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        token = _token(arguments.token_file)
        returns = (arguments.codec or "3lc:1:1024") if arguments.returns == "deltas" else "weights"
        server = _native.Server(
            arguments.listen,
            arguments.ranks,
            token,
            arguments.timeout,
            _optimizer(arguments),
            returns,
            arguments.tls,
            arguments.streams,
            arguments.relay,
        )
        print(f"listening at {server.address} for {arguments.ranks} workers", file=sys.stderr, flush=True)
        served = server.run()
    except (_native.Error, OSError, ValueError) as error:
        print(f"python -m gradwire serve: {error}", file=sys.stderr)
        return 1
    names = ("exchanges", "values", "sent_bytes", "compute_s")
    report = {"ranks": arguments.ranks, **dict(zip(names, served))}
    if arguments.json:
        print(json.dumps(report))
    else:
        print(
            "served {ranks} workers: {exchanges} exchanges of {values} values, {sent_bytes} bytes sent, {compute_s:.3f} s of computing".format(
                **report
            )
        )
    return 0


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    from gradwire import _attach

    try:
        _attach.check_plan(arguments.plan)
    except (OSError, ValueError) as error:
        parser.error(f"--plan {arguments.plan}: {error}")
    sys.argv = [arguments.script, *arguments.arguments]

    def start() -> None:
        if arguments.module:
            runpy.run_module(arguments.script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(arguments.script))
            runpy.run_path(arguments.script, run_name="__main__")

    _attach.run(arguments.plan, start, arguments.profile)
    return 0


def _optimizer(arguments: argparse.Namespace) -> tuple[float, float, list[float]] | None:
    """Learning rate, weight decay, and the momentum of SGD or betas and epsilon of AdamW."""
    if not arguments.optimizer:
        return None
    if arguments.optimizer == "adamw":
        decay = 0.01
        numbers = [*(arguments.betas or (0.9, 0.999)), 1e-8 if arguments.eps is None else arguments.eps]
    elif arguments.optimizer == "momentum":
        decay, numbers = 0.0, [0.9 if arguments.momentum is None else arguments.momentum]
    else:
        decay, numbers = 0.0, [0.0]
    return arguments.lr, decay if arguments.weight_decay is None else arguments.weight_decay, numbers


def _token(path: str) -> str:
    """Returns the token of the file; if there is none, a new token that only its owner can read."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        with open(path, encoding="ascii") as there:
            return there.read().strip()
    token = _native.token()
    with open(file, "w", encoding="ascii") as new:
        new.write(token + "\n")
    return token


if __name__ == "__main__":
    sys.exit(main())
