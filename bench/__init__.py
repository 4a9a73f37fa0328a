"""Benchmarks: each compares hwtune with an alternative in the same run (``make bench``)."""
