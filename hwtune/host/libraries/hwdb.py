"""Names of devices from udev's hardware database (hwdb(7)), by libudev.

pyudev loads libudev and knows the types of its functions; it has no class for the database.
"""

from __future__ import annotations

import os
from typing import Any

from hwtune.fact import ABSENT, UNREADABLE
from hwtune.host.libraries import LibraryGap

# Where libudev looks for the compiled database, in its order.
_PLACES = (
    "/etc/systemd/hwdb/hwdb.bin",
    "/etc/udev/hwdb.bin",
    "/usr/lib/systemd/hwdb/hwdb.bin",
    "/lib/systemd/hwdb/hwdb.bin",
    "/lib/udev/hwdb.bin",
)


def query(*modaliases: str) -> dict[str, dict[str, str]]:
    """Names (ID_VENDOR_FROM_DATABASE and the like) by modalias, for those that the database knows.

    Raises ``LibraryGap`` where there is no database: loading the library for nothing would cost
    more than all reads of a small machine's PCI tree.
    """
    if not any(map(os.path.exists, _PLACES)):
        raise LibraryGap(ABSENT, "no hwdb.bin")
    import pyudev

    context = pyudev.Context()
    try:
        library = context._libudev
        database = library.udev_hwdb_new(context)
    except AttributeError as error:
        raise LibraryGap(UNREADABLE, f"this pyudev has no database: {error}") from None
    if not database:
        raise LibraryGap(UNREADABLE, "libudev cannot open hwdb.bin")
    try:
        answers = {alias: _look_up(library, database, alias) for alias in modaliases}
    finally:
        library.udev_hwdb_unref(database)
    return {alias: properties for alias, properties in answers.items() if properties}


def _look_up(library: Any, database: Any, alias: str) -> dict[str, str]:
    found: dict[str, str] = {}
    entry = library.udev_hwdb_get_properties_list_entry(database, alias.encode(), 0)
    while entry:
        key, value = library.udev_list_entry_get_name(entry), library.udev_list_entry_get_value(entry)
        if key.endswith(b"_FROM_DATABASE"):
            found[key.decode("ascii", "replace")] = (value or b"").decode("utf-8", "replace")
        entry = library.udev_list_entry_get_next(entry)
    return found
