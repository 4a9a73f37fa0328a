"""What an error number says about a file: that it is absent, denied, or unreadable."""

from __future__ import annotations

import errno
import os

from hwtune.fact import ABSENT, DENIED, UNREADABLE

# ENODEV and ENXIO are what the kernel answers for a device that went away or a feature that the
# driver lacks; ENOTDIR is what it answers below something that is a file.
_KINDS = {
    errno.ENOENT: ABSENT,
    errno.ENOTDIR: ABSENT,
    errno.ENODEV: ABSENT,
    errno.ENXIO: ABSENT,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
}


def of_error(error: OSError) -> tuple[str, str]:
    """The gap kind and the detail for an ``OSError``; ABSENT needs no detail."""
    number = error.errno
    if number is None:
        return UNREADABLE, str(error)
    kind = _KINDS.get(number, UNREADABLE)
    return kind, "" if kind == ABSENT else os.strerror(number)
