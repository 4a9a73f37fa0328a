"""What else happened on a CPU while something was measured there, by name.

    with watch(cpus, clock) as watched:      # never fails for lack of permission: watched.why says it
        ...                                  # measure; watched.drain() about once a second
    causes = attribute(watched.recording, outliers)    # one Cause for each Outlier (times: clock.ticks())
    print(sentence(summarise(causes)))       # "of 41 outliers 33 coincide with IRQ 36 virtio1-req.0, ..."

With root it is a trace instance of hwtune's own; else, and besides, ``watched.recording.counted`` has what
the kernel counted for each CPU, which tells what fired and how often, not which outlier it made.
Data flows one way: tracefs, instance -> pages -> ringbuffer -> Events -> spans -> CpuTrace -> attribution.
Imports numpy, so it is imported where it is used.
"""

from __future__ import annotations

from hwtune.tracing.attribution import (
    Attribution,
    Cause,
    Culprit,
    Outlier,
    Share,
    Summary,
    attribute,
    sentence,
    summarise,
    title,
)
from hwtune.tracing.counters import Counted, CpuCounters, Fired
from hwtune.tracing.rows import rows_for
from hwtune.tracing.watching import Recording, Terminated, Watch, outlook, watch

__all__ = (
    "Attribution",
    "Cause",
    "Counted",
    "CpuCounters",
    "Culprit",
    "Fired",
    "Outlier",
    "Recording",
    "Share",
    "Summary",
    "Terminated",
    "Watch",
    "attribute",
    "outlook",
    "rows_for",
    "sentence",
    "summarise",
    "title",
    "watch",
)
