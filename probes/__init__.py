"""Probes: each fills one part of the Machine from the Host, and never judges.

A probe is a module with ``PART`` (the field of ``hwtune.model.Machine`` that it fills) and
``read(host) -> part``. It raises for nothing that a machine can hold.
"""
