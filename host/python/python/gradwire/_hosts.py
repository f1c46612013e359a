"""Groups of ranks by their hosts, for plans `hierarchy:hosts:CODEC`."""

from __future__ import annotations

import os
import socket

from gradwire._native import Error

BY_HOST = "hierarchy:hosts:"
"""Begins a plan whose groups are the ranks of a host."""


def this_host() -> str:
    """Returns the name that tells this host from others."""
    return os.environ.get("GRADWIRE_HOST") or socket.gethostname()


def ranks_by_host(hosts: list[str]) -> list[list[int]]:
    """Returns the ranks of each host, equally many. `hosts` has each rank's."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    if len({len(ranks) for ranks in found.values()}) > 1:
        raise Error(
            f"ranks are on hosts {', '.join(hosts)}: over a process group, {BY_HOST} needs equally many on each; start ranks so, or leave it out"
        )
    return list(found.values())


def ranks_a_host(hosts: list[str]) -> int:
    """Returns the number of ranks on each host; the last may have fewer. `hosts` has each rank's."""
    size = next((rank for rank, host in enumerate(hosts) if host != hosts[0]), len(hosts))
    groups = [hosts[first : first + size] for first in range(0, len(hosts), size)]
    if any(len(set(group)) > 1 for group in groups) or len({group[0] for group in groups}) < len(groups):
        raise Error(
            f"ranks are on hosts {', '.join(hosts)}: {BY_HOST} needs neighbouring ranks on each host, equally many on all but the last; "
            "start ranks so, or group them by hierarchy:GROUP:"
        )
    return size
