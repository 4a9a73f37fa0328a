"""Hold a CPU latency request open until told to end: ``python -m hwtune.changes.hold_latency US``.

A write of exactly four bytes is a binary number, any other is text in hexadecimal (kernel/power/qos.c,
cpu_latency_qos_write), so that it has to be one write of a packed integer.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys

DEVICE = "/dev/cpu_dma_latency"
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def hold(microseconds: int, device: str = DEVICE) -> None:
    """Return when a signal asks for the end; the kernel drops the request as the file closes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.write(descriptor, struct.pack("=i", microseconds))
        _ready()
        signal.sigwait(_ENDING)
    finally:
        os.close(descriptor)


def _ready() -> None:
    """Tell systemd that the request is in force (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        handle.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)


def main() -> int:
    try:
        microseconds = int(sys.argv[1])
        if not 0 <= microseconds < 1 << 31:
            raise ValueError
    except (IndexError, ValueError):
        print("usage: python -m hwtune.changes.hold_latency MICROSECONDS", file=sys.stderr)
        return 2
    try:
        hold(microseconds)
    except OSError as error:
        print(f"<3>hwtune: {error.filename or DEVICE}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
