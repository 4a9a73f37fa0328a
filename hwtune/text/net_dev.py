"""/proc/net/dev (net/core/net-procfs.c), which adds some counters up."""

from __future__ import annotations

_RECEIVE = (
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "drop",
    "rx_fifo_errors",
    "frame",
    "rx_compressed",
    "multicast",
)
_TRANSMIT = ("tx_bytes", "tx_packets", "tx_errors", "tx_dropped", "tx_fifo_errors", "collisions")
# the sums, and what is in them
_SUMS = {
    "drop": ("rx_dropped", "rx_missed_errors"),
    "frame": ("rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
}


def parse(text: str) -> dict[str, dict[str, int]]:
    """Interface -> counters by their names in /sys/class/net/IF/statistics.

    Parts of a sum are known where the sum is 0, and left out otherwise. Raises ``ValueError``
    for anything else.
    """
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        name, colon, rest = line.rpartition(":")
        if not colon or "|" in line:
            continue
        numbers = [int(word) for word in rest.split()]
        values = dict(zip((*_RECEIVE, *_TRANSMIT), numbers, strict=False))
        if len(values) < len(_RECEIVE) + len(_TRANSMIT):
            raise ValueError("too few columns")
        for total, parts in _SUMS.items():
            if values.pop(total) == 0:
                values.update(dict.fromkeys(parts, 0))
        found[name.strip()] = values
    if not found:
        raise ValueError("no interface in it")
    return found


def received(text: str) -> int:
    """Packets that all interfaces have received. Raises ``ValueError`` for anything else."""
    lines = [line.rpartition(":")[2].split(None, 2) for line in text.splitlines() if ":" in line]
    if not lines or any(len(words) < 2 for words in lines):
        raise ValueError("no interface in it")
    return sum(int(words[1]) for words in lines)
