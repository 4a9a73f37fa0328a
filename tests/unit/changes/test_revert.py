"""The way back: in any order, around what others did, after boots, and from half of a change."""

from __future__ import annotations

import errno
import os
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import boot, kinds
from hwtune.changes.journal import Journal
from hwtune.changes.revert import Reverted, WayBack
from hwtune.changes.system import ChangeError, temporary_of
from hwtune.cli.revert import choose
from tests.support.fake_kernel import BOOT_ID, UNITS
from tests.support.small_box import GOVERNORS, SYSCTL_D, THP, Box, changes

if TYPE_CHECKING:
    from hwtune.changes.system import FileState

SWAPPINESS = "/proc/sys/vm/swappiness"
TUNED = f"{UNITS}/tuned.service"
STOP = kinds.UnitState("tuned.service", "stopped")


def swap(value: int) -> kinds.SysctlChange:
    return kinds.SysctlChange("vm.swappiness", str(value))


def statuses(reverted: Reverted) -> list[str]:
    return [o.status for o in reverted.outcomes]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("drift", [None, 0, 1, 2])
def test_sets_over_one_value_go_in_any_order(box: Box, order: tuple[int, ...], drift: int | None) -> None:
    """Three sets set one sysctl; ``drift``: after that one, someone else sets it."""
    pristine = box.tree.state()
    ids = []
    for n in range(3):
        ids.append(box.apply(swap(n + 1), *([STOP] if n == 1 else [])).set_id)
        if n == drift:
            box.kernel.put(SWAPPINESS, "30\n")
    for position, n in enumerate(order):
        box.revert(ids[n])
        left = [m for m in range(3) if m not in order[: position + 1]]
        # the newest set that is left has its way, unless someone had his after it
        if left and (drift is None or max(left) > drift):
            assert box.read(SWAPPINESS) == str(max(left) + 1)
            assert f"vm.swappiness = {max(left) + 1}" in box.read(SYSCTL_D)
    if drift is not None:
        assert box.read(SWAPPINESS) == "30"
        box.kernel.put(SWAPPINESS, "60\n")
    assert box.tree.state() == pristine
    box.revert(force=True)
    assert box.tree.state() == pristine
    assert box.ledger.active_sets() == []


def test_file_that_two_sets_want_alike_goes_with_the_last(box: Box) -> None:
    """The second set has nothing to write into the file: it is there already, by the first."""
    pristine = box.tree.state()
    first = box.apply(swap(1)).set_id
    box.kernel.put(SWAPPINESS, "30\n")
    second = box.apply(swap(1)).set_id
    assert box.revert(first).whole
    assert "vm.swappiness = 1" in box.read(SYSCTL_D)
    assert box.verify()[f"file:{SYSCTL_D}"].set_id == second
    assert box.revert(second).whole
    box.kernel.put(SWAPPINESS, "60\n")
    assert box.tree.state() == pristine
    assert box.verify() == {}


def test_value_that_a_set_finds_done_is_kept_for_it(box: Box) -> None:
    """The second set only has to make last what the first one set: it holds the value all the same."""
    pristine = box.tree.state()
    before = box.read(THP)
    first = box.apply(kinds.SysfsAttribute(THP, "never"), runtime_only=True).set_id
    writes = len(box.kernel.writes)
    second = box.apply(kinds.SysfsAttribute(THP, "never"))
    assert [o.status for o in second.outcomes] == ["changed"]
    assert THP not in str(box.kernel.writes[writes:])
    assert statuses(box.revert(first).sets[0]) == ["unchanged"]
    assert "[never]" in box.read(THP)
    assert box.verify()[f"sysfs:{THP}"].set_id == second.set_id
    box.reboot()
    assert boot.run(box.kernel, lambda line: None, patience_s=0) == 0
    assert "[never]" in box.read(THP)
    assert box.revert(second.set_id).whole
    assert box.read(THP) == before
    box.kernel.put(BOOT_ID, "boot-1\n")
    assert box.tree.state() == pristine


def test_value_that_two_sets_hold_goes_with_the_first_of_them_last(box: Box) -> None:
    pristine = box.tree.state()
    first = box.apply(kinds.SysfsAttribute(THP, "never"), runtime_only=True).set_id
    second = box.apply(kinds.SysfsAttribute(THP, "never")).set_id
    assert box.revert(second).whole
    assert "[never]" in box.read(THP)
    assert box.revert(first).whole
    assert box.tree.state() == pristine
    assert box.verify() == {}


def test_change_that_fails_gives_back_what_it_found_done(box: Box) -> None:
    """The value is there, and cannot be made to last: it stays the first set's, and goes with it."""
    first = box.apply(kinds.SysfsAttribute(THP, "never"), runtime_only=True).set_id
    write = box.kernel.write_file

    def full(path: str, state: FileState) -> None:
        raise ChangeError(f"cannot write {path}: {os.strerror(errno.ENOSPC)}", errno.ENOSPC)

    box.kernel.write_file = full  # type: ignore[method-assign]
    failed = box.apply(kinds.SysfsAttribute(THP, "never"))
    assert [o.status for o in failed.outcomes] == ["failed"]
    assert "[never]" in box.read(THP)
    box.kernel.write_file = write  # type: ignore[method-assign]
    assert [s.id for s in box.ledger.active_sets()] == [first]
    assert statuses(box.revert(first).sets[0]) == ["restored"]
    assert "[always]" in box.read(THP)


def test_file_of_a_store_that_someone_removed_is_not_made_again(box: Box) -> None:
    """Not even where hwtune had removed it itself once, at the end of an earlier set."""
    theirs = "vm.swappiness = 45\n"
    os.unlink(box.root / SYSCTL_D.lstrip("/"))
    box.apply(swap(1))
    assert box.revert().whole
    box.kernel.put(SYSCTL_D, theirs)
    box.apply(swap(1))
    os.unlink(box.root / SYSCTL_D.lstrip("/"))
    assert not box.revert().whole
    assert not (box.root / SYSCTL_D.lstrip("/")).exists()
    assert box.revert(force=True).whole
    assert box.read(SYSCTL_D) == theirs.rstrip("\n")


def test_folder_that_hwtune_made_goes_with_the_last_of_its_files(box: Box) -> None:
    nvlink = kinds.ModuleOption("nvidia", "NVreg_NvLinkDisable", "0")
    other = kinds.ModuleOption("nvme", "poll_queues", "4")
    pristine = box.tree.state()
    first = box.apply(nvlink).set_id
    second = box.apply(other).set_id
    assert box.revert(first).whole
    assert "poll_queues" in box.read("/etc/modprobe.d/zz-hwtune.conf")
    assert box.revert(second).whole
    assert box.tree.state() == pristine


def test_folder_with_what_a_crash_left_goes_with_its_own_set(box: Box) -> None:
    """A run was killed in the middle of its first file there; another set is reverted in between."""
    pristine = box.tree.state()
    first = box.apply(swap(1)).set_id
    write = box.kernel.write_file

    def killed(path: str, state: FileState) -> None:
        (box.root / temporary_of(path).lstrip("/")).write_bytes(state.content[:5])
        raise KeyboardInterrupt

    box.kernel.write_file = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        box.apply(kinds.SysfsAttribute(THP, "never"))
    box.kernel.write_file = write  # type: ignore[method-assign]
    assert len(os.listdir(box.root / "etc/hwtune")) == 1
    assert box.revert(first).whole
    assert box.revert().whole
    assert box.tree.state() == pristine


def test_folder_that_others_came_to_use_stays(box: Box) -> None:
    box.apply(kinds.ModuleOption("nvidia", "NVreg_NvLinkDisable", "0"))
    (box.root / "etc/modprobe.d/mine.conf").write_text("options mine x=1\n")
    assert box.revert().whole
    assert os.listdir(box.root / "etc/modprobe.d") == ["mine.conf"]
    assert box.verify() == {}


def test_check_tells_what_revert_then_does(box: Box) -> None:
    box.apply(*changes())
    box.apply(swap(2), STOP)
    box.kernel.put(GOVERNORS[0], "schedutil\n")
    state, journal = box.tree.state(), box.journal.records()
    for ids in ((), (next(iter(box.ledger.sets)),)):
        told = box.rehearse_revert(*ids)
        assert box.tree.state() == state
        assert box.journal.records() == journal
    told = box.rehearse_revert()
    done = box.revert()
    assert told.sets == done.sets
    assert [(f.target.key, f.before, f.after) for f in told.files] == [
        (f.target.key, f.before, f.after) for f in done.files
    ]
    assert told.commands == done.commands == [
        "udevadm control --reload", "/usr/sbin/update-grub", "systemctl daemon-reload",
    ]  # fmt: skip
    assert told.reboot_required
    assert not done.whole
    assert [o.target for r in done.sets for o in r.outcomes if o.status == "kept"] == [
        f"sysfs:{GOVERNORS[0]}"
    ]


def test_value_that_someone_changed_is_left_unless_forced(box: Box) -> None:
    box.apply(swap(1), kinds.SysfsAttribute(THP, "never"))
    box.kernel.put(SWAPPINESS, "30\n")
    back = box.revert()
    assert statuses(back.sets[0]) == ["restored", "kept"]
    assert back.sets[0].outcomes[1].reason == "it is 30 now, not what hwtune set; --force overrides that"
    assert [s.status for s in box.ledger.active_sets()] == ["partly reverted"]
    # it is nobody's concern any more: verify does not ask for it
    assert box.verify() == {}
    records = len(box.journal.records().records)
    assert statuses(box.revert().sets[0]) == ["kept"]
    assert len(box.journal.records().records) == records
    assert statuses(box.revert(force=True).sets[0]) == ["restored"]
    assert box.read(SWAPPINESS) == "60"
    assert box.ledger.active_sets() == []


def test_newest_set_is_the_newest_that_is_not_over(box: Box) -> None:
    older = box.apply(kinds.SysfsAttribute(THP, "never")).set_id
    newer = box.apply(swap(1)).set_id
    box.kernel.put(SWAPPINESS, "30\n")
    assert [s.id for s in choose(box.ledger, None, False, False)] == [newer]
    box.revert(newer)
    assert [s.id for s in choose(box.ledger, None, False, False)] == [older]
    assert [s.id for s in choose(box.ledger, None, False, True)] == [newer]
    assert [s.id for s in choose(box.ledger, None, True, False)] == [newer, older]


def test_set_that_came_to_nothing_is_none_to_revert(box: Box) -> None:
    first = box.apply(swap(1)).set_id
    box.kernel.refuse[THP] = 5
    box.apply(kinds.SysfsAttribute(THP, "never"))
    assert [s.status for s in box.ledger.sets.values()] == ["in force", "nothing changed"]
    assert [s.id for s in choose(box.ledger, None, False, False)] == [first]


# -- boots -------------------------------------------------------------------------------------


def test_value_of_this_boot_only_is_gone_with_it(box: Box) -> None:
    box.kernel.put(SWAPPINESS, "37\n")  # set by hand in the boot before
    box.apply(swap(1), runtime_only=True)
    box.reboot()
    back = box.revert()
    assert back.whole
    assert (statuses(back.sets[0]), back.sets[0].outcomes[0].reason) == (
        ["unchanged"], "the machine has booted since, and it is 60 now",
    )  # fmt: skip
    assert box.read(SWAPPINESS) == "60"


def test_value_that_the_boot_set_again_is_put_back(box: Box) -> None:
    pristine = box.tree.state()
    box.apply(swap(1), kinds.SysfsAttribute(THP, "never"))
    box.reboot()
    box.kernel.put(SWAPPINESS, "1\n")  # as systemd-sysctl does by hwtune's file
    back = box.revert()
    assert back.whole and statuses(back.sets[0]) == ["unchanged", "restored"]
    box.kernel.put("/proc/sys/kernel/random/boot_id", "boot-1\n")
    assert box.tree.state() == pristine


@pytest.mark.parametrize("refuses", [False, True])
def test_value_that_only_another_boot_takes(box: Box, refuses: bool) -> None:
    """The kernel cuts some CPU masks to what the boot arguments leave, or refuses those that are left
    with none (net/core/net-sysfs.c, rps_cpumask_housekeeping)."""
    box.apply(kinds.SysfsAttribute(THP, "never"), swap(1))
    box.kernel.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
    if refuses:
        box.kernel.refuse[THP] = errno.EINVAL
        why = f"cannot write {THP}: Invalid argument; this kernel or driver does not take the value"
    else:
        box.kernel.effects = {THP: {THP: "always madvise [never]\n"}}
        why = "it reads back as never"
    back = box.revert()
    assert back.whole and back.reboot_required
    assert [(o.status, o.reason) for o in back.sets[0].outcomes] == [
        ("restored", ""),
        ("unchanged", f"this boot does not take always ({why}); the next one starts without hwtune"),
    ]
    assert box.verify() == {} and box.ledger.active_sets() == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_value_that_its_own_boot_does_not_take_is_a_failure(box: Box, number: int) -> None:
    box.apply(kinds.SysfsAttribute(THP, "never"))
    box.kernel.refuse[THP] = number
    back = box.revert()
    assert not back.whole and statuses(back.sets[0]) == ["failed"]
    found = box.verify()[f"sysfs:{THP}"]
    assert (found.status, found.reason) == (
        "interrupted", "a run did not finish putting this back; it is not as it was before",
    )  # fmt: skip
    box.kernel.refuse.clear()
    assert box.revert().whole


def test_value_that_the_boot_set_for_an_older_set_goes_with_it(box: Box) -> None:
    """The newer set was for this boot only (or killed before it could keep its value), so that the boot sets
    the older one's. The last of them to go puts back what was there before both."""
    pristine = box.tree.state()
    first = box.apply(swap(1)).set_id
    second = box.apply(swap(2), runtime_only=True).set_id
    box.reboot()
    box.kernel.put(SWAPPINESS, "1\n")  # systemd-sysctl, from the first set's file
    assert statuses(box.revert(first).sets[0]) == ["unchanged"]
    assert statuses(box.revert(second).sets[0]) == ["restored"]
    assert box.read(SWAPPINESS) == "60"
    box.kernel.put(BOOT_ID, "boot-1\n")
    assert box.tree.state() == pristine


def test_value_that_someone_set_after_the_older_set_was_gone_is_theirs(box: Box) -> None:
    first = box.apply(swap(1)).set_id
    second = box.apply(swap(2), runtime_only=True).set_id
    box.revert(first)
    box.reboot()
    box.kernel.put(SWAPPINESS, "1\n")  # by hand: nothing of hwtune's sets that any more
    assert statuses(box.revert(second).sets[0]) == ["unchanged"]
    assert box.read(SWAPPINESS) == "1"


def test_interrupts_that_the_boot_moved_stay_until_the_next(box: Box) -> None:
    def moved(back: WayBack) -> list[str]:
        return [o.status for o in back.sets[0].outcomes if o.target == "irqs-away:2-3"]

    box.apply(kinds.IrqAffinity(24, (0, 1), (2, 3)), kinds.SysfsAttribute(THP, "never"))
    box.reboot()
    box.kernel.put(THP, "always madvise [never]\n")
    box.kernel.refuse[THP] = errno.EIO
    for _ in range(2):
        back = box.revert()
        assert moved(back) == ["unchanged"] and back.reboot_required and not back.whole
    # this boot has started without the list
    box.reboot()
    back = box.revert()
    assert moved(back) == [] and back.whole and not back.reboot_required


def test_boot_that_is_not_known_is_no_excuse(box: Box) -> None:
    os.unlink(box.root / "proc/sys/kernel/random/boot_id")
    box.apply(swap(1))
    box.kernel.put(SWAPPINESS, "30\n")
    assert statuses(box.revert().sets[0]) == ["kept"]


def test_device_that_is_gone(box: Box) -> None:
    box.apply(kinds.SysfsAttribute(GOVERNORS[1], "performance"))
    os.unlink(box.root / GOVERNORS[1].lstrip("/"))
    back = box.revert()
    assert back.whole and statuses(back.sets[0]) == ["gone"]


def test_file_that_someone_removed_is_not_made_again(box: Box) -> None:
    box.apply(kinds.FileContent("/etc/motd", "Tuned.\n"))
    os.unlink(box.root / "etc/motd")
    assert statuses(box.revert().sets[0]) == ["kept"]
    assert not os.path.exists(box.root / "etc/motd")


# -- halves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", ["enabled inactive", "disabled active"])
def test_unit_of_which_a_crash_changed_one_half(box: Box, half: str) -> None:
    pristine = box.tree.state()
    announce(box, "unit tuned.service", "enabled active", "disabled inactive")
    box.kernel.put(TUNED, half + "\n")
    assert box.verify()["service:tuned"].status == "interrupted"
    assert box.revert().whole
    assert box.tree.state() == pristine


def test_unit_in_a_state_that_no_half_explains_is_someone_elses(box: Box) -> None:
    announce(box, "unit tuned.service", "enabled active", "disabled inactive")
    box.kernel.put(TUNED, "masked inactive\n")
    assert statuses(box.revert().sets[0]) == ["kept"]


def announce(box: Box, target: str, before: Any, after: Any) -> None:
    """What a run that died right after it announced a change leaves."""
    journal = Journal(box.folder)
    journal.open("a test")
    journal.append("begin", set="s1", time="", boot="boot-1", command="hwtune apply")
    journal.append(
        "intent", set="s1", n=1, target=target, before=before, after=after, change="stop it", store=""
    )
    journal.close()


def test_way_back_that_was_interrupted_between_its_two_halves(box: Box) -> None:
    pristine = box.tree.state()
    box.apply(STOP)
    set_id = next(iter(box.ledger.sets))
    journal = Journal(box.folder)
    journal.open("a test")
    journal.append("reverting", set=set_id)
    journal.append("restoring", set=set_id, n=1, now="disabled inactive", to="enabled active")
    journal.close()
    box.kernel.put(TUNED, "enabled inactive\n")
    assert box.verify()["service:tuned"].status == "interrupted"
    assert box.revert().whole
    assert box.tree.state() == pristine


# -- a journal that is damaged -----------------------------------------------------------------


def test_damaged_journal_gives_back_what_it_still_tells(box: Box) -> None:
    box.apply(swap(1), kinds.SysfsAttribute(THP, "never"))
    path = f"{box.folder}/journal"
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    damaged = next(
        n for n, line in enumerate(lines) if b'"record":"intent"' in line and b"swappiness" in line
    )
    lines[damaged] = lines[damaged].replace(b"swappiness", b"swabbiness")
    with open(path, "wb") as file:
        file.write(b"\n".join(lines))
    assert box.journal.records().damaged == [f"{path}: line {damaged + 1} is damaged"]
    box.revert()
    assert box.read(THP) == "[always] madvise never"
    assert box.read(SWAPPINESS) == "1"  # of which nothing is known any more


def test_damaged_beginning_keeps_the_rest(box: Box) -> None:
    pristine = box.tree.state()
    box.apply(swap(1))
    path = f"{box.folder}/journal"
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(content.replace(b'{"record":"begin"', b'{"record":"bogus"', 1))
    assert len(box.ledger.active_sets()) == 1
    assert box.revert().whole
    assert box.tree.state() == pristine
