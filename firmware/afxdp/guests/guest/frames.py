"""Untagged Ethernet frames of every length, every byte of which is checked.

frames.py receive FIRST LAST SECONDS  waits for a frame of each length on eth0; fails with the lengths that did not come
frames.py send FIRST LAST MAC         sends frames of all lengths on eth0, round after round, until it is killed
"""

# Neither `socket` nor `random`: an emulated guest needs ten seconds to import what they import.
import _socket as socket
import sys
import time

# A local experimental EtherType (IEEE 802): nothing but this program takes such frames.
ETHERTYPE = 0x88B5


# No piece of it repeats within a frame, nor at the same place of the next longer one.
BYTES = bytes((i * 167 + (i >> 8) * 31) & 255 for i in range(1 << 13))


def frame(length: int, to: bytes, sender: bytes) -> bytes:
    """A frame of a length (without its checksum) that says its length, and bytes behind that which the length decides."""
    head = to + sender + ETHERTYPE.to_bytes(2, "big") + length.to_bytes(2, "big")
    return head + BYTES[length : 2 * length - len(head)]


def raw() -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    packets.bind(("eth0", ETHERTYPE))
    return packets


def receive(first: int, last: int, seconds: int) -> None:
    packets, missing, wrong = raw(), set(range(first, last + 1)), set()
    packets.settimeout(1)
    deadline = time.monotonic() + seconds
    while missing and time.monotonic() < deadline:
        try:
            got = packets.recv(1 << 16)
        except TimeoutError:
            continue
        length = int.from_bytes(got[14:16], "big")
        if got == frame(length, got[:6], got[6:12]):
            missing.discard(length)
        else:
            wrong.add(length)
    failures = [f"frames of {len(wrong)} lengths arrived with other bytes: {ranges(wrong)}"] if wrong else []
    failures += [f"frames of {len(missing)} lengths did not arrive in {seconds} s: {ranges(missing)}"] if missing else []
    if failures:
        raise SystemExit("; ".join(failures))


def ranges(numbers: set[int]) -> str:
    """Numbers as ranges: 3-5, 8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in parts)


def send(first: int, last: int, mac: str) -> None:
    packets, to = raw(), bytes.fromhex(mac.replace(":", ""))
    sender = packets.getsockname()[4]
    while True:
        for length in range(first, last + 1):
            try:
                packets.send(frame(length, to, sender))
            except OSError as error:
                # The queue of the interface is full.
                if error.errno != 105:
                    raise
                time.sleep(0.1)
        time.sleep(0.5)


def main() -> None:
    match sys.argv[1:]:
        case ["receive", first, last, seconds]:
            receive(int(first), int(last), int(seconds))
        case ["send", first, last, mac]:
            send(int(first), int(last), mac)
        case _:
            raise SystemExit(__doc__)


main()
