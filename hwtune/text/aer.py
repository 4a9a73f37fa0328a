"""Names of the errors of Advanced Error Reporting.

Short names as the kernel prints them (drivers/pci/pcie/aer.c) in the order of the bits of the
status registers (PCI Express Base Specification, 7.8.4.2 and 7.8.4.5); the long ones are the
specification's.
"""

from __future__ import annotations

CORRECTABLE = {
    0: "RxErr",
    6: "BadTLP",
    7: "BadDLLP",
    8: "Rollover",
    12: "Timeout",
    13: "NonFatalErr",
    14: "CorrIntErr",
    15: "HeaderOF",
}

UNCORRECTABLE = {
    0: "Undefined",
    4: "DLP",
    5: "SDES",
    12: "TLP",
    13: "FCP",
    14: "CmpltTO",
    15: "CmpltAbrt",
    16: "UnxCmplt",
    17: "RxOF",
    18: "MalfTLP",
    19: "ECRC",
    20: "UnsupReq",
    21: "ACSViol",
    22: "UncorrIntErr",
    23: "BlockedTLP",
    24: "AtomicOpBlocked",
    25: "TLPBlockedErr",
    26: "PoisonTLPBlocked",
}

MEANINGS = {
    "RxErr": "receiver error",
    "BadTLP": "bad TLP",
    "BadDLLP": "bad DLLP",
    "Rollover": "replay number rollover",
    "Timeout": "replay timer timeout",
    "NonFatalErr": "advisory non-fatal error",
    "CorrIntErr": "corrected internal error",
    "HeaderOF": "header log overflow",
    "DLP": "data link protocol error",
    "SDES": "surprise link down",
    "TLP": "poisoned TLP",
    "FCP": "flow control protocol error",
    "CmpltTO": "completion timeout",
    "CmpltAbrt": "completer abort",
    "UnxCmplt": "unexpected completion",
    "RxOF": "receiver overflow",
    "MalfTLP": "malformed TLP",
    "ECRC": "ECRC error",
    "UnsupReq": "unsupported request",
    "ACSViol": "ACS violation",
    "UncorrIntErr": "uncorrected internal error",
    "BlockedTLP": "multicast blocked TLP",
    "AtomicOpBlocked": "AtomicOp egress blocked",
    "TLPBlockedErr": "TLP prefix blocked",
    "PoisonTLPBlocked": "poisoned TLP egress blocked",
}

# Other spellings: older kernels' log and counters, and lspci.
_SAME = {
    "Receiver Error": "RxErr",
    "Bad TLP": "BadTLP",
    "Bad DLLP": "BadDLLP",
    "RELAY_NUM Rollover": "Rollover",
    "Replay Timer Timeout": "Timeout",
    "Advisory Non-Fatal": "NonFatalErr",
    "Advisory Non-Fatal Error": "NonFatalErr",
    "AdvNonFatalErr": "NonFatalErr",
    "Corrected Internal Error": "CorrIntErr",
    "Header Log Overflow": "HeaderOF",
    "Data Link Protocol": "DLP",
    "Surprise Down Error": "SDES",
    "Poisoned TLP": "TLP",
    "Flow Control Protocol": "FCP",
    "Completion Timeout": "CmpltTO",
    "Completer Abort": "CmpltAbrt",
    "Unexpected Completion": "UnxCmplt",
    "Receiver Overflow": "RxOF",
    "Malformed TLP": "MalfTLP",
    "Unsupported Request": "UnsupReq",
    "ACS Violation": "ACSViol",
}

# What a healthy machine leaves behind: while buses are scanned, requests to functions that do not
# exist are answered so, and a function that reports them as corrected says "advisory".
HARMLESS = ("NonFatalErr", "UnsupReq")


def name(text: str) -> str:
    """The short name of an error in any of its spellings."""
    return _SAME.get(text, text)


def explain(short: str) -> str:
    """ "Timeout (replay timer timeout)"; the name itself where it is not known."""
    meaning = MEANINGS.get(short)
    return f"{short} ({meaning})" if meaning else short


def bits(status: int, names: dict[int, str]) -> list[str]:
    """The errors whose bits are set in a status register."""
    return [names.get(bit, f"bit {bit}") for bit in range(32) if status >> bit & 1]
