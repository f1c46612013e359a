"""`python -m gradwire serve`: a parameter server. It needs no torch."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

from gradwire import _native

ABOUT = """\
A parameter server: it sums the gradients of all workers, and sends them the sums.

  python -m gradwire serve --listen 10.0.0.1:7000 --members 4 --token-file token

The token keeps strangers out. If there is no such file, it is made; copy it to the host of rank 0. There:

  GRADWIRE_TOKEN_FILE=token torchrun ... train.py

and in train.py:

  state = gradwire.State(gradwire.Link(), plan="3lc:1:1024", server="10.0.0.1:7000")
  ddp.register_comm_hook(state, gradwire.hook)

Workers say which codec: it codes what they send, and what they get. The server encodes each sum once, sends the same bytes to all,
and adds what these lost to the next sum. It serves one model of one job, and ends with it: with 0 if all workers left in order,
with 1 and the cause, which all workers are told too, if anything fails.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gradwire", description="Compressed gradient exchange for PyTorch.")
    parser.add_argument("--version", action="version", version=f"gradwire {_native.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="a parameter server", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    serve.add_argument("--listen", required=True, metavar="IP:PORT", help="where workers reach this server; [IP]:PORT for IPv6")
    serve.add_argument("--members", required=True, type=int, metavar="N", help="how many workers the job has")
    serve.add_argument("--token-file", required=True, metavar="FILE", help="the job's token; made if it is not there")
    serve.add_argument(
        "--timeout",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long to wait for workers at the start and in each exchange (default: 1800, as torch)",
    )
    serve.add_argument("--json", action="store_true", help="end with one object that says what was exchanged")
    arguments = parser.parse_args()
    if arguments.members < 1:
        serve.error(f"--members {arguments.members}: expected at least one")
    # Python's own handler runs only after the server has ended. Workers see its connections close.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        token = _token(arguments.token_file)
        server = _native.Server(arguments.listen, arguments.members, token, arguments.timeout)
        print(f"listening at {server.address} for {arguments.members} workers", file=sys.stderr, flush=True)
        served = server.run()
    except (_native.Error, OSError, ValueError) as error:
        print(f"python -m gradwire serve: {error}", file=sys.stderr)
        return 1
    names = ("exchanges", "values", "sent_bytes", "compute_s")
    report = {"members": arguments.members, **dict(zip(names, served))}
    if arguments.json:
        print(json.dumps(report))
    else:
        print(
            "served {members} workers: {exchanges} exchanges of {values} values, {sent_bytes} bytes sent, "
            "{compute_s:.3f} s of computing".format(**report)
        )
    return 0


def _token(path: str) -> str:
    """What the file has; if there is none, a new token that only its owner can read."""
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
