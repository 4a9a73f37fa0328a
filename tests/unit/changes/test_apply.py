"""Plan, apply and verify on a small box: what is written, what is not, and what is said of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hwtune.changes import kinds
from hwtune.changes.apply import Applied
from hwtune.changes.verify import suspects
from hwtune.diagnosis.engine import probe
from hwtune.fact import known
from hwtune.model import Machine
from hwtune.model.kernel import Service
from tests.support.fake_kernel import DROP_IN, UNITS
from tests.support.small_box import FOREIGN, GOVERNORS, SYSCTL_D, THP, Box, changes

SWAPPINESS, BALANCING = "/proc/sys/vm/swappiness", "/proc/sys/kernel/numa_balancing"
SWAP = kinds.SysctlChange("vm.swappiness", "1")
BALANCE = kinds.SysctlChange("kernel.numa_balancing", "0")
NEVER = kinds.SysfsAttribute(THP, "never")
ISOLATE = kinds.KernelArguments(set=("isolcpus=domain,managed_irq,2-3", "nohz_full=2-3"))
MOTD = kinds.FileContent("/etc/motd", "Tuned.\n")
RULES = "/etc/udev/rules.d/99-zz-hwtune.rules"


def statuses(done: Applied) -> list[str]:
    return [o.status for o in done.outcomes]


def reasons(done: Applied) -> str:
    return " | ".join(o.reason for o in done.outcomes)


# -- doing it, once ----------------------------------------------------------------------------


def test_check_tells_what_apply_then_does(box: Box) -> None:
    pristine = box.tree.state()
    told = box.rehearse(*changes())
    assert box.tree.state() == pristine
    assert not os.path.exists(box.folder)
    done = box.apply(*changes())
    assert statuses(told) == ["planned"] * 15
    assert statuses(done) == ["changed"] * 15
    for one, other in zip(told.outcomes, done.outcomes, strict=True):
        one.status = other.status
        assert one == other
    assert [(f.target.key, f.before, f.after) for f in told.files] == [
        (f.target.key, f.before, f.after) for f in done.files
    ]
    assert told.commands == done.commands == [
        "udevadm control --reload", "/usr/sbin/update-grub", "systemctl daemon-reload",
    ]  # fmt: skip
    assert told.reboot_required and done.reboot_required
    # and every file that differs now was told
    files = {f.target.key.partition(" ")[2] for f in told.files}
    for path, state in box.tree.state().items():
        if path.startswith("/etc/") and pristine.get(path) != state:
            assert path in files


def test_second_apply_writes_nothing_at_all(box: Box) -> None:
    assert box.apply(*changes()).whole
    state, writes = box.tree.state(), len(box.kernel.writes)
    journal = Path(box.folder, "journal").read_bytes()
    done = box.apply(*changes())
    assert (done.changed, done.set_id, done.whole, done.files, done.commands) == (False, None, True, [], [])
    assert statuses(done) == ["unchanged"] * 15
    assert (box.tree.state(), len(box.kernel.writes)) == (state, writes)
    assert Path(box.folder, "journal").read_bytes() == journal


def test_equal_values_are_not_written(box: Box) -> None:
    box.kernel.put(SWAPPINESS, "1\n")
    done = box.apply(SWAP, BALANCE)
    # the one is only kept for the next boot
    assert box.kernel.writes == [(BALANCING, "0")]
    assert statuses(done) == ["changed", "changed"]
    assert "vm.swappiness = 1" in box.read(SYSCTL_D)


def test_values_are_written_the_way_of_the_pair(box: Box) -> None:
    wanted = kinds.SysctlChange("vm.dirty_bytes", "268435456", clears=("vm.dirty_ratio",))
    done = box.apply(wanted)
    assert (done.outcomes[0].before, done.outcomes[0].after) == (
        "vm.dirty_ratio = 20",
        "vm.dirty_bytes = 268435456",
    )
    assert box.revert().whole
    # a 0 is never written to either: the kernel refuses that
    assert box.kernel.writes == [
        ("/proc/sys/vm/dirty_bytes", "268435456"),
        ("/proc/sys/vm/dirty_ratio", "20"),
    ]


def test_what_disrupts_needs_to_be_allowed(box: Box) -> None:
    stop = kinds.UnitState("tuned.service", "stopped")
    done = box.apply(SWAP, ISOLATE, stop, allow=())
    assert statuses(done) == ["changed", "not-allowed", "not-allowed"]
    assert [o.reason for o in done.outcomes[1:]] == [
        "it takes a reboot; --allow boot permits it",
        "it takes a service-restart; --allow service permits it",
    ]
    assert not done.whole and not done.reboot_required
    assert box.read(f"{UNITS}/tuned.service") == "enabled active"
    done = box.apply(SWAP, ISOLATE, stop, allow=("service",))
    assert statuses(done) == ["unchanged", "not-allowed", "changed"]


def test_runtime_only_keeps_nothing(box: Box) -> None:
    pristine = box.tree.state()
    done = box.apply(SWAP, NEVER, ISOLATE, runtime_only=True)
    assert statuses(done) == ["changed", "changed", "not-allowed"]
    now = box.tree.state()
    assert {p for p in now if now[p] != pristine.get(p)} == {SWAPPINESS, THP}
    # what is so already may still be kept later
    assert statuses(box.apply(SWAP, NEVER)) == ["changed", "changed"]
    assert len(box.kernel.writes) == 2
    assert box.revert().whole
    assert box.tree.state() == pristine


def test_rows_that_want_different_values_of_one_thing(box: Box) -> None:
    done = box.apply(
        SWAP, kinds.SysctlChange("vm.swappiness", "10"), kinds.SysctlChange("vm.swappiness", "1")
    )
    # the third is the first once more, so it is one change
    assert statuses(done) == ["changed", "failed"]
    assert "test.row sets it to another value" in done.outcomes[1].reason
    assert box.read(SWAPPINESS) == "1"


def test_value_that_moved_between_the_plan_and_the_write(box: Box) -> None:
    from hwtune.changes.apply import apply
    from hwtune.changes.journal import Journal

    plan = box.plan(SWAP, BALANCE)
    box.kernel.put(SWAPPINESS, "30\n")  # a person thought about it, and someone else did this
    box.kernel.put(BALANCING, "0\n")
    journal = Journal(box.folder)
    journal.open("a test")
    done = apply(plan, journal, box.kernel, "apply")
    journal.close()
    assert done.whole
    assert box.kernel.writes == [(SWAPPINESS, "1")]
    box.revert()
    assert box.read(SWAPPINESS) == "30"


def test_names_of_what_is_changed_are_the_same_on_every_run(box: Box) -> None:
    named = [(o.kind, o.target) for o in box.rehearse(*changes()).outcomes]
    assert named == [
        ("sysctl", "sysctl:vm.swappiness"),
        ("sysctl", "sysctl:kernel.numa_balancing"),
        ("sysctl", "sysctl:vm.dirty_bytes"),
        ("sysctl", "sysctl:net.netfilter.nf_conntrack_max"),
        ("sysfs", f"sysfs:{THP}"),
        ("sysfs", f"sysfs:{GOVERNORS[0]}"),
        ("sysfs", f"sysfs:{GOVERNORS[1]}"),
        ("sysfs", "sysfs:/sys/block/nvme0n1/queue/scheduler"),
        ("irq-affinity", "irq:24"),
        ("irq-default-affinity", "irq:default"),
        ("unit", "service:tuned"),
        ("kernel-arguments", "karg:isolcpus,nohz_full"),
        ("module-option", "module:nvidia/NVreg_NvLinkDisable"),
        ("file", "file:/etc/motd"),
        ("file", "file:/etc/hwtune.d/notes/box"),
    ]


# -- failures, each alone ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            errno.EPERM,
            "Operation not permitted; the kernel or a container's host does not let even root change it",
        ),
        (errno.EIO, "Input/output error"),
        (errno.EBUSY, "Device or resource busy"),
        (errno.ENOSPC, "No space left on device"),
        (errno.EROFS, "Read-only file system; set it on the host"),
        (errno.EINVAL, "Invalid argument; this kernel or driver does not take the value"),
    ],
)
def test_value_that_cannot_be_written(box: Box, number: int, words: str) -> None:
    box.kernel.refuse[SWAPPINESS] = number
    done = box.apply(BALANCE, SWAP, NEVER)
    assert statuses(done) == ["changed", "failed", "changed"]
    assert words in done.outcomes[1].reason
    # nothing of it is kept for the next boot either
    assert "swappiness" not in box.read(SYSCTL_D)
    assert box.verify().keys().isdisjoint({"sysctl:vm.swappiness"})
    assert box.read(SWAPPINESS) == "60"


def test_change_of_several_parts_is_undone_when_one_fails(box: Box) -> None:
    pristine = box.tree.state()
    wanted = kinds.FileContent("/etc/made/for/this/box", "x\n")
    box.kernel.write_file = lambda path, state: fail(path)  # type: ignore[method-assign]
    done = box.apply(wanted)
    assert statuses(done) == ["failed"]
    # the folders that were made for it are gone too
    assert box.tree.state() == pristine
    assert box.ledger.active_sets() == []


def fail(path: str, number: int = errno.ENOSPC) -> Any:
    from hwtune.changes.system import ChangeError

    raise ChangeError(f"cannot write {path}: {os.strerror(number)}", number)


def test_what_cannot_be_undone_is_told_and_stays_held(box: Box) -> None:
    # the kernel takes the value and shows another one, and takes none after that
    write = box.kernel.write_attribute

    def odd(path: str, value: str) -> None:
        write(path, "7")
        box.kernel.refuse[path] = errno.EIO

    box.kernel.write_attribute = odd  # type: ignore[method-assign]
    done = box.apply(SWAP)
    assert statuses(done) == ["failed"]
    assert done.outcomes[0].reason == (
        "it reads back as 7; and what it was could not be put back: "
        "cannot write /proc/sys/vm/swappiness: Input/output error"
    )
    assert box.verify()["sysctl:vm.swappiness"].status == "interrupted"
    box.kernel.write_attribute = write  # type: ignore[method-assign]
    box.kernel.refuse.clear()
    assert [o.status for o in box.revert().sets[0].outcomes] == ["kept"]
    assert box.revert(force=True).whole
    assert box.read(SWAPPINESS) == "60"


def test_read_only_etc_leaves_no_change_half_done(box: Box) -> None:
    pristine = box.tree.state()

    def read_only(path: str, *arguments: Any) -> Any:
        fail(path, errno.EROFS)

    box.kernel.write_file = read_only  # type: ignore[method-assign]
    done = box.apply(SWAP, NEVER, kinds.UnitState("tuned.service", "stopped"))
    assert statuses(done) == ["failed", "failed", "changed"]
    assert "Read-only file system" in done.outcomes[0].reason
    box.revert()
    assert box.tree.state() == pristine
    # without that it works
    assert statuses(box.apply(SWAP, NEVER, runtime_only=True)) == ["changed", "changed"]


def test_really_read_only_file_system(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errno from the system call on, as even the removal of what is not there gives it."""
    for name in ("unlink", "mkdir", "rename", "symlink"):
        kept = getattr(os, name)

        def refusing(path: Any, *arguments: Any, kept: Any = kept, **named: Any) -> Any:
            if "/etc/" in str(path):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            return kept(path, *arguments, **named)

        monkeypatch.setattr(os, name, refusing)
    opening = os.open

    def open_(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_CREAT and "/etc/" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opening(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", open_)
    done = box.apply(SWAP, MOTD)
    assert statuses(done) == ["failed", "failed"]
    assert done.outcomes[1].reason.startswith(
        "cannot write /etc/motd: Read-only file system; mount it writable"
    )
    assert box.read(SWAPPINESS) == "60"


def test_tool_that_fails_takes_only_its_change_with_it(box: Box) -> None:
    box.kernel.broken.add("update-grub")
    done = box.apply(SWAP, ISOLATE)
    assert statuses(done) == ["changed", "failed"]
    assert "cannot find a device for /" in done.outcomes[1].reason
    assert not os.path.exists(box.root / DROP_IN.lstrip("/"))
    assert not done.reboot_required
    # once it works, the next apply has it run, as the files changed and changed back in between
    box.kernel.broken.clear()
    done = box.apply(SWAP)
    assert done.commands == ["/usr/sbin/update-grub"]
    assert box.apply(SWAP).commands == []


def test_tool_that_is_missing(box: Box) -> None:
    del box.kernel.host.tools["udevadm"]  # type: ignore[attr-defined]
    done = box.apply(SWAP, kinds.SysfsAttribute("/sys/block/nvme0n1/queue/scheduler", "none", persist="udev"))
    assert statuses(done) == ["changed", "failed"]
    assert "udevadm is not installed" in done.outcomes[1].reason
    assert box.read("/sys/block/nvme0n1/queue/scheduler") == "[mq-deadline] none"
    assert not os.path.exists(box.root / RULES.lstrip("/"))


def test_attribute_that_is_not_there(box: Box) -> None:
    done = box.rehearse(kinds.SysfsAttribute("/sys/kernel/mm/nothing/enabled", "never"), SWAP)
    assert statuses(done) == ["failed", "planned"]
    assert done.outcomes[0].reason == "sysfs:/sys/kernel/mm/nothing/enabled does not exist here"


# -- files of others ---------------------------------------------------------------------------


def test_foreign_file_at_an_owned_path_comes_back_as_it_was(box: Box) -> None:
    place = box.root / SYSCTL_D.lstrip("/")
    if os.geteuid() == 0:
        os.chown(place, 1234, 4321)
    before = box.tree.state()[SYSCTL_D]
    box.apply(SWAP)
    box.apply(BALANCE)
    assert box.tree.state()[SYSCTL_D] != before
    box.revert()
    assert box.tree.state()[SYSCTL_D] == before
    assert box.read(SYSCTL_D) == FOREIGN.rstrip("\n")


def test_binary_file_comes_back(box: Box) -> None:
    (box.root / "etc/motd").write_bytes(b"\xff\x00\xfe no text\n")
    box.apply(MOTD)
    box.revert()
    assert (box.root / "etc/motd").read_bytes() == b"\xff\x00\xfe no text\n"


@pytest.mark.parametrize("target", ["/etc/passwd", "99-sysctl.conf", "nowhere"])
def test_link_at_an_owned_path_is_neither_followed_nor_replaced(box: Box, target: str) -> None:
    place = box.root / SYSCTL_D.lstrip("/")
    place.unlink()
    place.symlink_to(target)
    pristine = box.tree.state()
    done = box.apply(SWAP, NEVER)
    assert statuses(done) == ["failed", "changed"]
    assert "is a symbolic link, which hwtune does not follow" in done.outcomes[0].reason
    assert box.read(SWAPPINESS) == "60"
    box.revert()
    assert box.tree.state() == pristine


def test_folder_that_is_a_link_is_not_written_through(box: Box) -> None:
    (box.root / "etc/elsewhere").mkdir()
    (box.root / "etc/modprobe.d").symlink_to("elsewhere")
    wanted = kinds.ModuleOption("nvidia", "NVreg_NvLinkDisable", "0")
    assert statuses(box.rehearse(wanted)) == ["failed"]
    done = box.apply(wanted)
    assert statuses(done) == ["failed"]
    assert "/etc/modprobe.d is no directory" in done.outcomes[0].reason
    assert os.listdir(box.root / "etc/elsewhere") == []


def test_owned_file_that_an_administrator_edited_is_left_to_him(box: Box) -> None:
    box.apply(SWAP)
    edited = box.read(SYSCTL_D) + "\nvm.panic_on_oom = 1\n"
    box.kernel.put(SYSCTL_D, edited)
    done = box.rehearse(BALANCE, NEVER)
    assert statuses(done) == ["failed", "planned"]
    assert done.outcomes[0].reason == (
        f"{SYSCTL_D} was edited since hwtune wrote it; move the edits to a file of your own"
    )
    assert statuses(box.apply(BALANCE, NEVER)) == ["failed", "changed"]
    assert box.read(BALANCING) == "1"
    assert box.verify()[f"file:{SYSCTL_D}"].status == "drifted"
    back = box.revert()
    assert not back.whole and "was edited since" in back.sets[-1].problems[0]
    assert box.read(SWAPPINESS) == "60"
    assert box.read(SYSCTL_D) == edited.rstrip("\n")
    assert [s.status for s in box.ledger.active_sets()] == ["revert unfinished"]
    assert box.revert(force=True).whole
    assert box.read(SYSCTL_D) == FOREIGN.rstrip("\n")


def test_owned_file_that_was_removed_is_written_again(box: Box) -> None:
    box.apply(NEVER)
    os.unlink(box.root / "etc/hwtune/boot.json")
    done = box.apply(NEVER)
    assert statuses(done) == ["unchanged"]
    assert done.changed
    assert [f.target.key for f in done.files] == ["file /etc/hwtune/boot.json"]
    assert not box.apply(NEVER).changed


# -- what an interrupted run leaves ------------------------------------------------------------


def test_refresh_that_did_not_run_is_run_by_the_next_apply(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(argv: list[str]) -> str:
        raise Killed

    tools: Any = box.kernel.host.tools  # type: ignore[attr-defined]
    kept = tools["update-grub"]
    tools["update-grub"] = killed
    with pytest.raises(Killed):
        box.apply(ISOLATE)
    assert [s.status for s in box.ledger.active_sets()] == ["interrupted"]
    tools["update-grub"] = kept
    told = box.rehearse(ISOLATE)
    assert (told.commands, statuses(told), told.changed) == (["/usr/sbin/update-grub"], ["unchanged"], True)
    box.apply(ISOLATE)
    assert "isolcpus=domain,managed_irq,2-3" in box.read("/boot/grub/grub.cfg")
    assert [s.status for s in box.ledger.active_sets()] == ["in force"]
    assert not box.apply(ISOLATE).changed


def test_newer_journals_words_are_left_alone(box: Box) -> None:
    from hwtune.changes.journal import Journal

    journal = Journal(box.folder)
    journal.open("a newer version")
    journal.append("begin", set="s1", time="", boot="boot-1", command="")
    journal.append("weather", set="s1", sunny=True)
    journal.append(
        "intent", set="s1", n=1, target="quantum spin", before="up", after="down", change="x", store=""
    )
    journal.append("done", set="s1", n=1)
    journal.append("items", set="s1", items=[["flux", "capacitor", "1.21"]])
    journal.append("end", set="s1")
    journal.close()
    found = box.verify()["quantum:spin"]
    assert (found.status, "this version knows no quantum targets" in found.reason) == ("unknown", True)
    done = box.apply(SWAP)
    assert statuses(done) == ["changed"]
    assert "this version knows no flux store" in done.problems[0]
    back = box.revert("s1")
    assert [o.status for o in back.sets[0].outcomes] == ["failed"]
    assert box.read(SWAPPINESS) == "1"


# -- verify ------------------------------------------------------------------------------------


def test_verify_tells_drift_gone_and_pending(box: Box) -> None:
    box.apply(*changes())
    box.kernel.put(SWAPPINESS, "30\n")
    box.kernel.put(BALANCING, "1\n")
    os.unlink(box.root / GOVERNORS[1].lstrip("/"))
    found = box.verify()
    assert (found["sysctl:vm.swappiness"].status, found["sysctl:vm.swappiness"].now) == ("drifted", "30")
    assert found["sysctl:kernel.numa_balancing"].reason == "it is back at what it was before"
    assert found[f"sysfs:{GOVERNORS[1]}"].status == "gone"
    assert found["karg:isolcpus"].status == "pending-reboot"
    assert found["karg:isolcpus"].now == "isolcpus=1"
    assert found[f"sysfs:{THP}"].status == "in-force"


def test_verify_after_the_boot(box: Box) -> None:
    box.apply(SWAP, NEVER, ISOLATE)
    box.reboot()
    # a boot that took another entry, and where nobody set anything
    found = box.verify()
    assert found["sysctl:vm.swappiness"].status == "drifted"
    assert found["sysctl:vm.swappiness"].reason == (
        "it is back at what it was before and the machine has booted since it was set"
    )
    assert found["karg:isolcpus"].status == "drifted" and "without it" in found["karg:isolcpus"].reason
    assert found[f"file:{DROP_IN}"].status == "in-force"
    box.kernel.put("/proc/cmdline", box.kernel.next_command_line() + "\n")
    assert box.verify()["karg:isolcpus"].status == "in-force"


def test_menu_that_was_made_without_the_drop_in_is_drift(box: Box) -> None:
    box.apply(ISOLATE)
    box.kernel.put(
        "/boot/grub/grub.cfg", "menuentry 'Debian' --id 'd' {\n\tlinux /vmlinuz root=/dev/vda1\n}\n"
    )
    found = box.verify()["store:kargs"]
    assert (found.status, "has no isolcpus=domain,managed_irq,2-3" in found.reason) == ("drifted", True)


def test_suspects_are_those_that_set_this_value(box: Box) -> None:
    box.kernel.put("/etc/sysctl.conf", "vm.swappiness = 30\n")
    (box.root / "etc/sysctl.d/10-other.conf").write_text("vm.swappiness=10\nkernel.numa_balancing = 1\n")
    box.apply(SWAP, BALANCE)
    machine, defects = probe(box.kernel.host)
    assert defects == []
    key = f"attribute text {SWAPPINESS}"
    assert suspects(key, "30", machine) == ["/etc/sysctl.conf:1"]
    assert suspects(key, "10", machine) == ["/etc/sysctl.d/10-other.conf:1"]
    # nobody sets it to 55: all that set the key at all, but for hwtune's own file
    assert suspects(key, "55", machine) == ["/etc/sysctl.d/10-other.conf:1", "/etc/sysctl.conf:1"]


def test_suspects_among_services() -> None:
    machine = Machine()
    machine.service.services = [
        Service("tuned", known(True, "x"), known(True, "x"), "profile throughput-performance"),
        Service("irqbalance", known(True, "x"), known(True, "x")),
        Service("power-profiles-daemon", known(False, "x"), known(True, "x")),
    ]
    assert suspects("irq 24 - eth0", "CPUs 0-3", machine) == [
        "tuned (profile throughput-performance)",
        "irqbalance",
    ]
    assert suspects(f"attribute text {GOVERNORS[0]}", "powersave", machine) == [
        "tuned (profile throughput-performance)"
    ]
    assert "systemctl, or a package's update" in suspects("unit tuned.service", "", machine)


def test_links_of_others_are_kept_for_the_journal(box: Box) -> None:
    wants = box.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "hwtune-boot.service").symlink_to("/dev/null")
    pristine = box.tree.state()
    assert statuses(box.apply(NEVER)) == ["changed"]
    assert os.readlink(wants / "hwtune-boot.service") == "../hwtune-boot.service"
    assert box.revert().whole
    assert box.tree.state() == pristine
    (wants / "hwtune-boot.service").unlink()
    (wants / "hwtune-boot.service").write_text("in the way\n")
    done = box.apply(NEVER)
    assert statuses(done) == ["failed"]
    assert "is in the way: it is no symbolic link" in done.outcomes[0].reason


def test_value_that_drifted_is_set_again_without_writing_its_file_anew(box: Box) -> None:
    first, second = kinds.SysctlChange("vm.swappiness", "1"), kinds.SysctlChange("kernel.numa_balancing", "0")
    box.apply(first, second)
    box.kernel.put("/proc/sys/vm/swappiness", "30\n")
    again = box.apply(first)
    assert [o.status for o in again.outcomes] == ["changed"]
    assert again.files == [] and again.commands == []
    assert box.read(SYSCTL_D).splitlines()[-2:] == ["vm.swappiness = 1", "kernel.numa_balancing = 0"]


def test_of_two_that_exclude_each_other_the_last_that_was_wanted_has_its_way(box: Box) -> None:
    ratio = kinds.SysctlChange("vm.dirty_ratio", "10", clears=("vm.dirty_bytes",))
    amount = kinds.SysctlChange("vm.dirty_bytes", "268435456", clears=("vm.dirty_ratio",))
    for change in (ratio, amount, ratio):
        box.apply(change)
    assert box.read(SYSCTL_D).splitlines()[-2:] == ["vm.dirty_bytes = 268435456", "vm.dirty_ratio = 10"]
