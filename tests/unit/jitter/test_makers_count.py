"""Noise whose makers write down each time that they disturb: found on its CPU, by its cause, as often as they
say; and nothing of it on the other CPU."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from tests.support import own_tracefs
from tests.support.made_noise import CANNOT

pytestmark = own_tracefs.needed

KINDS = ("fifo", "softirq", "fault")


@functools.cache
def made(kind):
    argv = own_tracefs.command(sys.executable, "-m", "tests.support.made_noise", kind)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["fifo", "softirq"])
def test_it_is_found_at_its_makers_rate(kind):
    noisy = made(kind)["noisy"]
    assert noisy["lost"] == 0
    assert noisy["done"] >= 20
    assert 0.95 * noisy["done"] <= noisy["matched"] <= noisy["done"]


def test_no_more_is_found_than_was_made():
    """Of the task, whose spans are known by its number; packets are steered for others too."""
    noisy = made("fifo")["noisy"]
    assert noisy["spans"] <= 1.05 * noisy["done"] + 1


def test_faults_are_as_many_as_the_kernel_charged():
    """A fork is followed by as many as the loop has pages to write to before the next one."""
    noisy = made("fault")["noisy"]
    assert noisy["lost"] == 0
    assert noisy["minor_faults"] >= 20
    assert noisy["matched"] >= 5
    assert abs(noisy["spans"] - noisy["minor_faults"]) <= 0.05 * noisy["minor_faults"] + 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_in_a_gap_and_named(kind):
    noisy = made(kind)["noisy"]
    assert noisy["outside"] <= 0.01 * noisy["spans"]
    assert noisy["gaps"] > 0
    # Where nothing else had a share it is the culprit, but for what a hypervisor took in the same gap.
    assert noisy["alone"] > 0
    assert noisy["alone_named"] >= 0.9 * noisy["alone"] - 1
    assert noisy["blamed"] >= noisy["alone_named"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_that_would_mend_it_are_named(kind):
    named = {"fifo": "known-noise", "softirq": "rps_trigger_softirq", "fault": "page fault"}
    first = {
        "fifo": "isolation.tasks",
        "softirq": "nic.rps",
        "fault": "memory.swap-in-use",
    }
    rows = [rows for _, name, _, rows in made(kind)["noisy"]["causes"] if named[kind] in name]
    assert rows
    assert first[kind] in rows[0]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_it_is_blamed_on_the_other_cpu(kind):
    quiet = made(kind)["quiet"]
    assert quiet["lost"] == 0
    assert quiet["spans"] == 0
    assert quiet["blamed"] == 0
