"""The kernel's configuration: of its some 10,000 options, those of which rows ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap

if TYPE_CHECKING:
    from hwtune.host.base import Host

OPTIONS = (
    "CONFIG_CPU_ISOLATION",
    "CONFIG_HZ",
    "CONFIG_NO_HZ_FULL",
    "CONFIG_PREEMPT",
    "CONFIG_PREEMPT_DYNAMIC",
    "CONFIG_PREEMPT_LAZY",
    "CONFIG_PREEMPT_NONE",
    "CONFIG_PREEMPT_RT",
    "CONFIG_PREEMPT_VOLUNTARY",
    "CONFIG_RCU_NOCB_CPU",
    "CONFIG_RT_GROUP_SCHED",
    "CONFIG_XDP_SOCKETS",
)
_LIMIT = 4 << 20


def read(host: Host, release: Fact[str], *, unpack: bool) -> Fact[dict[str, str]]:
    """Option -> y, m, n or its value. ``unpack``: whether it is worth some milliseconds to unpack
    /proc/config.gz where no distribution's file lies beside the kernel."""
    first: Fact[bytes] | None = None
    if release.known and "/" not in release.get():
        for path in (f"/boot/config-{release.get()}", f"/lib/modules/{release.get()}/config"):
            content = host.read_bytes(path, _LIMIT)
            if content.known:
                return content.map(parse)
            first = first or content
    if not unpack:
        return _gap(first, "/proc/config.gz")
    packed = host.read_bytes("/proc/config.gz")
    if packed.known:
        return packed.map(_unpack)
    return (
        _gap(first, packed.source) if packed.absent else Fact(None, packed.source, packed.gap, packed.detail)
    )


def _gap(first: Fact[bytes] | None, source: str) -> Fact[dict[str, str]]:
    if first is None:
        return gap(ABSENT, source)
    return Fact(None, first.source, first.gap, first.detail)


def _unpack(packed: bytes) -> dict[str, str]:
    import zlib

    try:
        machine = zlib.decompressobj(wbits=31)
        content = machine.decompress(packed, _LIMIT)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    return parse(content)


def parse(content: bytes) -> dict[str, str]:
    """Raises ``ValueError`` for what is no kernel configuration."""
    if b"CONFIG_" not in content:
        raise ValueError("not a kernel's configuration")
    text = b"\n" + content
    found: dict[str, str] = {}
    for option in OPTIONS:
        at = text.find(b"\n" + option.encode() + b"=")
        if at >= 0:
            line = text[at + 1 : at + 200].partition(b"\n")[0]
            found[option] = line.partition(b"=")[2].decode("utf-8", "replace").strip().strip('"')
        else:
            found[option] = "n"
    return found
