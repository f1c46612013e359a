"""Groups of ranks by their hosts, for the plan `hierarchy:hosts:CODEC`."""

from __future__ import annotations

from gradwire._native import Error

BY_HOST = "hierarchy:hosts:"
"""Begins a plan whose groups are the ranks of a host."""


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
