"""Environment variables of NCCL and CUDA that are set for the whole machine, and module options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.fact import Fact, known
from hwtune.text import nccl_env

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.gpu import GpuHost

# NCCL reads ~/.nccl.conf (or NCCL_CONF_FILE in its place) and then /etc/nccl.conf; what the
# environment itself has goes before both (NCCL's src/misc/param.cc).
_FILES = ("/etc/environment", "/root/.nccl.conf", "/etc/nccl.conf")
_OPTIONS = re.compile(r"\s*options\s+nvidia\s+(.*)")


def read(host: Host, gpu_host: GpuHost) -> None:
    found: dict[str, list[tuple[str, str]]] = {}
    answers: list[Fact[str]] = []

    def take(text: str, source: str) -> None:
        for name, value in nccl_env.parse(text):
            found.setdefault(name, []).append((source, value))

    for document in host.documents("environment"):
        take(document.text, document.path)
        answers.append(known("", document.path))
    files = list(_FILES)
    for path in files:
        text = host.text(path)
        if text.known:
            take(text.get(), path)
        answers.append(text)
        for _, named in found.get("NCCL_CONF_FILE", []):
            if named.startswith("/") and named not in files:
                files.append(named)
    gpu_host.environment = found
    gpu_host.environment_known = _answered(answers)
    _options(host, gpu_host)


def _answered(answers: list[Fact[str]]) -> Fact[bool]:
    """Known where any place could be read or is known not to be there."""
    told = [fact for fact in answers if fact.known or fact.absent]
    if told:
        return known(True, ", ".join(fact.source for fact in told))
    return answers[0].map(lambda _: True)


def _options(host: Host, gpu_host: GpuHost) -> None:
    for name in host.names("/etc/modprobe.d").value or []:
        path = f"/etc/modprobe.d/{name}"
        if not name.endswith(".conf"):
            continue
        for line in (host.text(path).value or "").splitlines():
            match = _OPTIONS.match(line)
            for word in match[1].split() if match is not None else ():
                option, sign, value = word.partition("=")
                if sign:
                    gpu_host.module_options.setdefault(option, []).append((path, value))
