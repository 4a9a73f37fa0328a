"""Names of kernel addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.tracing.tracefs import Tracefs

KALLSYMS = "/proc/kallsyms"


def functions(addresses: Iterable[int], path: str = KALLSYMS) -> dict[int, str]:
    """Names of the functions that begin at these addresses, as far as the kernel tells them: not to every
    user, and with kernel.kptr_restrict=2 to nobody."""
    wanted = {f"{address & (1 << 64) - 1:016x}": address for address in addresses if address}
    found: dict[int, str] = {}
    if not wanted:
        return found
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                address = wanted.get(line[:16])
                if address is not None and address not in found:
                    words = line.split()
                    # a module's own have its name behind them; labels within functions are of no use
                    if len(words) >= 3 and words[1] in "tTwW":
                        found[address] = words[2]
    except OSError:
        return found
    return found


def strings(tracefs: Tracefs) -> dict[int, str]:
    """The kernel's texts that its records hold the address of (printk_formats)."""
    found: dict[int, str] = {}
    try:
        lines = tracefs.read("printk_formats").splitlines()
    except OSError:
        return found
    for line in lines:
        address, _, text = line.partition(" : ")
        try:
            found[int(address, 16)] = text.strip().strip('"')
        except ValueError:
            continue
    return found
