"""hwtune verify: is what was applied still in force?"""

from __future__ import annotations

import click

from hwtune.cli.options import emit, output_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK


@click.command("verify")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@output_option
def command(format_: str, output: str | None) -> int:
    """Say for each change whether it is in force, drifted (and who may have done it), gone, or
    waiting for a boot. Exit status 1 when any is not in force."""
    from hwtune.changes.ledger import Ledger
    from hwtune.changes.system import System
    from hwtune.changes.verify import IN_FORCE, verify
    from hwtune.cli.changing import need_root, the_journal
    from hwtune.diagnosis.engine import probe
    from hwtune.report.published import encode

    need_root("read the journal")
    system = System()
    records, broken = the_journal().records()
    ledger = Ledger(records)
    found = verify(ledger, system, None)
    if any(v.status != IN_FORCE for v in found):
        # only a drift needs to know who else turns knobs here
        found = verify(ledger, system, probe(system.host)[0])
    sets = [{"set": s.id, "time": s.time, "status": s.status} for s in ledger.active_sets()]
    whole = all(v.status == IN_FORCE for v in found) and all(s["status"] == "in force" for s in sets)
    if format_ == "json":
        emit(
            encode(
                {"schema_version": "1", "in_force": whole, "sets": sets, "changes": found, "journal": broken}
            ),
            output,
        )
    else:
        from hwtune.report.clean import clean

        lines = [clean(f"journal       {sentence}") for sentence in broken]
        for v in found:
            lines.append(clean(f"{v.status:<14}{v.target.partition(' ')[2]}   {v.wanted}"))
            if v.status != IN_FORCE:
                lines.append(clean(f"{'':<14}is {v.now} now" + (f": {v.reason}" if v.reason else "")))
            if v.suspects:
                lines.append(clean(f"{'':<14}could have been set by {', '.join(v.suspects)}"))
        lines += [f"{'set':<14}{s['set']} is {s['status']}" for s in sets if s["status"] != "in force"]
        lines.append(
            "Everything is in force." if found and whole else "" if found else "hwtune holds nothing here."
        )
        emit("\n".join(line for line in lines if line) + "\n", output)
    return EXIT_OK if whole else EXIT_FINDINGS
