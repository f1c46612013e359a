"""Untagged traffic in a guest, every byte of which is judged.

traffic.py serve                            takes streams, and answers each with its hash, until it is killed
traffic.py send ADDRESS BYTES SEED          sends a stream of random bytes; fails if another hash comes back, or nothing for a minute
traffic.py receive FIRST LAST SEED SECONDS  waits for a frame of each length on eth0; fails with the lengths that did not come
traffic.py frames FIRST LAST SEED MAC       sends frames of all lengths on eth0, round after round, until it is killed
"""

import hashlib
import random
import socket
import struct
import sys
import threading
import time

PORT = 5290
# A local experimental EtherType (IEEE 802): nothing but these programs takes such frames.
ETHERTYPE = 0x88B5
# How long a stream may stand still. TCP by itself pauses for some seconds if it loses segments.
STALLED = 60


def exactly(stream: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise SystemExit(f"the stream ended after {len(data)} of {count} bytes")
        data += part
    return data


def answer(stream: socket.socket) -> None:
    stream.settimeout(STALLED)
    (left,) = struct.unpack("!Q", exactly(stream, 8))
    seen = hashlib.sha256()
    while left:
        part = stream.recv(min(left, 1 << 16))
        if not part:
            return
        seen.update(part)
        left -= len(part)
    stream.sendall(seen.digest())


def serve() -> None:
    # One socket for IPv4 and IPv6.
    listener = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=answer, args=(stream,), daemon=True).start()


def send(address: str, count: int, seed: int) -> None:
    data, start, sent = random.Random(seed).randbytes(count), time.monotonic(), 0
    try:
        # Its listener starts at the same time.
        while True:
            try:
                stream = socket.create_connection((address, PORT), timeout=STALLED)
                break
            except ConnectionRefusedError:
                if time.monotonic() - start > STALLED:
                    raise
                time.sleep(0.2)
        stream.sendall(struct.pack("!Q", count))
        while sent < count:
            sent += stream.send(data[sent : sent + (1 << 16)])
        seen = exactly(stream, 32)
    except OSError as error:
        raise SystemExit(f"untagged stream to {address}: {error} after {sent} of {count} bytes left the program")
    if seen != hashlib.sha256(data).digest():
        raise SystemExit(f"untagged stream to {address}: other bytes arrived")
    print(f"{time.monotonic() - start:.3f}")


def frame(length: int, seed: int, to: bytes, sender: bytes) -> bytes:
    """A frame of a length (without its checksum) that says its length, and random bytes behind that."""
    head = to + sender + struct.pack("!HH", ETHERTYPE, length)
    return head + random.Random(seed << 16 | length).randbytes(length - len(head))


def raw() -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    packets.bind(("eth0", ETHERTYPE))
    return packets


def receive(first: int, last: int, seed: int, seconds: int) -> None:
    packets, missing, wrong = raw(), set(range(first, last + 1)), set()
    packets.settimeout(1)
    deadline = time.monotonic() + seconds
    while missing and time.monotonic() < deadline:
        try:
            got = packets.recv(1 << 16)
        except TimeoutError:
            continue
        (length,) = struct.unpack_from("!H", got, 14)
        if got != frame(length, seed, got[:6], got[6:12]):
            wrong.add(length)
        missing.discard(length)
    if wrong:
        raise SystemExit(f"frames of other bytes arrived: {ranges(wrong)}")
    if missing:
        raise SystemExit(f"frames of these lengths did not arrive in {seconds} s: {ranges(missing)}")


def ranges(numbers: set[int]) -> str:
    """Numbers as ranges: 3-5, 8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in parts)


def frames(first: int, last: int, seed: int, mac: str) -> None:
    packets, to = raw(), bytes.fromhex(mac.replace(":", ""))
    sender = packets.getsockname()[4]
    while True:
        for length in range(first, last + 1):
            try:
                packets.send(frame(length, seed, to, sender))
            except OSError as error:
                # The queue of the interface is full.
                if error.errno != 105:
                    raise
                time.sleep(0.1)
        time.sleep(0.5)


def main() -> None:
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["send", address, count, seed]:
            send(address, int(count), int(seed))
        case ["receive", first, last, seed, seconds]:
            receive(int(first), int(last), int(seed), int(seconds))
        case ["frames", first, last, seed, mac]:
            frames(int(first), int(last), int(seed), mac)
        case _:
            raise SystemExit(__doc__)


main()
