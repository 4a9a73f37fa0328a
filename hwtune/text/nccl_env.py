"""Environment variables that steer NCCL and CUDA, from "NAME=value" lines.

The forms: /etc/nccl.conf and ~/.nccl.conf (NCCL's src/misc/param.cc: one assignment a line, "#"
begins a comment), /etc/environment (pam_env(7): an optional "export", quotes), and what ``env``
prints. Variables with other prefixes are passed over: they may hold secrets.
"""

from __future__ import annotations

import re

_PREFIXES = ("NCCL_", "CUDA_", "NVSHMEM_", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
_LINE = r"\s*(?:(?:export|declare -x|setenv|set)\s+)?([A-Za-z_]\w{0,80})\s*[=:]\s*(.{0,200}?)\s*$"


def parse(text: str) -> list[tuple[str, str]]:
    """(name, value) in their order; a name may come again, and then the last counts for ``env``
    and the first for NCCL's own files."""
    found: list[tuple[str, str]] = []
    for line in text.replace("\0", "\n").splitlines():
        match = re.match(_LINE, line) if len(line) <= 400 else None
        if match is not None and match[1].startswith(_PREFIXES):
            value = match[2].split(" #")[0].strip()
            found.append((match[1], value.strip("\"'")))
    return found


def p2p_disabled(name: str, value: str) -> str:
    """How a variable turns direct transfers between GPUs off, or "".

    NCCL's src/graph/paths.cc: NCCL_P2P_DISABLE takes effect when it is 1; NCCL_P2P_LEVEL=LOC (0 in
    the old numbers) allows only transfers inside one GPU.
    """
    if name == "NCCL_P2P_DISABLE" and value.strip() == "1":
        return "turns peer-to-peer transfers off"
    if name == "NCCL_P2P_LEVEL" and value.strip().upper() in ("LOC", "0"):
        return "allows peer-to-peer transfers at no distance, which turns them off"
    return ""


# Names that people set and NCCL has never read (NCCL 2.30: no NCCL_PARAM and no ncclGetEnv of it).
IGNORED = {"NCCL_NVLINK_DISABLE": "NCCL has no such variable"}
