"""Hosts that name themselves as Debian's do: two network namespaces, each of which resolves its own name to 127.0.1.1. Needs root."""

import ctypes
import os
import socket
import subprocess
import tempfile

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


def _ip(*words):
    subprocess.run(["ip", *words], check=True)


class Hosts:
    """`host0` and `host1`, whose interfaces eth0 are the ends of one wire. As a context, it says what `enter` takes, by host."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.names = [f"gwp{os.getpid()}h{host}" for host in range(2)]
        self.made = []

    def __enter__(self):
        try:
            for host, name in enumerate(self.names):
                _ip("netns", "add", name)
                self.made.append(name)
                lines = ["127.0.0.1 localhost", f"127.0.1.1 host{host}", f"{ADDRESSES[1 - host]} host{1 - host}"]
                with open(self.resolver(host), "w") as file:
                    file.write("\n".join(lines) + "\n")
            _ip("link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
            for address, name in zip(ADDRESSES, self.names):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
                for interface in ("lo", "eth0"):
                    _ip("-n", name, "link", "set", interface, "up")
        except BaseException:
            self.__exit__()
            raise
        return [(f"/run/netns/{name}", self.resolver(host), f"host{host}") for host, name in enumerate(self.names)]

    def resolver(self, host):
        return os.path.join(self.folder.name, f"hosts{host}")

    def __exit__(self, *_):
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], check=True)
        self.folder.cleanup()


def enter(namespace, resolver, name):
    """Puts a process onto a host: for good, and before it has other threads."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function, *args):
        if function(*args):
            raise OSError(ctypes.get_errno(), function.__name__)

    with open(namespace) as file:
        call(libc.setns, file.fileno(), CLONE_NEWNET)
    call(libc.unshare, CLONE_NEWNS | CLONE_NEWUTS)
    call(libc.mount, None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    call(libc.mount, resolver.encode(), b"/etc/hosts", None, ctypes.c_ulong(MS_BIND), None)
    socket.sethostname(name)
