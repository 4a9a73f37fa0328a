"""The kernel's configuration: of its some 10,000 options, those of which rows ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, NOT_PROBED, Fact, gap

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
_PACKED = "/proc/config.gz"
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
    here = host.exists(_PACKED)
    if not here.known:
        return Fact(None, here.source, here.gap, here.detail)
    if not here.get():
        return gap(ABSENT, _PACKED) if first is None else Fact(None, first.source, first.gap, first.detail)
    if not unpack:
        return gap(NOT_PROBED, _PACKED, "no boot argument asks for it")
    return host.read_bytes(_PACKED).map(_unpack)


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
