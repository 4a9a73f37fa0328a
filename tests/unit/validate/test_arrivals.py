"""Arrivals: kinds, and files of recorded ticks that may hold anything."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.errors import UsageError
from hwtune.validate import arrivals
from hwtune.validate.arrivals import FIELDS, HEADER, load

ROW = "1000,99.5,100.0,100.0,10,20,5,1"


def file(tmp_path, *rows, header=HEADER, end="\n"):
    path = tmp_path / "ticks.csv"
    path.write_bytes((end.join((header, *rows)) + end).encode())
    return str(path)


def two(**changes):
    cells = dict(zip((name for name, _ in FIELDS), ROW.split(","), strict=True))
    return ROW, ",".join({**cells, "time_ns": "2000", **changes}.values())


@pytest.mark.parametrize("kind", ["fixed", "poisson", "burst"])
def test_kinds(kind):
    found = load(kind, None, 10_000)
    assert (found.kind, found.name, found.rate, found.ticks, found.span_s) == (kind, kind, 10_000, None, None)
    assert load(kind, 500, 10_000).rate == 500


@pytest.mark.parametrize("rate", [0, 0.5, -1, 2e8, float("nan"), float("inf")])
def test_bad_rates(rate):
    with pytest.raises(UsageError, match="--rate"):
        load("fixed", rate, 10_000)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_recorded_ticks(tmp_path, end):
    rows = ["1700000000000000000,99.5,100,100,10,20,5,1", "1700000000000000123,-1.5,1e3,0,0,4294967295,0,0"]
    found = load(file(tmp_path, *rows, "1700000000002000000,1,2,3,4,5,6,1", end=end), None, 1)
    assert found.kind == "recorded"
    assert found.ticks.dtype.itemsize == 48
    assert found.ticks["time_ns"].tolist() == [0, 123, 2_000_000]
    assert found.ticks["bid"].tolist() == [99.5, -1.5, 1.0]
    assert found.ticks["ask_size"].tolist() == [20, 4294967295, 5]
    assert found.rate == pytest.approx(1000)  # 2 steps in 2 ms
    assert found.span_s == pytest.approx(0.002)


def test_a_numpy_file_says_the_same_as_csv(tmp_path):
    found = load(file(tmp_path, *two()), None, 1)
    wide = np.array(
        [tuple(found.ticks[0]), tuple(found.ticks[1])],
        dtype=[(n, ">f8" if k == "<f8" else ">i8") for n, k in FIELDS],
    )
    np.save(tmp_path / "ticks.npy", wide)
    again = load(str(tmp_path / "ticks.npy"), None, 1)
    assert again.ticks.dtype == found.ticks.dtype
    assert (again.ticks == found.ticks).all()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "has 0 ticks; at least 2"),
        ([ROW], "has 1 ticks; at least 2"),
        ([ROW, ROW], "have the same time"),
        ([ROW, "", ROW], "line 3: it is blank"),
        ([ROW, "1,2"], "line 3: it has 2 values, not 8"),
        ([ROW, ROW + ",1"], "line 3: it has 9 values"),
        (two(bid="x"), "line 3: bid should be a number, not 'x'"),
        (two(bid="nan"), "line 3: bid is not finite"),
        (two(ask="inf"), "line 3: ask is not finite"),
        (two(price="1e999"), "line 3: price is not finite"),
        (two(volume="-1"), "line 3: volume should be a whole number from 0 on that fits, not '-1'"),
        (two(volume="1.5"), "line 3: volume should be a whole"),
        (two(volume="4294967296"), "line 3: volume should be a whole"),
        (two(volume=""), "line 3: volume should be a whole"),
        (two(time_ns="99999999999999999999"), "line 3: time_ns should be a whole"),
        (two(time_ns="999"), "line 3: time_ns is before that of the line above"),
        (two(aggressor="2"), "line 3: aggressor is 1 for a buyer or 0"),
        (two(time_ns="604800000000001001"), "span more than a week"),
        (two(bid="1_0"), "line 3: bid should be a number"),
        (two(bid='"1"'), "line 3: bid should be a number"),
        (["# " + ROW, ROW], "line 2: time_ns should be a whole"),
        (two(bid="\uff11"), "line 3: bid should be a number"),
    ],
)
def test_bad_lines_are_named(tmp_path, rows, words):
    with pytest.raises(UsageError, match=words) as caught:
        load(file(tmp_path, *rows), None, 1)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="takes fixed, poisson, burst or a file; there is no file psisson"):
        load("psisson", None, 1)
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path), None, 1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        load(str(tmp_path / "pipe"), None, 1)
    with pytest.raises(UsageError, match="line 1: the header should be time_ns,bid"):
        load(file(tmp_path, ROW, header="a,b"), None, 1)


def test_a_rate_does_not_go_with_a_file(tmp_path):
    with pytest.raises(UsageError, match="--rate does not go with the recorded ticks"):
        load(file(tmp_path, *two()), 5, 1)


def saved(tmp_path, array, **how):
    path = tmp_path / "ticks.npy"
    np.save(path, array, **how)
    return str(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a["bid"].copy(), "its fields should be time_ns"),
        (lambda a: a.reshape(1, 2), "its fields should be"),
        (lambda a: a[["bid", "ask"]].copy(), "its fields should be"),
        (lambda a: a[:1], "has 1 ticks"),
    ],
)
def test_numpy_files_of_another_shape(tmp_path, change, words):
    ticks = load(file(tmp_path, *two()), None, 1).ticks
    with pytest.raises(UsageError, match=words):
        load(saved(tmp_path, change(ticks)), None, 1)


def test_numpy_files_of_other_types_and_values(tmp_path):
    def tick(**changes):
        kinds = {name: kind.replace("u", "i").replace("i4", "i8") for name, kind in FIELDS}
        kinds |= {name: kind for name, (kind, _) in changes.items()}
        array = np.zeros(2, dtype=list(kinds.items()))
        array["time_ns"] = [1, 2]
        for name, (_, value) in changes.items():
            array[name][1] = value
        return saved(tmp_path, array)

    assert len(load(tick(), None, 1).ticks) == 2
    for changes, words in (
        ({"volume": ("<i8", -1)}, "tick 1: volume cannot be -1"),
        ({"volume": ("<u8", 1 << 32)}, "tick 1: volume cannot be 4294967296"),
        ({"volume": ("<f8", 1)}, "volume has the type float64"),
        ({"bid": ("<f8", float("nan"))}, "tick 1: bid cannot be nan"),
        ({"bid": ("S4", b"x")}, "bid has the type"),
        ({"bid": (("<f8", (2,)), 1)}, "bid has the type"),
        ({"time_ns": ("<i8", 0)}, "tick 1: time_ns is before that of the tick above"),
        ({"aggressor": ("<i8", 7)}, "tick 1: aggressor is"),
    ):
        with pytest.raises(UsageError, match=words):
            load(tick(**changes), None, 1)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def test_hostile_numpy_files(tmp_path):
    path = tmp_path / "hostile.npy"
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    fields = str([(n, k) for n, k in FIELDS])
    for content in (
        pickled.getvalue(),
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00" + bytes(10),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 15 + ",), }"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-5,), }"),
        npy(f"{{'descr': {fields}, 'fortran_order': False, 'shape': (4000000000,), }}", bytes(480)),
        npy("{'descr': " + "[" * 200 + "]" * 200 + ", 'fortran_order': False, 'shape': (2,), }"),
        npy("__import__('os').system('true')"),
        npy("{'descr': 'V99999999999', 'fortran_order': False, 'shape': (2,), }"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="is no array of ticks"):
            load(str(path), None, 1)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_one_sentence(content):
    import tempfile

    for head in (b"", HEADER.encode() + b"\n", b"\x93NUMPY\x01\x00"):
        with tempfile.NamedTemporaryFile() as place:
            place.write(head + content)
            place.flush()
            try:
                load(place.name, None, 1)
            except UsageError as error:
                assert "\n" not in str(error)


def test_sizes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(arrivals, "_MOST", 2)
    with pytest.raises(UsageError, match="has 3 ticks; 2 at most"):
        load(file(tmp_path, *two(), ROW.replace("1000", "3000")), None, 1)
    monkeypatch.setattr(arrivals, "_LARGEST", 50)
    with pytest.raises(UsageError, match="larger than 50 bytes"):
        load(file(tmp_path, *two()), None, 1)


def test_a_sound_file_is_not_read_the_slow_way(tmp_path, monkeypatch):
    monkeypatch.setattr(arrivals, "_blame", None)
    rows = [f"{i * 1000},99.5,100.0,100.0,10,20,5,1" for i in range(5_000)]
    assert len(load(file(tmp_path, *rows), None, 1).ticks) == 5_000
