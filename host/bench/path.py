"""A long path between two hosts: how much of its rate an exchange uses. Needs root, and Debian's torch or a newer one.

  python path.py --mbit 500 --rtt 150 --link streams=1 --link streams=4 --link streams=4,tls

Two network namespaces have a TUN device each, with `tbf` as the rate. Between the devices, two processes of this program carry
packets, one in each direction, and keep each packet for half of the round trip: many kernels have no `netem`. Each link exchanges
the same values as f32 several times, in turn with the others. Its figure is the median of what the wire carried in one direction, in
bits of payload, to what it could carry meanwhile; with --raw, first that of one plain TCP connection, whose bytes go in one direction.

The tensor is in 32 parts, so that parts flow while others are summed. The first and the last of them still wait for the path: so the
figure depends on the values.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import fcntl
import json
import multiprocessing
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ADDRESSES = ["10.78.0.1", "10.78.0.2"]
MTU = 1500
BUFFERS = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}
PLAN = 'strategy = "ring"\ncodec = "f32"\npartitions = 32\n'
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x0001, 0x1000, 0x4000
TUNSETOFFLOAD, TUN_F_CSUM, TUN_F_TSO4 = 0x400454D0, 1, 2
CONTEXT = multiprocessing.get_context("fork")


def command(*words: str) -> None:
    subprocess.run(words, check=True)


def enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def carry(near: int, far: int, delay_s: float) -> None:
    """Carries packets from one device to the other, each so much later than it came."""
    os.set_blocking(near, False)
    waiting: collections.deque[tuple[float, bytes]] = collections.deque()
    poll = select.poll()
    poll.register(near, select.POLLIN)
    now = time.monotonic
    while True:
        while waiting and waiting[0][0] <= now():
            os.write(far, waiting.popleft()[1])
        poll.poll(max(0.0, waiting[0][0] - now()) * 1000 if waiting else None)
        try:
            # Not so many that others have to wait for them.
            for _ in range(32):
                waiting.append((now() + delay_s, os.read(near, 70_000)))
        except BlockingIOError:
            pass


class Path:
    """Two namespaces with a path of this rate and round trip between them."""

    def __init__(self, mbit: float, rtt_s: float, congestion: str) -> None:
        self.mbit, self.rtt_s, self.congestion = mbit, rtt_s, congestion
        self.names = [f"gwpath{os.getpid()}h{host}" for host in range(2)]
        self.made: list[str] = []
        self.carriers: list[multiprocessing.process.BaseProcess] = []

    def __enter__(self) -> Path:
        try:
            devices = [self._host(*host) for host in zip(self.names, ADDRESSES, reversed(ADDRESSES))]
            for near, far in (devices, reversed(devices)):
                carrier = CONTEXT.Process(target=carry, args=(near, far, self.rtt_s / 2), daemon=True)
                carrier.start()
                self.carriers.append(carrier)
            for device in devices:
                os.close(device)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _host(self, name: str, own: str, other: str) -> int:
        command("ip", "netns", "add", name)
        self.made.append(name)
        receive, send = socket.socketpair()

        def make() -> None:
            enter(name)
            device = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22s", b"path0", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, b""))
            # Segments of one connection come together, as a card takes them: the program carries
            # fewer, and `tbf` counts each.
            fcntl.ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
            socket.send_fds(send, [b"x"], [device])

        # A namespace is a thread's, and this process stays where it is.
        maker = CONTEXT.Process(target=make)
        maker.start()
        device = socket.recv_fds(receive, 1, 1)[1][0]
        maker.join()
        command("ip", "-n", name, "address", "add", own, "peer", other, "dev", "path0")
        command("ip", "-n", name, "link", "set", "path0", "mtu", str(MTU), "txqueuelen", "10000", "up")
        command("ip", "-n", name, "link", "set", "lo", "up")
        # The defaults of Linux, whatever this machine has.
        for name_of, value in BUFFERS.items():
            command("ip", "netns", "exec", name, "sysctl", "-q", "-w", f"{name_of}={value}")
        # In a namespace, the system's setting may be only one of those that all users may take.
        command("ip", "-n", name, "route", "replace", other, "dev", "path0", "src", own, "congctl", self.congestion)
        # As much as the path itself holds waits before anything is lost.
        buffer = f"{max(self.rtt_s, 0.02) * 1000:.0f}ms"
        command(*f"tc -n {name} qdisc add dev path0 root tbf rate {self.mbit:g}mbit burst 128kb latency {buffer}".split())
        return device

    def __exit__(self, *_: object) -> None:
        for carrier in self.carriers:
            carrier.kill()
            carrier.join()
        for name in self.made:
            command("ip", "netns", "delete", name)

    def run(self, function, *args):
        """Runs `function(host, *args)` at both hosts, and returns what each returns."""
        pipes = []
        for host, name in enumerate(self.names):
            receive, send = CONTEXT.Pipe(duplex=False)
            CONTEXT.Process(target=_at, args=(name, send, function, host, args)).start()
            send.close()
            pipes.append(receive)
        return [pipe.recv() for pipe in pipes]


def _at(name, send, function, *args) -> None:
    enter(name)
    host, args = args
    send.send(function(host, *args))


def raw(host: int, bytes_: int) -> float | None:
    """One TCP connection as the system makes it: seconds for so many bytes, after as many that open its window."""
    block = bytes(1 << 20)
    with socket.socket() as sock:
        if host == 0:
            sock.bind((ADDRESSES[0], 7000))
            sock.listen()
            with sock.accept()[0] as peer:
                for _ in range(2):
                    left, first = bytes_, None
                    while left > 0:
                        left -= len(peer.recv(1 << 20, 0) or sys.exit("the connection ended"))
                        first = first or time.monotonic()
                    seconds = time.monotonic() - first
            return seconds
        while True:
            try:
                sock.connect((ADDRESSES[0], 7000))
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        for _ in range(2 * bytes_ // len(block) + 1):
            sock.sendall(block)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        return None


def exchanges(host: int, links: list[dict], token: str, values: int, warm: int, rounds: int) -> list[list[float]]:
    """Seconds of exchanges, by link."""
    import ipaddress

    import torch
    from gradwire import _native

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(PLAN)
        file.flush()
        plan = _native.Plan.load(file.name)
    layout = _native.Layout([("a", values, 1)])
    root = ipaddress.ip_address(ADDRESSES[0])
    seconds = []
    for number, link in enumerate(links):
        listening = _native.Listening(token, 600.0, None, root, False, **link)
        port = listening.port
        # The ranks' ports are not known to each other, so the path carries rank 0's.
        with socket.socket() as sock:
            if host == 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((ADDRESSES[0], 7001 + number))
                sock.listen()
                with sock.accept()[0] as peer:
                    peer.sendall(struct.pack("!H", port))
            else:
                while sock.connect_ex((ADDRESSES[0], 7001 + number)):
                    time.sleep(0.1)
                port = struct.unpack("!H", sock.recv(2))[0]
        channel = listening.join(host, 2, root, port)
        tensor = torch.arange(values, dtype=torch.float32)
        took = [channel.exchange(tensor, layout, plan, False)[0] for _ in range(warm + rounds)]
        channel.close()
        seconds.append(took[warm:])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, default=500)
    parser.add_argument("--rtt", type=float, default=150, metavar="MS")
    parser.add_argument("--values", type=int, default=64_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2, metavar="N", help="exchanges before those, which open TCP's windows (default: 2)")
    parser.add_argument("--link", action="append", metavar="streams=N,tls", help="a link to measure; may be given several times")
    parser.add_argument("--congestion", default="cubic", help="congestion control (default: cubic)")
    parser.add_argument("--raw", action="store_true", help="measure one plain TCP connection, too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    texts = arguments.link or ["streams=1"]
    links = []
    for text in texts:
        link: dict[str, bool | int] = {}
        for word in text.split(","):
            name, _, value = word.partition("=")
            link[name] = int(value) if value else True
        links.append(link)
    rows = {}
    with Path(arguments.mbit, arguments.rtt / 1000, arguments.congestion) as path:
        if arguments.raw:
            bytes_ = 4 * arguments.values
            seconds = path.run(raw, bytes_)[0]
            rows["one TCP connection"] = [8e-6 * bytes_ / seconds]
        token = os.urandom(32).hex()
        took = path.run(exchanges, links, token, arguments.values, arguments.warm, arguments.rounds)
        for text, *seconds in zip(texts, *took):
            # Each rank sends all values once: half of them to be summed, and half of the sums. A
            # rank may begin after the other one.
            rows[text] = [8e-6 * 4 * arguments.values / max(both) for both in zip(*seconds)]
    if arguments.json:
        print(json.dumps({"mbit": arguments.mbit, "rtt_ms": arguments.rtt, "values": arguments.values, "rows": rows}))
    for text, rates in rows.items():
        rate = statistics.median(rates)
        print(f"{text:24} {rate:7.1f} Mbit/s, {rate / arguments.mbit:5.1%} of the path; {min(rates):.1f} to {max(rates):.1f}")


if __name__ == "__main__":
    main()
