"""The native histogram from Python, and read by HdrHistogram's own reader for Python."""

from __future__ import annotations

import base64
import math
import struct
import warnings
import zlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune._native import Histogram
from hwtune.validate.hdr import from_base64, to_base64

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its ctypes structures, from Python 3.14
    from hdrh.histogram import HdrHistogram

HIGHEST = 100_000_000_000
LIMIT = 2**37 - 1
# HdrHistogram 2.2.2 (Java), encodeIntoCompressedByteBuffer, of 0, 1, 1, 5, 2047, 2048, 2049, 4096,
# 1000000 twice, 99999999999, 137438953471; 300 a thousand times; 301 2^40 + 3 times.
REFERENCE = "HISTFAAAAD94nJNpmSzMwMAgzwABzFCaEYjFPcpeMNh/gAgwsbAynWa5wN/WAAQOC6WZWP7yM+2vY7nfwcR0nYMJAHAgDjQ="

latencies = st.integers(0, LIMIT) | st.integers(0, 5000)
any_time = latencies | st.integers(0, 2**64 - 1)


def of(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record_many(np.array(values, np.uint64))
    return histogram


def read_by_others(histogram: Histogram) -> HdrHistogram:
    return HdrHistogram.decode(to_base64(histogram))


@settings(max_examples=30)  # their reader is slow
@given(st.lists(latencies, min_size=1, max_size=200))
def test_other_tools_read_what_it_writes(values):
    ours = of(values)
    theirs = read_by_others(ours)
    assert theirs.get_total_count() == ours.count == len(values)
    assert theirs.get_max_value() == ours.max
    # they take an empty first bucket for none: their minimum is the lowest one above 0
    assert theirs.get_lowest_equivalent_value(min(values)) == ours.min
    assert theirs.get_mean_value() == pytest.approx(ours.mean, rel=1e-12)
    for index in np.flatnonzero(ours.counts()):
        value = int(Histogram.lower_bounds()[index])
        assert theirs.get_count_at_index(int(index)) == ours.counts()[index]
        assert theirs.get_lowest_equivalent_value(value) == value
        assert theirs.get_highest_equivalent_value(value) == Histogram.upper_bounds()[index]


@settings(max_examples=30)  # their reader is slow
@given(st.lists(latencies, min_size=1, max_size=200))
def test_it_reads_what_other_tools_write(values):
    theirs = HdrHistogram(1, HIGHEST, 3)
    for value in values:
        theirs.record_value(value)
    ours = from_base64(theirs.encode().decode())
    assert ours.encode() == of(values).encode()


def test_it_reads_the_reference():
    histogram = from_base64(REFERENCE)
    assert histogram.count == 1000 + 2**40 + 3 + 12
    assert (histogram.min, histogram.max) == (0, LIMIT)
    assert histogram.value_at(1e-11) == 300
    assert histogram.value_at(0.999999999) == 301
    assert zlib.decompress(base64.b64decode(REFERENCE)[8:]) == histogram.encode()


@given(st.lists(any_time, min_size=1, max_size=100), st.floats(0, 1))
def test_a_quantile_is_the_bucket_of_the_value_with_that_rank(values, quantile):
    ours = of(values)
    ranked = sorted(values)
    # exact; a step or two of the last place below it, a quantile such as 0.07 * 100 is still the whole number
    least = math.nextafter(math.nextafter(quantile, 0.0), 0.0)
    ranks = {max(1, math.ceil(Fraction(q) * len(values))) for q in (least, quantile)}
    expected = {bucket_end(ranked[rank - 1], ranked) for rank in ranks} if quantile > 0 else {ours.min}
    assert ours.value_at(quantile) in expected


def bucket_end(value: int, ranked: list[int]) -> int:
    if value > LIMIT:
        return ranked[-1]
    return int(Histogram.upper_bounds()[Histogram.bucket_index(value)])


@given(st.lists(any_time, max_size=50), st.lists(any_time, max_size=50))
def test_merging_is_recording_both(first, second):
    merged = of(first)
    merged.merge(of(second))
    both = of(first + second)
    assert merged.encode() == both.encode()
    assert merged.count == len(first) + len(second)
    assert merged.overflow == sum(value > LIMIT for value in first + second)


@given(st.lists(any_time, max_size=50))
def test_nothing_is_lost_on_the_way_through_text(values):
    before = of(values)
    after = from_base64(to_base64(before))
    assert after.count == before.count
    assert after.overflow == before.overflow
    assert np.array_equal(after.counts(), before.counts())
    if values:
        assert before.max <= after.max <= before.max * 1.001 or before.max >= 2**63


def test_counts_are_a_view_that_keeps_its_histogram():
    histogram = Histogram()
    counts = histogram.counts()
    histogram.record(2049)
    assert counts[2048] == 1  # 2048 and 2049
    assert not counts.flags.writeable
    assert counts.shape == Histogram.lower_bounds().shape == Histogram.upper_bounds().shape == (28672,)
    del histogram
    assert counts.sum() == 1


def test_bounds_and_indices_agree():
    lower, upper = Histogram.lower_bounds(), Histogram.upper_bounds()
    assert (lower[0], lower[2048], upper[2048], upper[-1]) == (0, 2048, 2049, LIMIT)
    assert np.array_equal(lower[1:], upper[:-1] + 1)
    assert Histogram.bucket_index(2**64 - 1) == 28671
    with pytest.raises(ValueError, match="read-only"):
        lower[0] = 1


def test_arrays_of_any_stride_and_of_no_other_type():
    histogram = Histogram()
    histogram.record_many(np.arange(10, dtype=np.uint64)[::-3])  # 9, 6, 3, 0
    assert np.flatnonzero(histogram.counts()).tolist() == [0, 3, 6, 9]
    for wrong in (np.array([-1]), np.array([1.5]), np.zeros((2, 2), np.uint64), [1, 2]):
        with pytest.raises(TypeError):
            histogram.record_many(wrong)
    with pytest.raises(TypeError):
        histogram.record(-1)
    assert histogram.count == 4


def test_no_values_have_no_figures():
    histogram = Histogram()
    for figure in ("min", "max", "mean"):
        with pytest.raises(ValueError, match="no value was recorded"):
            getattr(histogram, figure)
    with pytest.raises(ValueError, match="no value"):
        histogram.value_at(0.5)
    histogram.record(1)
    with pytest.raises(ValueError, match="from 0 to 1"):
        histogram.value_at(99)
    histogram.clear()
    assert histogram.count == 0


def framed(stream: bytes) -> str:
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(stream)) + stream).decode()


def packed(plain: bytes) -> str:
    return framed(zlib.compress(plain))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at least 8 bytes"),
        ("%%%%", "not base64"),
        ("HISTFAAAAD94\n", "not base64"),
        ("é", "not base64"),
        (REFERENCE[:40], "disagree"),
        (base64.b64encode(b"\x1c\x84\x93\x13" + bytes(40)).decode(), "compressed format V2"),
        (base64.b64encode(struct.pack(">II", 0x1C849314, 4) + b"nope").decode(), "damaged"),
        (
            base64.b64encode(struct.pack(">II", 0x1C849314, 9) + zlib.compress(bytes(99))[:9]).decode(),
            "cut off",
        ),
        (packed(bytes(600_000)), "longer than"),
        (packed(b""), "40 bytes"),
        (packed(Histogram().encode() + b"\0"), "disagree"),
    ],
)
def test_text_that_is_no_histogram_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        from_base64(text)


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_read(data):
    head = Histogram().encode()[:40]
    for candidate in (data, head[:4] + struct.pack(">I", len(data)) + head[8:] + data):
        try:
            histogram = Histogram.decode(candidate)
        except ValueError as error:
            assert str(error)
        else:
            assert Histogram.decode(histogram.encode()).count == histogram.count
