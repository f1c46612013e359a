"""Where members of a job reach each other."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import Union

IP = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


def own(told: str | None) -> IP:
    """Where other members reach this host: what was `told`, the interface's, or that of the way to the master."""
    if told:
        return _resolved(told)
    if name := os.environ.get("GRADWIRE_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME"):
        return _interface(name)
    master = _resolved(os.environ.get("MASTER_ADDR") or "127.0.0.1")
    with socket.socket(socket.AF_INET if master.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the system only chooses the way.
        probe.connect((str(master), 9))
        return ipaddress.ip_address(probe.getsockname()[0])


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
