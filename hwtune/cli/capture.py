"""hwtune capture: everything that doctor reads, in one file."""

from __future__ import annotations

import click

from hwtune.errors import ToolError


@click.command("capture")
@click.option("-o", "--output", metavar="FILE", help="Where to write.  [default: hwtune-HOST-TIME.tar.gz]")
def command(output: str | None) -> int:
    """Record everything doctor reads on this machine into one file.

    Run it as root to record what only root may read. The file holds host names, process names and
    serial numbers: look into it before you send it to anyone. `hwtune doctor --snapshot FILE`
    diagnoses it anywhere.
    """
    import time

    from hwtune.diagnosis.engine import probe
    from hwtune.host.live import LiveHost
    from hwtune.host.recorder import Recorder

    recorder = Recorder(LiveHost())
    machine, defects = probe(recorder)
    hostname = machine.kernel.hostname.value or "host"
    path = output or f"hwtune-{_safe(hostname)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz"
    try:
        recorder.write(path)
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}") from None
    for defect in defects:
        click.echo(f"hwtune: {defect.where} failed: {defect.error}", err=True)
    click.echo(path)
    return 0


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:64].lstrip(".") or "host"
