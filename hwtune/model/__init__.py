"""The Machine: what the probes found, typed, in the field's own words.

One module a subsystem. Every field that comes from the host is a ``Fact`` (hwtune.fact), unknown
until a probe sets it. Lists of things (devices, CPUs) are plain lists; where the enumeration
itself can fail, a ``Fact`` named ``listed`` says whether the list can be trusted to be whole.
"""

from __future__ import annotations

from hwtune.model.machine import Machine

__all__ = ["Machine"]
