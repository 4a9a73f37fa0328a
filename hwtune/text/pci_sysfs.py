"""What the small files of a PCI function in sysfs print (Documentation/ABI/testing/sysfs-bus-pci)."""

from __future__ import annotations

from hwtune.text.number import finite, hexadecimal

# Speeds that exist: 2.5 to 64 GT/s, and 128 GT/s of the next generation.
_SPEEDS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


def is_address(name: str) -> bool:
    """Whether ``name`` is DDDD:BB:DD.F; a domain has four to eight digits (VMD and Hyper-V have
    more than four)."""
    domain, sign, rest = name.partition(":")
    if not sign or len(rest) != 7 or not 4 <= len(domain) <= 8:
        return False
    if rest[2] != ":" or rest[5] != "." or rest[6] not in "01234567":
        return False
    return all(c in "0123456789abcdef" for c in domain + rest[:2] + rest[3:5])


def is_host_bridge(name: str) -> bool:
    """Whether ``name`` is that of a root bus's folder, pciDDDD:BB."""
    domain, sign, bus = name[3:].partition(":")
    return (
        name.startswith("pci")
        and sign == ":"
        and len(bus) == 2
        and 4 <= len(domain) <= 8
        and all(c in "0123456789abcdef" for c in domain + bus)
    )


def place(path: str) -> tuple[str | None, str | None]:
    """(parent, root) of the function at the real path ``path``: the bridge above it, and the host
    bridge's name; (None, root) on a root bus, (None, None) where the path doesn't say."""
    parts = path.split("/")
    above = parts[-2] if len(parts) > 1 else ""
    root = next((part for part in reversed(parts[:-1]) if is_host_bridge(part)), None)
    if root is None:
        return None, None
    return (above if is_address(above) else None), root


def parse_hex(text: str) -> int:
    """ "0x10de". Raises ``ValueError``."""
    if not text.startswith("0x"):
        raise ValueError("no hexadecimal number")
    return hexadecimal(text)


def parse_speed(text: str) -> float:
    """GT/s of "8 GT/s", "8.0 GT/s" or "8.0 GT/s PCIe" (the kernel's spelling changed twice).
    Raises ``ValueError`` for "Unknown" and for what is no speed of PCIe."""
    number, _, unit = text.partition(" ")
    if not unit.startswith("GT/s"):
        raise ValueError("no speed")
    speed = finite(number)
    if speed not in _SPEEDS:
        raise ValueError("no speed of PCIe")
    return speed


def parse_width(text: str) -> int:
    """Lanes. Raises ``ValueError`` for 0 (no link), 63 (all ones: the device doesn't answer) and
    255 (PCIE_LNK_WIDTH_UNKNOWN), which mean that the width is not known."""
    width = int(text, 10)
    if width not in _WIDTHS:
        raise ValueError("no width of PCIe")
    return width


def parse_error_counts(text: str) -> dict[str, int]:
    """``aer_dev_*``: a name and a count a line. Names may hold blanks. Raises ``ValueError``."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        name, _, count = line.rpartition(" ")
        if not name:
            raise ValueError("no name and count")
        counts[name.strip()] = int(count, 10)
    if not counts:
        raise ValueError("no counts")
    return counts


def parse_resource(text: str) -> list[int]:
    """Sizes in bytes of the first six regions (the BARs) of ``resource``; 0 where there is none.
    Raises ``ValueError``."""
    sizes = []
    for line in text.splitlines()[:6]:
        start, end = (hexadecimal(word) for word in line.split()[:2])
        sizes.append(end - start + 1 if end > start else 0)
    return sizes


def parse_policy(text: str) -> str:
    """The word in brackets of "[default] performance powersave". Raises ``ValueError``."""
    for word in text.split():
        if word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    raise ValueError("no word in brackets")


def parse_uevent(text: str) -> dict[str, str]:
    """KEY=VALUE a line."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, sign, value in pairs if sign}
