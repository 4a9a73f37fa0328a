"""The boot loader, and the command lines that it is configured to give and will give at the next boot.

Nothing is executed: what only a shell or the loader could tell stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.fact import ABSENT, INVALID, NOT_CAPTURED, UNREADABLE, Fact, absent, gap, known
from hwtune.text import bls, grub

if TYPE_CHECKING:
    from hwtune.host.base import Host

_DEFAULTS = "/etc/default/grub"
_DROP_INS = "/etc/default/grub.d"
# grub.cfg where grub-mkconfig writes it: Debian and its kin, the others, and by way of the link that
# Red Hat keeps for EFI machines (up to RHEL 8 it leads into the EFI system partition).
_MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
_EFI_MENU = "/etc/grub2-efi.cfg"
_ENVIRONMENTS = ("/boot/grub/grubenv", "/boot/grub2/grubenv")
_ENTRIES = "/boot/loader/entries"
# Where the EFI system partition or the extended boot loader partition is mounted (bootctl(1)).
_ESPS = ("/efi", "/boot", "/boot/efi")
_LOADER_VARIABLES = "/sys/firmware/efi/efivars"
_LOADER_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"  # systemd.io/BOOT_LOADER_INTERFACE
_MOST_ENTRIES = 200
_ENTRY_LIMIT = 1 << 16


class Boot(NamedTuple):
    """``loader``: grub, grub-bls, systemd-boot, rpm-ostree, uki, or ABSENT where none is configured."""

    loader: Fact[str]
    configured: Fact[str]
    next: Fact[str]


def read(host: Host) -> Boot:
    if _true(host.exists("/run/ostree-booted")):
        return Boot(known("rpm-ostree", "/run/ostree-booted"), _no_source("rpm-ostree"), _bls_next(host, {}))
    if _true(host.exists(f"{_LOADER_VARIABLES}/StubInfo-{_LOADER_VENDOR}")):
        source = f"{_LOADER_VARIABLES}/StubInfo-{_LOADER_VENDOR}"
        held = gap(UNREADABLE, "the unified kernel image", "its command line is part of the signed image")
        return Boot(known("uki", source), _kernel_cmdline(host), held)
    menu_path, menu = _menu(host)
    defaults = host.text(_DEFAULTS)
    told = _loader_name(host)
    if told.known and told.get().startswith("systemd-boot"):
        return _systemd_boot(host, told.source)
    if menu.known or defaults.known:
        return _grub(host, menu_path, menu, defaults)
    for esp in _ESPS:
        if _true(host.exists(f"{esp}/loader/loader.conf")):
            return _systemd_boot(host, f"{esp}/loader/loader.conf")
    # A file that may not be read says that its loader is there.
    if menu.gap not in (ABSENT, NOT_CAPTURED) or defaults.gap not in (ABSENT, NOT_CAPTURED):
        return _grub(host, menu_path, menu, defaults)
    nothing: Fact[str] = gap(menu.gap or ABSENT, "/boot, /etc/default/grub")
    return Boot(nothing, nothing, nothing)


def _true(fact: Fact[bool]) -> bool:
    return fact.known and fact.get()


def _no_source(loader: str) -> Fact[str]:
    """The loader's entries are the configuration: there is no file that they are made from."""
    return absent(f"a source of {loader}'s entries")


def _loader_name(host: Host) -> Fact[str]:
    return _efi_string(host, "LoaderInfo")


def _efi_string(host: Host, name: str) -> Fact[str]:
    """A variable of the boot loader interface: four bytes of attributes, then UTF-16."""
    found = host.read_bytes(f"{_LOADER_VARIABLES}/{name}-{_LOADER_VENDOR}")
    return found.map(lambda content: content[4:].decode("utf-16-le", "replace").strip("\0"))


# -- GRUB ---------------------------------------------------------------------------------


def _menu(host: Host) -> tuple[str, Fact[str]]:
    """The first grub.cfg that can be read, else the first one's gap; a denied one counts more than
    one that is not there."""
    best: tuple[str, Fact[str]] | None = None
    efi = _true(host.exists("/sys/firmware/efi"))
    for path in (_EFI_MENU, *_MENUS) if efi else _MENUS:
        fact = host.text(path)
        if fact.known:
            real = host.resolve(path)
            return real.get() if real.known else path, fact
        if best is None or (best[1].gap in (ABSENT, NOT_CAPTURED) and fact.gap not in (ABSENT, NOT_CAPTURED)):
            best = path, fact
    assert best is not None
    return best


def _grub(host: Host, menu_path: str, menu: Fact[str], defaults: Fact[str]) -> Boot:
    environment: dict[str, str] = {}
    for path in _ENVIRONMENTS:
        content = host.parse(path, grub.parse_environment)
        if content.known:
            environment = content.get()
            break
    variables: dict[str, str | None] = {}
    sources = _configure(host, defaults, variables)
    if not menu.known:
        kind = "grub-bls" if variables.get("GRUB_ENABLE_BLSCFG") == "true" else "grub"
        return Boot(
            known(kind, defaults.source if defaults.known else menu_path),
            _no_source(kind) if kind == "grub-bls" else _configured(defaults, variables, sources),
            Fact(None, menu_path, menu.gap, menu.detail),
        )
    parsed = grub.parse_menu(menu.get(), environment)
    if parsed.bls:
        return Boot(known("grub-bls", menu_path), _no_source("GRUB"), _bls_next(host, environment))
    return Boot(
        known("grub", menu_path), _configured(defaults, variables, sources), _grub_next(parsed, menu_path)
    )


def _grub_next(menu: grub.Menu, path: str) -> Fact[str]:
    entry = grub.choose(menu)
    if entry is None or not entry.linux:
        return gap(INVALID, path, "its default entry boots no Linux")
    return known(entry.options, f"{path}, entry {entry.title}")


def _configure(host: Host, defaults: Fact[str], variables: dict[str, str | None]) -> list[str]:
    """Apply /etc/default/grub and, as Debian's grub-mkconfig does, the drop-ins after it."""
    sources: list[str] = []
    if defaults.known:
        grub.assign(defaults.get(), variables)
        sources.append(_DEFAULTS)
    names = host.names(_DROP_INS)
    for name in names.get() if names.known else ():
        if name.endswith(".cfg") and not name.startswith("."):
            path = f"{_DROP_INS}/{name}"
            text = host.text(path)
            if text.known:
                grub.assign(text.get(), variables)
                sources.append(path)
            elif not text.absent:
                grub.assign(". it", variables)  # what it sets is not known
    return sources


def _configured(defaults: Fact[str], variables: dict[str, str | None], sources: list[str]) -> Fact[str]:
    if not defaults.known:
        return defaults
    source = ", ".join(sources)
    try:
        return known(grub.cmdline(variables), source)
    except ValueError as error:
        return gap(INVALID, source, str(error))


# -- Boot Loader Specification ---------------------------------------------------------------


def _entries(host: Host, directory: str) -> Fact[list[bls.Entry]]:
    names = host.names(directory)
    if not names.known:
        return Fact(None, names.source, names.gap, names.detail)
    found: list[bls.Entry] = []
    for name in [n for n in names.get() if n.endswith(".conf")][-_MOST_ENTRIES:]:
        text = host.text(f"{directory}/{name}", _ENTRY_LIMIT)
        if text.known:
            found.append(bls.parse(name.removesuffix(".conf"), text.get()))
        elif not text.absent:
            return Fact(None, text.source, text.gap, text.detail)
    return known(found, directory) if found else gap(INVALID, directory, "no entry in it")


def _bls_next(host: Host, environment: dict[str, str]) -> Fact[str]:
    entries = _entries(host, _ENTRIES)
    if not entries.known:
        return Fact(None, entries.source, entries.gap, entries.detail)
    ordered = bls.newest_first(entries.get())
    wanted = environment.get("next_entry") or environment.get("saved_entry") or "0"
    chosen = next((e for e in ordered if wanted in (e.id, e.title)), None)
    if chosen is None:
        chosen = ordered[int(wanted)] if wanted in map(str, range(len(ordered))) else ordered[0]
    # A variable of GRUB that nothing has set is empty.
    options = grub.expand(chosen.options, {"tuned_params": "", **environment})
    return known(" ".join(options.split()), f"{_ENTRIES}/{chosen.id}.conf")


# -- systemd-boot ---------------------------------------------------------------------------


def _systemd_boot(host: Host, source: str) -> Boot:
    return Boot(known("systemd-boot", source), _kernel_cmdline(host), _systemd_next(host))


def _kernel_cmdline(host: Host) -> Fact[str]:
    """What kernel-install writes into new entries (kernel-install(8))."""
    first = host.parse("/etc/kernel/cmdline", _joined)
    return first if first.known else first.or_else(host.parse("/usr/lib/kernel/cmdline", _joined))


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.split("\n") if not line.startswith("#")).strip()


def _systemd_next(host: Host) -> Fact[str]:
    first: Fact[str] | None = None
    for esp in _ESPS:
        directory = f"{esp}/loader/entries"
        entries = _entries(host, directory)
        if entries.known:
            return _systemd_default(host, esp, directory, entries.get())
        if first is None or first.gap in (ABSENT, NOT_CAPTURED):
            first = Fact(None, entries.source, entries.gap, entries.detail)
    assert first is not None
    return first


def _systemd_default(host: Host, esp: str, directory: str, entries: list[bls.Entry]) -> Fact[str]:
    """One-time choice, default set in firmware, default of loader.conf, else the newest."""
    from fnmatch import fnmatchcase

    ordered = sorted(entries, key=_systemd_order, reverse=True)
    for variable in ("LoaderEntryOneShot", "LoaderEntryDefault"):
        named = _efi_string(host, variable)
        if named.known and named.get():
            return _systemd_choice(directory, ordered, named.get())
    pattern = host.parse(f"{esp}/loader/loader.conf", bls.loader_default)
    if pattern.known and pattern.get():
        wanted = str(pattern.get())
        if wanted.startswith("@"):
            return gap(INVALID, pattern.source, f"its default is {wanted[:40]}, which only the loader knows")
        for entry in ordered:
            if fnmatchcase(f"{entry.id}.conf", wanted) or fnmatchcase(entry.id, wanted):
                return known(entry.options, f"{directory}/{entry.id}.conf")
    return known(ordered[0].options, f"{directory}/{ordered[0].id}.conf")


def _systemd_choice(directory: str, entries: list[bls.Entry], name: str) -> Fact[str]:
    for entry in entries:
        if name in (entry.id, f"{entry.id}.conf"):
            return known(entry.options, f"{directory}/{entry.id}.conf")
    return gap(INVALID, directory, f"the default {name[:60]!r} is no entry of it")


def _systemd_order(entry: bls.Entry) -> tuple[bool, str, list[tuple[int, int, str]]]:
    """The specification's order: entries with a sort-key first, by it; then the newest version.
    Reversed by the caller, so the sort-key's order is turned round here."""
    turned = "".join(chr(0x10FFFF - ord(c)) for c in entry.sort_key)
    return bool(entry.sort_key), turned + chr(0x10FFFF), bls.version_key(entry.version or entry.id)
