"""Numbers as tools and the kernel print them, and no others.

Python takes more for a number than any machine prints: digits without end, underscores between
them, digits of other scripts, "inf" and "nan".
"""

from __future__ import annotations

import re
from math import isfinite

# 64 bits, and a sign or "0x"
_MOST_HEXADECIMAL = 18
# No number of a machine has more (the kernel's bit strings have 64 or 128 places), and a float holds
# any that has as many.
_MOST_DIGITS = 128
_ENDLESS = re.compile(rf"[0-9]{{{_MOST_DIGITS + 1},}}")


def hexadecimal(text: str) -> int:
    """ "1f" or "0x1f", of 64 bits at most. Raises ``ValueError``."""
    text = text.strip()
    if len(text) > _MOST_HEXADECIMAL or "_" in text or not text.isascii():
        raise ValueError("not a hexadecimal number of 64 bits")
    return int(text, 16)


def finite(text: str) -> float:
    """Raises ``ValueError`` for what is no number, and for one that a float cannot hold."""
    value = float(text)
    if not isfinite(value) or "_" in text:
        raise ValueError("not a finite number")
    return value


def is_endless(text: str) -> bool:
    """Whether it holds digits without end, which are damage: nothing can be computed with them."""
    return len(text) > _MOST_DIGITS and _ENDLESS.search(text) is not None


def without_endless(text: str) -> str:
    """The same with a sign for each such run of digits, so that the rest of a text can be read."""
    return _ENDLESS.sub("\N{HORIZONTAL ELLIPSIS}", text) if is_endless(text) else text
