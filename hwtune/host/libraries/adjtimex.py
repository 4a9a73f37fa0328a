"""The kernel's view of its own clock: adjtimex(2) with no mode, which only reads."""

from __future__ import annotations

import ctypes
import os
from typing import Any

STA_UNSYNC = 0x40  # include/uapi/linux/timex.h

_long = ctypes.c_long


class _Timex(ctypes.Structure):
    """struct timex as the C library's adjtimex() takes it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", _long),
        ("freq", _long),
        ("maxerror", _long),
        ("esterror", _long),
        ("status", ctypes.c_int),
        ("constant", _long),
        ("precision", _long),
        ("tolerance", _long),
        ("tv_sec", _long),
        ("tv_usec", _long),
        ("tick", _long),
        ("ppsfreq", _long),
        ("jitter", _long),
        ("shift", ctypes.c_int),
        ("stabil", _long),
        ("jitcnt", _long),
        ("calcnt", _long),
        ("errcnt", _long),
        ("stbcnt", _long),
        ("tai", ctypes.c_int),
        ("padding", ctypes.c_int * 11),
    )


def query() -> dict[str, Any]:
    """``synchronized``, ``estimated_error_us``, ``max_error_us``. Raises ``OSError`` where a
    seccomp filter forbids the call."""
    timex = _Timex()  # modes 0: nothing is set, and no privilege is needed
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return {
        "synchronized": not timex.status & STA_UNSYNC,
        "estimated_error_us": timex.esterror,
        "max_error_us": timex.maxerror,
    }
