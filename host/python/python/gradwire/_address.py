"""Addresses at which ranks of a job reach each other."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import Union

IP = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


REMEDY = (
    "at rank 0, set GRADWIRE_IFNAME or GLOO_SOCKET_IFNAME to the interface that other hosts reach, MASTER_ADDR to its address, "
    "or give Link(address=...)"
)
REMEDY_OF_SERVER = "give State(server=...) an address that all hosts reach"


def own(advertised: str | None) -> tuple[IP, str]:
    """Returns the address at which other ranks reach this host, and what says so: the link's argument, a variable, or the way to the master."""
    if advertised:
        return _resolved(advertised), f"Link(address={advertised!r})"
    for variable in ("GRADWIRE_IFNAME", "GLOO_SOCKET_IFNAME"):
        if names := os.environ.get(variable):
            return _first_interface(names), f"{variable}={names}"
    name = os.environ.get("MASTER_ADDR")
    master = _resolved(name or "127.0.0.1")
    with socket.socket(socket.AF_INET if master.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the system only chooses the way.
        probe.connect((str(master), 9))
        address = ipaddress.ip_address(probe.getsockname()[0])
    return address, f"from the way to MASTER_ADDR={name}, which is {master} there" if name else "since MASTER_ADDR is not set"


def network() -> str:
    """Returns what processes have in common if a loopback address is the same to them: the kernel that runs, and the network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def unreachable(address: IP, networks: list[str], hosts: list[str]) -> str | None:
    """Returns what is wrong if rank 0 advertises this address; `networks` and `hosts` are the ranks'."""
    others = [rank for rank, network in enumerate(networks) if network != networks[0]]
    if not others or not (address.is_loopback or address.is_unspecified):
        return None
    ranks, more = ", ".join(map(str, others[:8])), f" and {len(others) - 8} more" if len(others) > 8 else ""
    names = ", ".join(sorted({hosts[rank] for rank in others})[:8])
    return f"only its own host, {hosts[0]}, reaches that: not rank {ranks}{more}, at {names}"


def server(at: str) -> tuple[IP, int]:
    host, colon, port = at.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"server {at!r}: expected HOST:PORT, or [IP]:PORT for IPv6")
    return _resolved(host.strip("[]")), int(port)


def _resolved(host: str) -> IP:
    try:
        # The first is the one that the system prefers.
        return ipaddress.ip_address(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise OSError(f"host {host!r} has no address: {error}") from None


def _first_interface(names: str) -> IP:
    """The address of the first that has one. Torch documents GLOO_SOCKET_IFNAME as a list with commas."""
    wrong = []
    for name in filter(None, map(str.strip, names.split(","))):
        try:
            return _interface(name)
        except OSError as error:
            wrong.append(str(error))
    raise OSError("; ".join(wrong) or f"{names!r} names no interface")


def _interface(name: str) -> IP:
    """Its IPv4 address; if it has none, one of IPv6 that other hosts reach."""
    import fcntl

    siocgifaddr = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), siocgifaddr, struct.pack("256s", name.encode()[:15]))
            return ipaddress.IPv4Address(answer[20:24])
        except OSError as error:
            wrong = error
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            # Address, index, length of the prefix, scope, flags, name.
            rows = [line.split() for line in file]
    except FileNotFoundError:  # a system without IPv6
        rows = []
    addresses = [ipaddress.IPv6Address(bytes.fromhex(row[0])) for row in rows if row[5] == name]
    for address in addresses:
        # A link-local one says nothing without an interface's number, which differs by host.
        if not address.is_link_local:
            return address
    raise OSError(f"interface {name!r} has no IPv4 address, and none of IPv6 but link-local ones: {wrong}")
