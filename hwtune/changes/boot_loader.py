"""Which boot loader hands the kernel its arguments, and what arguments it can be told."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hwtune.changes.system import ChangeError
from hwtune.text import cmdline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hwtune.changes.system import System

GRUB = "grub"  # of Debian and its kin: a drop-in of our own
GRUBBY = "grubby"
SYSTEMD_BOOT = "systemd-boot"
OSTREE = "rpm-ostree"

MKCONFIG = "/usr/sbin/grub-mkconfig"
_GRUBBY = ("/usr/sbin/grubby", "/sbin/grubby")
# What GRUB's own language, the shells in front of it and grubby all leave as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=@%+/~^!-]+", re.ASCII)
# Pages and their sizes go in pairs, whose order says which belong together.
_PAIRED = ("default_hugepagesz", "hugepagesz", "hugepages")


def find(system: System) -> str:
    """One of the loaders above. Raises ``ChangeError`` for any other."""
    from hwtune.probes import _boot

    loader = _boot.read(system.host).loader
    if not loader.known:
        raise ChangeError("no boot loader that hwtune knows is configured here")
    name = loader.get()
    if name == "uki":
        raise ChangeError("the command line is part of a signed kernel image, which has to be built anew")
    if name == "rpm-ostree":
        return OSTREE
    if name == "systemd-boot":
        return SYSTEMD_BOOT
    if name == "grub" and reads_drop_ins(system):
        return GRUB
    if any(system.host.exists(path).value for path in _GRUBBY):
        return GRUBBY
    if name == "grub":
        raise ChangeError("this GRUB reads no drop-ins beside /etc/default/grub")
    raise ChangeError("the boot entries need grubby, which is not installed")


def reads_drop_ins(system: System) -> bool:
    """Whether grub-mkconfig sources /etc/default/grub.d, as Debian's does and others' do not."""
    script = system.host.text(MKCONFIG)
    return script.known and "default/grub.d" in script.get()


def by_hand(added: Sequence[str], removed: Sequence[str]) -> str:
    """What to do where hwtune cannot do it."""
    parts = []
    if added:
        parts.append("add " + " ".join(added))
    if removed:
        parts.append("take out " + " ".join(removed))
    return " and ".join(parts) + " by hand"


def grouped(texts: Iterable[str]) -> dict[str, list[str]]:
    """The arguments by what they replace: canonical names, separated by a blank. Raises
    ``ChangeError`` for an argument that not every loader would hand on as it is."""
    found: dict[str, list[str]] = {}
    paired: list[str] = []
    for text in texts:
        name = name_of(text)
        if name in _PAIRED:
            paired.append(text)
        else:
            found.setdefault(name, []).append(text)
    if paired:
        found[" ".join(dict.fromkeys(map(name_of, paired)))] = paired
    return found


def name_of(text: str) -> str:
    """The canonical name of one argument, as it is compared."""
    if not _PLAIN.fullmatch(text) or text.startswith(("-", "=")):
        raise ChangeError(f"{text[:60]!r} has characters that boot loaders change; set it by hand")
    return cmdline.canonical(text.partition("=")[0])


def check_length(before: str, names: Iterable[str], added: Sequence[str], machine: str = "") -> None:
    """Raises ``ChangeError`` where the kernel would cut the command line off."""
    limit = cmdline.LENGTH_LIMITS.get(machine or os.uname().machine)
    line = " ".join([cmdline.without(before, set(names)).strip(), *added])
    if limit is not None and len(line.encode()) >= limit:
        raise ChangeError(
            f"the command line would have {len(line.encode())} bytes, and the kernel takes {limit - 1}"
        )
    if any(cmdline.canonical(word) == "__" for word in before.split()):
        raise ChangeError('the command line hands arguments to init after "--", and ours would end up there')
