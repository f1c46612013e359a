"""The profile of a run: what its exchanges and its computing took, for `gradwire plan --profile`."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Hashable, Iterable

from gradwire._native import Error

REMEDY = (
    "train a few more iterations, with plan 'auto' or with more buckets (bucket_cap_mb), or give gradwire plan --bandwidth and --latency; "
    "gradwire plan profile --connect measures a link, too"
)
FAR = 1e12
"""Bytes, more than any message has."""
RECENT = 1000
"""Iterations whose computing is remembered."""


def curve(exchanges: Iterable[tuple[int, int, float]]) -> list[tuple[float, float]]:
    """Returns bytes and seconds of a message, from messages, bytes and seconds of exchanges; Error if all had messages of one size.

    What a rank sends in a ring, or among servers, leaves one message after the other. Messages of up to twice a size are one point, by the
    medians. An empty message takes as long as the smallest of them; more bytes take no less. Beyond the largest, bytes take what they do
    from a quarter of it on: two points beside each other may be disturbed.
    """
    sizes: dict[int, list[tuple[float, float]]] = {}
    for messages, sent, seconds in exchanges:
        sizes.setdefault((sent // messages).bit_length(), []).append((sent / messages, seconds / messages))
    points = sorted((statistics.median(size for size, _ in each), statistics.median(took for _, took in each)) for each in sizes.values())
    if len(points) < 2:
        raise Error(f"exchanges had messages of {len(points)} sizes, which do not tell what a message and what its bytes take: {REMEDY}")
    for at in range(len(points) - 1, 0, -1):
        points[at - 1] = (points[at - 1][0], min(points[at - 1][1], points[at][1]))
    size, took = points[-1]
    base_size, base_took = next((point for point in reversed(points) if 4 * point[0] <= size), points[0])
    far = (FAR, took + (FAR - size) * (took - base_took) / (size - base_size))
    return [(0.0, points[0][1]), *points, far]


class Profile:
    """What a run took so far, at this rank."""

    def __init__(self) -> None:
        # By plan and bucket, messages, bytes and the least seconds without coding: a rank that
        # comes later makes others wait.
        self._exchanges: dict[Hashable, tuple[int, int, float]] = {}
        # Seconds of iterations until the first bucket, and from then to the last one.
        self._until_first = collections.deque[float](maxlen=RECENT)
        self._until_last = collections.deque[float](maxlen=RECENT)
        self._first = self._ended = 0.0

    def submitted(self, first: bool, last: bool) -> None:
        """A bucket is there: the first or the last of its iteration, or another."""
        now = time.monotonic()
        if first:
            self._first = now
        if last and self._ended:
            self._until_first.append(self._first - self._ended)
            self._until_last.append(now - self._first)

    def exchanged(self, kind: Hashable, messages: int, sent_bytes: int, seconds: float, last: bool) -> None:
        """A bucket was exchanged, in so many seconds without coding."""
        before = self._exchanges.get(kind)
        if messages and seconds > 0 and (before is None or seconds < before[2]):
            self._exchanges[kind] = (messages, sent_bytes, seconds)
        if last:
            self._ended = time.monotonic()

    def toml(self, made: str) -> str:
        """Returns the text of a profile; `made` says of what. Error if too little was exchanged to say."""
        if not self._until_first:
            raise Error(f"no two iterations were exchanged yet: {REMEDY}")
        points = curve(self._exchanges.values())
        times = [statistics.median(each) for each in (self._until_first, self._until_last)]
        return (
            f"# {made}\nsend = {[list(point) for point in points]}\n\n"
            "# Until the first bucket was there, and from then to the last one.\n"
            f"[compute]\nforward = {times[0]!r}\nbackward = {times[1]!r}\n"
        )
