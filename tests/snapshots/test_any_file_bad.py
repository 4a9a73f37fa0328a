"""Any single file of a machine may be bad: the rest is diagnosed, and nothing unread is taken as good."""

from __future__ import annotations

import json
import shutil
import time
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import load
from hwtune.report.published import encode, publish
from hwtune.report.terminal import Style
from hwtune.report.text import render
from tests.snapshots.machines import folders
from tests.support import rich
from tests.support.damage import CONTENTS, GAPS, UNREADABLE_ON_DISK, Damaged, damaged
from tests.support.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hwtune.host.base import Host

ON_DISK = (*UNREADABLE_ON_DISK, *CONTENTS, "truncated", "text of another")
AT_THE_HOST = (*GAPS, *CONTENTS, "truncated", "text of another")
# Seconds of CPU time of one diagnosis; the whole box takes some hundredths.
BOUND_S = 8.0

# A file that cannot be read makes rows unknown and nothing else, but for these, each with its reason.
STILL_KNOWN = {
    # meminfo says by itself that there is no swap area
    ("memory.swappiness", "swaps"): {"not-applicable"},
    ("memory.swap-in-use", "swaps"): {"not-applicable", "ok"},
    # a pasted text that is gone is as if it had never been there: NVML answers for the GPU
    ("gpu.lost", "dmesg.txt"): {"ok"},
    # one GPU alone has nobody to link with, whatever its links say
    ("nvlink.inactive", "0005.json"): {"not-applicable"},
    # this profile takes turbo on and off alike
    ("cpu.turbo", "no_turbo"): {"not-applicable"},
    # what a driver offers is known whether or not the kernel was built to take it
    ("nic.xdp-support", "config-6.1.0-13-amd64"): {"ok"},
}


def outcomes(host: Host) -> dict[str, str]:
    """Row id -> outcome, of a diagnosis without a defect whose reports are fit to print."""
    began = time.process_time()
    machine, defects = probe(host)
    profile = load()
    diagnosis = judge(machine, [row for row in table() if not row.active], profile, defects)
    text = render(diagnosis, host, profile, Style(80, False))
    encode(publish(diagnosis, host, profile))
    assert diagnosis.defects == []
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert time.process_time() - began < BOUND_S
    return {result.id: result.outcome for result in diagnosis.results}


def check_unreadable(before: dict[str, str], after: dict[str, str], name: str) -> None:
    """Nothing that was not read is good, wrong, or beside the point: it is unknown."""
    for row, outcome in after.items():
        if outcome != before[row] and outcome not in STILL_KNOWN.get((row, name), ()):
            assert outcome == "unknown", (row, before[row], outcome)


def check_the_rest(before: dict[str, str], after: dict[str, str]) -> None:
    """Three rows of four say what they said, whatever the file."""
    changed = [row for row in after if after[row] != before[row]]
    assert len(changed) < len(after) / 4, changed


@cache
def whole(folder: Path) -> dict[str, str]:
    return outcomes(open_snapshot(str(folder)))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def check(folder: Path, path: Path, how: str, other: Path) -> None:
    before = whole(folder)
    with damaged(path, how, other.read_bytes()):
        after = outcomes(open_snapshot(str(folder)))
    if how in UNREADABLE_ON_DISK:
        check_unreadable(before, after, path.name)
    check_the_rest(before, after)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rich.build(tmp_path_factory.mktemp("box"))


def test_the_box_is_rich(box: Path) -> None:
    """Most rows have something to judge on it, and most of its files are read."""
    before = whole(box)
    assert sum(outcome in ("ok", "finding") for outcome in before.values()) > 0.8 * len(before)
    host = Watched(open_snapshot(str(box)))
    probe(host)
    assert len(host.found) > 400


@pytest.mark.timeout(300)
def test_each_file_once(box: Path) -> None:
    """Every file, the ways of being bad by turns."""
    files = files_of(box)
    for number, path in enumerate(files):
        # both numbers are prime to the counts that they meet, so that the pairs vary
        check(box, path, ON_DISK[number % len(ON_DISK)], files[number * 7 % len(files)])


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_file_in_any_way(box: Path, data: st.DataObject) -> None:
    files = files_of(box)
    path, other = data.draw(st.sampled_from(files)), data.draw(st.sampled_from(files))
    check(box, path, data.draw(st.sampled_from(ON_DISK)), other)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The box as a capture of ours."""
    folder = rich.build(tmp_path_factory.mktemp("capture"))
    manifest = {"tool": "hwtune", "format": 1, "complete": False, "captured_at": 1.7e9, "gaps": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_file_of_a_capture_of_ours(capture: Path, data: st.DataObject) -> None:
    """There an empty file was one. The manifest may be bad as well."""
    files = files_of(capture)
    path, other = data.draw(st.sampled_from(files)), data.draw(st.sampled_from(files))
    how = data.draw(st.sampled_from(ON_DISK))
    before = whole(capture)
    with damaged(path, how, other.read_bytes()):
        after = outcomes(open_snapshot(str(capture)))
    if path.name == "manifest.json":
        return
    if how in UNREADABLE_ON_DISK:
        check_unreadable(before, after, path.name)
    check_the_rest(before, after)


# -- recorded answers ------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(answer: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in an answer, the answer itself included."""
    yield path
    inner = (
        answer.items() if isinstance(answer, dict) else enumerate(answer) if isinstance(answer, list) else ()
    )
    for key, value in inner:
        yield from places(value, (*path, key))


def replaced(answer: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = answer.copy()
    copy[path[0]] = replaced(answer[path[0]], path[1:], value)
    return copy


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_an_answer_of_any_shape(box: Path, data: st.DataObject) -> None:
    """What a library said, as somebody may have edited it or another version may have written it."""
    number, (library, arguments, answer) = data.draw(st.sampled_from(list(enumerate(rich.answers()))))
    path = data.draw(st.sampled_from(list(places(answer))))
    value = replaced(answer, path, data.draw(JSON))
    said = json.dumps({"library": library, "arguments": arguments, "value": value}).encode()
    with damaged(box / "libraries" / f"{number:04d}.json", "text of another", said):
        outcomes(open_snapshot(str(box)))


# -- machines of others ---------------------------------------------------------------------------

# Each kind of capture: isolated RT box, NVMe drives, an old NUMA box, InfiniBand, GPUs, cpufreq.
ARCHIVES = (
    "node-tuning-operator/bare-metal-worker2.internal.tgz",
    "libnvme/test/sysfs/data/tree-pcie.tar.xz",
    "pcp/qa/linux/sysfs-numa-001.tgz",
    "derived/procfs.tar.gz",
    "derived/node_exporter.tar.gz",
    "util-linux/tests/ts/lsblk/dumps/simple-nvme.tar.xz",
    "ghw/testdata/snapshots/linux-amd64-offlineCPUs.tar.gz",
)


@lru_cache(maxsize=1)
def _open(path: Path) -> tuple[Host, dict[str, str], list[str]]:
    """The machine, what is said of it whole, and the files that are read of it."""
    host = Watched(open_snapshot(str(path)))
    before = outcomes(host)
    return host, before, sorted(host.found)


@pytest.mark.parametrize("name", ARCHIVES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_file_of_an_archive(realdata: Path, name: str, data: st.DataObject) -> None:
    host, before, files = _open(realdata / name)
    path, other = data.draw(st.sampled_from(files)), data.draw(st.sampled_from(files))
    how = data.draw(st.sampled_from(AT_THE_HOST))
    after = outcomes(Damaged(host, path, how, host.read_bytes(other).value or b""))
    if how in GAPS:
        check_unreadable(before, after, path.rpartition("/")[2])
    check_the_rest(before, after)


def _reports() -> list[str]:
    return sorted(path.name for root in folders() for path in (root / "reports").iterdir() if path.is_dir())


@pytest.mark.parametrize("name", _reports() or ["(none)"])
def test_any_text_of_a_report(realdata: Path, tmp_path: Path, name: str) -> None:
    """Folders of pasted texts: each text, the ways of being bad by turns."""
    folder = shutil.copytree(realdata / "reports" / name, tmp_path / "case")
    files = files_of(folder)
    # so that something is left to open where the only text is bad
    (folder / "cpuinfo.txt").write_text("processor : 0\nmodel name : none\n\nprocessor : 1\n\n")
    for number, path in enumerate(files):
        for how in ON_DISK[number % 3 :: 3]:
            with damaged(path, how, files[number - 1].read_bytes()):
                outcomes(open_snapshot(str(folder)))
