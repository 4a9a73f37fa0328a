"""hwtune is killed at every single step of an apply, of a revert and of a boot-time run, one by one.

After each: the history reads, verify tells the truth, `revert --all` puts everything back, and so does
an apply that is begun again followed by a revert. What a power cut leaves (runtime values gone, what
was not fsynced gone) is held to the same.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import boot, kinds
from hwtune.changes.apply import apply
from hwtune.changes.journal import Journal, decode
from hwtune.changes.ledger import Ledger
from hwtune.changes.persist import boot_unit, cpu_latency
from hwtune.changes.plan import make_plan
from hwtune.changes.revert import revert_all
from hwtune.changes.system import ChangeError
from hwtune.changes.verify import IN_FORCE, INTERRUPTED, PENDING, verify
from hwtune.report.changes import of_history
from hwtune.report.published import encode
from tests.crash.killing import Steps, killed
from tests.support import small_box
from tests.support.fake_kernel import BOOT_ID, UNITS, FakeKernel, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hwtune.changes.revert import WayBack

State = dict[str, tuple[str, str | bytes, int]]
_ALLOW = ("boot", "service", "link")
_SHM = Path("/dev/shm")


class Box:
    """The small box, its journal beside it, and what its states look like."""

    def __init__(self, folder: Path, kernel: FakeKernel, wanted: list[Any]) -> None:
        self.kernel = kernel
        self.wanted = wanted
        self.tree = Tree(str(folder / "root"))
        self.notes = Tree(str(folder / "journal"))
        os.mkdir(self.notes.root, 0o700)
        self.journal = Journal(self.notes.root)
        self.pristine = self.tree.state()
        self.applied: State = {}
        self.applied_notes: State = {}

    def apply(self) -> None:
        self._with_journal(
            lambda journal: apply(
                make_plan(
                    small_box.findings(self.wanted), self.kernel, Ledger(journal.records().records), _ALLOW
                ),
                journal,
                self.kernel,
                "apply",
            )
        )

    def revert(self) -> WayBack:
        def work(journal: Journal) -> WayBack:
            sets = list(reversed(Ledger(journal.records().records).active_sets()))
            return revert_all(sets, journal, self.kernel)

        back: WayBack = self._with_journal(work)
        return back

    def boot(self) -> None:
        boot.run(self.kernel, lambda line: None, patience_s=0)

    def _with_journal(self, work: Callable[[Journal], Any]) -> Any:
        journal = Journal(self.notes.root)
        journal.open("a test")
        try:
            return work(journal)
        finally:
            journal.close()

    def begin(self, state: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
        self.tree.restore(state)
        self.notes.restore(notes)

    def reboot(self) -> None:
        """Values of the kernel's own go back to what a boot gives; files stay."""
        for path, value in small_box.DEFAULTS.items():
            self.kernel.put(path, value + "\n")
        self.kernel.put(BOOT_ID, "boot-2\n")

    def start_up(self) -> None:
        """What sets values during a boot: hwtune's sysctl.d file, and its own unit."""
        state = self.tree.state()
        content = state.get(small_box.SYSCTL_D, ("", b"", 0))[1]
        if isinstance(content, bytes) and b"hwtune" in content:
            for line in content.decode().splitlines():
                key, _, value = line.partition(" = ")
                if value:
                    self.kernel.put("/proc/sys/" + key.replace(".", "/"), value + "\n")
                if key == "vm.dirty_bytes":
                    self.kernel.put("/proc/sys/vm/dirty_ratio", "0\n")
        if f"/etc/systemd/system/multi-user.target.wants/{boot_unit.UNIT}" in state:
            self.boot()


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    # fsync on a disk would take most of the time; whether it comes in time is looked at below
    folder = Path(mkdtemp(prefix="hwtune-crash-", dir=_SHM if _SHM.is_dir() else None))
    patch = pytest.MonkeyPatch()
    for module in (boot_unit, cpu_latency):
        patch.setattr(module, "interpreter", lambda: "/usr/bin/python3")
    try:
        found = Box(folder, small_box.make(folder), small_box.changes())
        found.apply()
        found.applied, found.applied_notes = found.tree.state(), found.notes.state()
        yield found
    finally:
        patch.undo()
        shutil.rmtree(folder)


# -- what must hold after each crash -----------------------------------------------------------


def differing(box: Box) -> dict[str, tuple[Any, Any]]:
    now = box.tree.state()
    return {
        p: (box.pristine.get(p), now.get(p))
        for p in {*now, *box.pristine}
        if now.get(p) != box.pristine.get(p)
    }


def paths_of(name: str) -> list[str]:
    """The files that a name of verify's stands for."""
    kind, _, rest = name.partition(":")
    if kind == "sysctl":
        return ["/proc/sys/" + key.replace(".", "/") for key in rest.split(",")]
    if kind == "irq":
        return [
            "/proc/irq/default_smp_affinity" if rest == "default" else f"/proc/irq/{rest}/smp_affinity_list"
        ]
    if kind == "service":
        return [f"{UNITS}/{rest}.service"]
    return [rest]


def look(box: Box) -> None:
    """The history reads, and verify tells the truth about what is there, known from the files alone."""
    records, _, damaged = box.journal.records()
    assert damaged == []
    ledger = Ledger(records)
    encode(of_history(ledger.sets.values(), "", []))
    found = verify(ledger, box.kernel, None)
    now = box.tree.state()
    for v in found:
        if v.target.startswith(("karg:", "module:", "store:")):
            continue
        as_wanted = all(now.get(path) == box.applied.get(path) for path in paths_of(v.target))
        as_before = all(now.get(path) == box.pristine.get(path) for path in paths_of(v.target))
        if "the run was interrupted" in v.reason:
            made = as_before if ledger.sets[v.set_id].reverting else as_wanted
            assert v.reason.endswith("the change was made") == made, v
        elif "putting this back" in v.reason:
            assert v.reason.endswith("it is as it was before") == as_before, v
        elif v.status != INTERRUPTED:
            assert (v.status == IN_FORCE) == as_wanted, v
    # nothing was changed that the journal does not tell
    told = {path for v in found for path in paths_of(v.target)}
    for path in differing(box):
        if not path.endswith(".hwtune-new") and path != "/boot/grub/grub.cfg":
            assert path in told, f"{path} was changed, and verify has no word of it"
    for change_set in ledger.active_sets():
        if change_set.status == "in force":  # it says that it is whole
            assert all(now.get(path) == box.applied.get(path) for path in differing(box))
        else:
            assert change_set.status in ("interrupted", "revert unfinished")


def put_back(box: Box, why: str) -> None:
    back = box.revert()
    assert back.whole, (why, back)
    assert differing(box) == {}, why
    assert verify(Ledger(box.journal.records().records), box.kernel, None) == []


def crash_all(
    box: Box, work: Callable[[], object], after: Callable[[int], None], begin: Callable[[], None]
) -> int:
    """Kill ``work`` before each of its steps, until it comes to its end. The number of crash points."""
    at = 0
    while True:
        at += 1
        begin()
        if not killed(work, box.kernel, at):
            return at - 1
        after(at)


# -- the crashes -------------------------------------------------------------------------------


@pytest.mark.timeout(240)
def test_apply_killed_at_every_step(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    def after(at: int) -> None:
        left = box.tree.state(), box.notes.state()
        look(box)
        put_back(box, f"revert after step {at}")
        # the other way on: begin again
        box.begin(*left)
        box.apply()
        assert box.tree.state() == box.applied, f"apply again after step {at}"
        look(box)
        box.apply()
        assert box.tree.state() == box.applied
        put_back(box, f"apply and revert after step {at}")

    points = crash_all(box, box.apply, after, lambda: box.begin(box.pristine, {}))
    report(capsys, "apply", points)
    assert points > 200


@pytest.mark.timeout(240)
def test_revert_killed_at_every_step(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    def after(at: int) -> None:
        left = box.tree.state(), box.notes.state()
        look(box)
        put_back(box, f"revert again after step {at}")
        # the other way on: apply, as if the revert was given up
        box.begin(*left)
        box.apply()
        assert box.tree.state() == box.applied, f"apply after step {at} of a revert"
        put_back(box, f"apply and revert after step {at} of a revert")
        # a boot comes first, which sets what files still say
        box.begin(*left)
        box.reboot()
        box.start_up()
        put_back_after_boot(box)

    points = crash_all(box, box.revert, after, lambda: box.begin(box.applied, box.applied_notes))
    report(capsys, "revert", points)
    assert points > 150


@pytest.mark.timeout(240)
def test_boot_time_run_killed_at_every_step(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    def begin() -> None:
        box.begin(box.applied, box.applied_notes)
        box.reboot()

    def after(at: int) -> None:
        look_after_boot(box)
        left = box.tree.state()
        box.boot()
        look_after_boot(box, finished=True)
        box.begin(left, box.applied_notes)
        put_back_after_boot(box)

    points = crash_all(box, box.boot, after, begin)
    report(capsys, "boot-time run", points)
    assert points >= 5
    begin()
    put_back_after_boot(box)


def look_after_boot(box: Box, finished: bool = False) -> None:
    found = verify(Ledger(box.journal.records().records), box.kernel, None)
    now = box.tree.state()
    for v in found:
        if v.target.startswith(("karg:", "module:", "store:")):
            continue
        as_wanted = all(now.get(path) == box.applied.get(path) for path in paths_of(v.target))
        assert (v.status == IN_FORCE) == as_wanted, v
        if finished and v.target.startswith(("sysfs:", "irq:")) and "nvme" not in v.target:
            assert v.status == IN_FORCE, v


def put_back_after_boot(box: Box) -> None:
    back = box.revert()
    assert back.whole, back
    left = set(differing(box)) - {BOOT_ID}
    if left:  # what only a boot puts back is told
        assert left == {"/proc/irq/25/smp_affinity_list"}
        assert any("irqs-away" in o.target for o in back.sets[0].outcomes)
        assert back.reboot_required


@pytest.mark.timeout(240)
def test_power_cut_at_every_step_of_an_apply(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the journal only what was fsynced is left, of the kernel's values nothing."""
    synced = Path(box.notes.root).parent / "synced"

    def work() -> None:
        # in the child: note how much of the journal is on the disk
        fsync = os.fsync

        def noting(handle: int) -> None:
            fsync(handle)
            if os.readlink(f"/proc/self/fd/{handle}").endswith("/journal/journal"):
                synced.write_text(str(os.fstat(handle).st_size))

        os.fsync = noting  # type: ignore[assignment]
        box.apply()

    def begin() -> None:
        box.begin(box.pristine, {})
        synced.write_text("0")

    def after(at: int) -> None:
        path = f"{box.notes.root}/journal"
        if os.path.exists(path):
            os.truncate(path, int(synced.read_text()))
        box.reboot()
        left = box.tree.state(), box.notes.state()
        assert box.journal.records().damaged == []
        put_back_after_boot(box)
        box.begin(*left)
        box.apply()
        put_back_after_boot(box)

    points = crash_all(box, work, after, begin)
    report(capsys, "power cut during apply", points)


@pytest.mark.timeout(240)
def test_apply_that_fails_killed_at_every_step(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be kept is taken back: that is killed too, and the next try with it."""
    wanted = [
        kinds.SysctlChange("vm.swappiness", "1"),
        kinds.KernelArguments(set=("nohz_full=2-3",)),
        kinds.SysfsAttribute(small_box.THP, "never"),
        kinds.FileContent("/etc/hwtune.d/notes/box", "cannot be written\n"),
    ]
    everything, box.wanted = box.wanted, wanted
    folder = f"{box.tree.root}/etc/hwtune.d/notes"

    def fails() -> None:
        box.kernel.broken |= {"update-grub", "systemctl"}
        write = box.kernel.write_file

        def refused(path: str, state: Any) -> None:
            if path.startswith("/etc/hwtune.d"):
                raise ChangeError(f"cannot write {path}: Input/output error")
            write(path, state)

        box.kernel.write_file = refused  # type: ignore[method-assign]
        box.apply()

    def after(at: int) -> None:
        left = box.tree.state(), box.notes.state()
        put_back(box, f"revert after step {at}")
        box.begin(*left)
        box.apply()
        assert verify(Ledger(box.journal.records().records), box.kernel, None) != []
        assert os.path.exists(f"{folder}/box")
        put_back(box, f"apply and revert after step {at}")

    try:
        points = crash_all(box, fails, after, lambda: box.begin(box.pristine, {}))
        # the run that came to its end has left only what did not fail
        assert set(differing(box)) == {"/proc/sys/vm/swappiness", small_box.SYSCTL_D}
        put_back(box, "a run that failed")
    finally:
        box.wanted = everything
    report(capsys, "apply that fails", points)
    assert points > 100


@pytest.mark.timeout(240)
def test_crash_upon_crash(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    """An apply is killed, and then what would mend it is killed too: every 13th step of the one with
    every 9th of the other."""
    points = 0
    for second in (box.revert, box.apply):
        first = 0
        while True:
            first += 13
            box.begin(box.pristine, {})
            if not killed(box.apply, box.kernel, first):
                break
            left = box.tree.state(), box.notes.state()
            at = 0
            while True:
                at += 9
                box.begin(*left)
                if not killed(second, box.kernel, at):
                    break
                points += 1
                assert box.journal.records().damaged == []
                put_back(box, f"steps {first} and {at}")
    report(capsys, "crash upon crash", points)
    assert points > 400


@pytest.mark.timeout(240)
def test_loader_that_is_changed_entry_by_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The entries of systemd-boot are several files: a crash leaves some of them changed."""
    folder = Path(mkdtemp(prefix="hwtune-crash-", dir=_SHM if _SHM.is_dir() else None))
    try:
        kernel = systemd_boot(folder)
        box = Box(folder, kernel, [kinds.KernelArguments(set=("isolcpus=domain,2-3",), remove=("nosmt",))])
        box.apply()
        box.applied, box.applied_notes = box.tree.state(), box.notes.state()
        assert box.applied != box.pristine

        def after(at: int) -> None:
            left = box.tree.state(), box.notes.state()
            put_back(box, f"revert after step {at}")
            box.begin(*left)
            box.apply()
            assert box.tree.state() == box.applied
            put_back(box, f"apply and revert after step {at}")

        points = crash_all(box, box.apply, after, lambda: box.begin(box.pristine, {}))
        points += crash_all(
            box,
            box.revert,
            lambda at: put_back(box, f"revert again after step {at}"),
            lambda: box.begin(box.applied, box.applied_notes),
        )
    finally:
        shutil.rmtree(folder)
    report(capsys, "systemd-boot, apply and revert", points)
    assert points > 60


def systemd_boot(folder: Path) -> FakeKernel:
    from tests.support import Directory, tree

    entry = "title Debian\nversion {0}\nlinux /{0}/linux\noptions root=/dev/vda1 nosmt quiet isolcpus={1}\n"
    root = tree(
        folder / "root",
        {
            BOOT_ID: "boot-1\n",
            "/proc/cmdline": "root=/dev/vda1 quiet isolcpus=1 nosmt\n",
            "/boot/loader/loader.conf": "timeout 3\n",
            "/boot/loader/entries/a.conf": entry.format("6.1.0-18", "1"),
            "/boot/loader/entries/b.conf": entry.format("6.1.0-17", "2"),
            "/etc/kernel/cmdline": "root=/dev/vda1 quiet isolcpus=1 nosmt\n",
            "/var/lib": Directory(),
        },
    )
    return FakeKernel(str(root))


# -- what is written when ----------------------------------------------------------------------


def test_nothing_is_changed_before_its_intent_is_on_the_disk(box: Box) -> None:
    """At each change of the machine, the last record that is fsynced announces it."""
    box.begin(box.pristine, {})
    written, synced = bytearray(), [0]
    checked = []

    def is_journal(handle: int) -> bool:
        return os.readlink(f"/proc/self/fd/{handle}") == f"{box.notes.root}/journal"

    def watch(what: str, arguments: tuple[Any, ...]) -> None:
        if what == "write" and is_journal(arguments[0]):
            written.extend(arguments[1])
            return
        if what == "fsync" and is_journal(arguments[0]):
            synced[0] = len(written)
            return
        path = next((str(a) for a in arguments if isinstance(a, str) and a.startswith(box.tree.root)), "")
        attribute = what.startswith(("attribute ", "systemctl "))
        if not attribute and what not in ("rename", "unlink", "symlink", "mkdir", "rmdir"):
            return
        if not attribute and not path:
            return
        records = [r for r in map(decode, bytes(written[: synced[0]]).split(b"\n")) if r is not None]
        last = next(r for r in reversed(records) if r["record"] in ("intent", "restoring", "items"))
        assert last["record"] in ("intent", "restoring"), (what, last)
        checked.append(what)

    with Steps(watch=watch) as steps:
        box.kernel.point = steps.step
        box.apply()
        box.kernel.point = lambda what: None
    assert len(checked) >= 28
    box.begin(box.pristine, {})


def report(capsys: pytest.CaptureFixture[str], what: str, points: int) -> None:
    with capsys.disabled():
        print(f"\n  crash points, {what}: {points}", end="")


def test_pending_is_told_of_what_takes_a_boot(box: Box) -> None:
    box.begin(box.applied, box.applied_notes)
    found = verify(Ledger(box.journal.records().records), box.kernel, None)
    assert {v.target for v in found if v.status == PENDING} == {"karg:isolcpus", "karg:nohz_full"}
