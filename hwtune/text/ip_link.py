"""``ip link``, with or without ``-s`` (iproute2)."""

from __future__ import annotations

import re
from typing import NamedTuple

_HEAD = re.compile(
    r"\d{1,9}: ([^\s:@]{1,40})(@\S{1,40})?: <([A-Z0-9_,-]{0,300})> mtu (\d{1,9})(.*)$", re.ASCII
)
# heading -> column -> name in /sys/class/net/IF/statistics
_COLUMNS = {
    "RX": {
        "packets": "rx_packets",
        "bytes": "rx_bytes",
        "errors": "rx_errors",
        "dropped": "rx_dropped",
        "missed": "rx_missed_errors",
        "overrun": "rx_over_errors",
    },
    "TX": {
        "packets": "tx_packets",
        "bytes": "tx_bytes",
        "errors": "tx_errors",
        "dropped": "tx_dropped",
        "carrier": "tx_carrier_errors",
        "collsns": "collisions",
    },
    "RX errors": {
        "length": "rx_length_errors",
        "crc": "rx_crc_errors",
        "frame": "rx_frame_errors",
        "fifo": "rx_fifo_errors",
        "missed": "rx_missed_errors",
        "over": "rx_over_errors",
        "overrun": "rx_over_errors",
    },
    "TX errors": {"aborted": "tx_aborted_errors", "fifo": "tx_fifo_errors", "carrier": "tx_carrier_errors"},
}


class Interface(NamedTuple):
    name: str
    stacked: bool  # on another interface (eth0.5@eth0) or the end of a pair (veth1@if2)
    flags: list[str]  # UP, LOWER_UP, NO-CARRIER, MASTER, SLAVE ...
    mtu: int
    state: str  # as operstate, in lower case; "" where it does not say
    master: str  # the bond or bridge that it belongs to
    kind: str  # of its link layer: ether, loopback, infiniband ...
    statistics: dict[str, int]


def parse(text: str) -> list[Interface]:
    found: list[Interface] = []
    columns: list[str] | None = None
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            words = head[5].split()
            found.append(
                Interface(
                    head[1],
                    bool(head[2]),
                    head[3].split(","),
                    int(head[4]),
                    _after(words, "state").lower(),
                    _after(words, "master"),
                    "",
                    {},
                )
            )
            columns = None
        elif found:
            columns = _detail(line.strip(), found, columns)
    return found


def _detail(line: str, found: list[Interface], columns: list[str] | None) -> list[str] | None:
    """Take a line below an interface's first; the names of the columns in the next one."""
    heading, colon, rest = line.partition(":")
    if colon and heading in _COLUMNS:
        return [_COLUMNS[heading].get(word, "") for word in rest.split()]
    if columns:
        for name, word in zip(columns, line.split(), strict=False):
            if name and word.isascii() and word.isdecimal() and len(word) < 20:
                found[-1].statistics[name] = int(word)
    elif line.startswith("link/"):
        found[-1] = found[-1]._replace(kind=line[5:].split(" ", 1)[0])
    return None


def _after(words: list[str], key: str) -> str:
    place = words.index(key) + 1 if key in words else len(words)
    return words[place] if place < len(words) else ""
