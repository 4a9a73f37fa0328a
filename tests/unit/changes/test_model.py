"""Random lives of a machine: applies, outside changes, reboots, reverts in any order, crashes.

What must hold, whatever happens: a rehearsal tells what the run then does; nothing that someone else
set is overwritten by a revert without --force; every value that an apply overwrites is in the journal;
verify tells what is there; and once everything is reverted, each value is one that was there without
hwtune.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hwtune.changes import apply as applying
from hwtune.changes import boot, kinds, naming, revert
from hwtune.changes.journal import Journal
from hwtune.changes.ledger import Ledger
from hwtune.changes.persist import boot_unit
from hwtune.changes.plan import make_plan
from hwtune.changes.verify import DRIFTED, GONE, IN_FORCE, INTERRUPTED, verify
from tests.crash.killing import killed
from tests.support import Directory, tree
from tests.support.fake_kernel import BOOT_ID, UNITS, FakeKernel, Tree
from tests.support.small_box import findings

if TYPE_CHECKING:
    from collections.abc import Callable

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SWAPPINESS, BALANCING = "/proc/sys/vm/swappiness", "/proc/sys/kernel/numa_balancing"
BYTES, RATIO = "/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"
MOTD, NOTE = "/etc/motd", "/etc/notes/box"
OWNED = "/etc/sysctl.d/99-zz-hwtune.conf"
ADMIN = "/etc/sysctl.d/50-admin.conf"
UNIT = f"{UNITS}/tuned.service"

BOOT = {SWAPPINESS: "60", BALANCING: "1", BYTES: "0", RATIO: "20", THP: "[always] madvise never"}
# what hwtune wants and what others set have no value in common, so that it is plain whose a value is
OURS: dict[str, list[Any]] = {
    "swappiness": [kinds.SysctlChange("vm.swappiness", str(n)) for n in (1, 2, 3)],
    "balancing": [kinds.SysctlChange("kernel.numa_balancing", "0")],
    "dirty": [
        kinds.SysctlChange("vm.dirty_bytes", str(n << 20), clears=("vm.dirty_ratio",)) for n in (64, 128)
    ],
    "thp": [kinds.SysfsAttribute(THP, "never")],
    "motd": [kinds.FileContent(MOTD, text) for text in ("tuned\n", "tuned again\n")],
    "note": [kinds.FileContent(NOTE, "made by hwtune\n", 0o600)],
    "unit": [kinds.UnitState("tuned.service", "stopped")],
}
THEIRS: dict[str, list[str]] = {
    SWAPPINESS: ["30\n", "37\n"],
    BALANCING: ["2\n"],
    RATIO: ["5\n", "7\n"],
    THP: ["always [madvise] never\n"],
    MOTD: ["by hand\n", "by hand again\n"],
    OWNED: ["vm.swappiness = 45\n"],
    UNIT: ["enabled inactive\n"],
}
RUNTIME = frozenset((*BOOT, BOOT_ID))
PATHS = (SWAPPINESS, BALANCING, BYTES, RATIO, THP, MOTD, NOTE, "/etc/notes", OWNED, UNIT)

wanted = st.lists(st.sampled_from(sorted(OURS)), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.tuples(*(st.sampled_from(OURS[name]) for name in names))
)


def _something_to_revert(life: Any) -> bool:
    return bool(life.ledger().active_sets())


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.folder = Path(mkdtemp(prefix="hwtune-model-", dir=shm if shm.is_dir() else None))
        root = tree(
            self.folder / "root",
            {
                **{path: value + "\n" for path, value in BOOT.items()},
                BOOT_ID: "boot-0\n",
                MOTD: "as it was\n",
                UNIT: "enabled active\n",
                "/etc/sysctl.d": Directory(),
                "/var/lib": Directory(),
            },
        )
        self.kernel = FakeKernel(str(root))
        self.tree = Tree(str(root))
        self.notes = str(self.folder / "journal")
        self.boots = 0
        self.size = 0
        #: path -> values that may be there once hwtune is gone
        self.foreign: dict[str, set[Any]] = {path: {self.at(path)} for path in PATHS}
        #: path -> every value that was ever there without hwtune
        self.ever: dict[str, set[Any]] = {path: {self.at(path)} for path in PATHS}
        #: paths whose value is not of hwtune's making
        self.theirs = set(PATHS)
        self.drifted = False

    def teardown(self) -> None:
        try:
            self.revert_everything()
        finally:
            shutil.rmtree(self.folder)

    def at(self, path: str) -> Any:
        place = self.kernel.root + path
        if not os.path.lexists(place):
            return None
        if os.path.isdir(place):
            return "a folder"
        mode = os.stat(place).st_mode & 0o777 if path in (MOTD, NOTE, OWNED) else 0
        return self.kernel.content(path), mode

    def all(self) -> dict[str, Any]:
        return {path: self.at(path) for path in PATHS}

    def ledger(self) -> Ledger:
        contents = Journal(self.notes).records()
        assert contents.damaged == []
        return Ledger(contents.records)

    # -- what hwtune does ---------------------------------------------------------------

    def run(self, work: Callable[[Journal], Any]) -> Any:
        journal = Journal(self.notes)
        journal.open("a test")
        try:
            return work(journal)
        finally:
            journal.close()

    def plan(self, changes: tuple[Any, ...], runtime_only: bool) -> Any:
        return make_plan(findings(changes), self.kernel, self.ledger(), ("service", "boot"), runtime_only)

    @rule(changes=wanted, runtime_only=st.booleans())
    def apply(self, changes: tuple[Any, ...], runtime_only: bool) -> None:
        before = self.all()
        told = applying.rehearse(self.plan(changes, runtime_only), Journal(self.notes), self.kernel)
        assert self.all() == before
        done = self.run(
            lambda journal: applying.apply(self.plan(changes, runtime_only), journal, self.kernel, "apply")
        )
        for planned, outcome in zip(told.outcomes, done.outcomes, strict=True):
            status = "changed" if planned.status == "planned" else planned.status
            assert (planned.target, planned.before, planned.after, status, planned.reason) == (
                outcome.target, outcome.before, outcome.after, outcome.status, outcome.reason,
            )  # fmt: skip
        assert [f.target.key for f in told.files] == [f.target.key for f in done.files]
        assert [f.after for f in told.files] == [f.after for f in done.files]
        assert (told.commands, told.problems) == (done.commands, done.problems)
        self.note_overwritten(before)
        # what one apply has done, the next finds done
        writes = len(self.kernel.writes)
        again = self.run(
            lambda journal: applying.apply(self.plan(changes, runtime_only), journal, self.kernel, "apply")
        )
        assert (again.set_id, again.changed, len(self.kernel.writes)) == (None, False, writes)

    def note_overwritten(self, before: dict[str, Any]) -> None:
        """What was overwritten is in the journal, and is hwtune's now."""
        saved: dict[str, list[Any]] = {}
        for change_set in self.ledger().sets.values():
            for entry in change_set.entries:
                saved.setdefault(naming.of_key(entry.target), []).append(entry.before)
        for path, value in self.all().items():
            if value == before[path]:
                continue
            if path in self.theirs:
                assert any(self.means(path, before[path], b) for b in saved[name_of(path)]), path
            self.theirs.discard(path)

    def means(self, path: str, value: Any, saved: Any) -> bool:
        """Whether a journal's value is that of a file."""
        if value is None or saved is None or value == "a folder":
            return value is saved or saved == "present"
        content = value[0]
        if isinstance(saved, dict):
            return bool(saved["text"] == content and int(saved["mode"], 8) == value[1])
        if path == THP:
            return f"[{saved}]" in content
        if path in (BYTES, RATIO):
            return content == "0\n" or saved.endswith(f"{path.rpartition('/')[2]} = {content.strip()}")
        return bool(saved == content.strip())

    @rule(change=st.sampled_from([*OURS["swappiness"], *OURS["motd"]]))
    def apply_one(self, change: Any) -> None:
        """Sets upon sets over one and the same thing."""
        self.apply((change,), False)

    @precondition(_something_to_revert)
    @rule(which=st.integers(0, 5), force=st.booleans())
    def revert_one(self, which: int, force: bool) -> None:
        active = self.ledger().active_sets()
        self.revert([active[which % len(active)].id], force)

    @precondition(_something_to_revert)
    @rule()
    def revert_the_oldest(self) -> None:
        self.revert([self.ledger().active_sets()[0].id], False)

    @precondition(_something_to_revert)
    @rule(force=st.booleans())
    def revert_all(self, force: bool) -> None:
        self.revert([s.id for s in reversed(self.ledger().active_sets())], force)

    def revert(self, ids: list[str], force: bool) -> Any:
        def sets() -> list[Any]:
            ledger = self.ledger()
            return [ledger.sets[id] for id in ids]

        before = self.all()
        told = revert.rehearse(sets(), Journal(self.notes), self.kernel, force)
        assert self.all() == before
        done = self.run(lambda journal: revert.revert_all(sets(), journal, self.kernel, force))
        assert told.sets == done.sets
        assert (told.commands, told.reboot_required) == (done.commands, done.reboot_required)
        assert [(f.target.key, f.after) for f in told.files] == [(f.target.key, f.after) for f in done.files]
        self.note_reverted(before, force)
        return done

    def note_reverted(self, before: dict[str, Any], force: bool) -> None:
        for path, value in self.all().items():
            if value == before[path]:
                continue
            # files follow from what is in force: one that a crash left unwritten is written now
            if not force and not (path == OWNED and before[path] is None):
                assert path not in self.theirs, f"{path} was someone else's, and is gone"
            self.theirs.discard(path)
            if value in self.ever[path]:
                self.theirs.add(path)
                if force:
                    self.foreign[path] = {value}

    # -- crashes ------------------------------------------------------------------------

    @rule(changes=wanted, runtime_only=st.booleans(), step=st.integers(1, 130))
    def apply_crashes(self, changes: tuple[Any, ...], runtime_only: bool, step: int) -> None:
        before = self.all()
        plan = self.plan(changes, runtime_only)
        killed(
            lambda: self.run(lambda journal: applying.apply(plan, journal, self.kernel, "apply")),
            self.kernel,
            step,
        )
        self.note_overwritten(before)

    @precondition(_something_to_revert)
    @rule(which=st.integers(0, 5), every=st.booleans(), step=st.integers(1, 100))
    def revert_crashes(self, which: int, every: bool, step: int) -> None:
        active = self.ledger().active_sets()
        chosen = list(reversed(active)) if every else [active[which % len(active)]]
        before = self.all()
        killed(
            lambda: self.run(lambda journal: revert.revert_all(chosen, journal, self.kernel)),
            self.kernel,
            step,
        )
        self.note_reverted(before, force=False)

    # -- what others do -----------------------------------------------------------------

    @rule(path=st.sampled_from(sorted(THEIRS)), data=st.data())
    def someone_sets(self, path: str, data: st.DataObject) -> None:
        content = data.draw(st.sampled_from(THEIRS[path]))
        self.kernel.put(path, content)
        if path == RATIO:
            self.kernel.put(BYTES, "0\n")
            self.set_by_others(BYTES)
        if path in (MOTD, OWNED):
            os.chmod(self.kernel.root + path, 0o600)
        self.set_by_others(path)

    @rule(path=st.sampled_from([MOTD, OWNED]))
    def someone_removes(self, path: str) -> None:
        if self.at(path) is not None:
            os.unlink(self.kernel.root + path)
            self.set_by_others(path)
            if path == OWNED:  # hwtune's own, and missing before hwtune came: not a value of theirs
                self.theirs.discard(path)

    @rule(value=st.sampled_from(["80", "90"]))
    def someone_keeps(self, value: str) -> None:
        """An administrator's own sysctl.d file, which hwtune's comes after."""
        self.kernel.put(ADMIN, f"vm.swappiness = {value}\n")

    def set_by_others(self, path: str) -> None:
        value = self.at(path)
        self.foreign[path] = {value}
        self.ever[path].add(value)
        self.theirs.add(path)

    @rule()
    def reboot(self) -> None:
        self.boots += 1
        self.kernel.put(BOOT_ID, f"boot-{self.boots}\n")
        for path, value in BOOT.items():
            self.kernel.put(path, value + "\n")
        self.systemd_sysctl([n for n in self.sysctl_d() if n != os.path.basename(OWNED)])
        if OWNED in self.theirs and self.at(OWNED) is not None:  # edited: what it says is theirs
            self.systemd_sysctl([os.path.basename(OWNED)])
        without = self.all()
        for path, value in BOOT.items():
            self.kernel.put(path, value + "\n")
        self.systemd_sysctl(self.sysctl_d())
        if os.path.lexists(f"{self.kernel.root}/etc/systemd/system/multi-user.target.wants/{boot_unit.UNIT}"):
            assert boot.run(self.kernel, lambda line: None, patience_s=0) == 0
        for path in BOOT:
            # what hwtune found there before may come back as well
            self.ever[path].add(without[path])
            self.foreign[path] |= self.ever[path]
            self.theirs.discard(path)
            if self.at(path) == without[path]:
                self.theirs.add(path)

    def sysctl_d(self) -> list[str]:
        return sorted(os.listdir(self.kernel.root + "/etc/sysctl.d"))

    def systemd_sysctl(self, names: list[str]) -> None:
        for name in names:
            if not name.endswith(".conf"):
                continue
            for line in self.kernel.content(f"/etc/sysctl.d/{name}").splitlines():
                key, _, value = line.partition(" = ")
                if value and not line.startswith("#"):
                    path = "/proc/sys/" + key.replace(".", "/")
                    self.kernel.put(path, value + "\n")
                    if path == BYTES:
                        self.kernel.put(RATIO, "0\n")

    # -- what must always hold ----------------------------------------------------------

    @invariant()
    def journal_only_grows(self) -> None:
        path = f"{self.notes}/journal"
        size = os.path.getsize(path) if os.path.exists(path) else 0
        assert size >= self.size
        self.size = size

    @invariant()
    def verify_tells_what_is_there(self) -> None:
        for v in verify(self.ledger(), self.kernel, None):
            path = next((p for p in PATHS if name_of(p) == v.target), None)
            if path is None or v.status == INTERRUPTED or path in (BYTES, RATIO):
                continue
            assert (v.status == GONE) == (self.at(path) is None), v
            if v.status == IN_FORCE:
                assert path not in self.theirs, f"{v} is someone else's"
            if v.status == DRIFTED and "has booted" not in v.reason:
                assert path in self.theirs, f"nobody but hwtune made it so: {v}"

    @precondition(lambda self: not self.ledger().active_sets())
    @invariant()
    def nothing_is_left_of_hwtune(self) -> None:
        for path, value in self.all().items():
            assert value in self.foreign[path], path
        assert "hwtune" not in str([p for p in self.tree.state() if p not in PATHS]), self.tree.state().keys()

    def revert_everything(self) -> None:
        done = self.revert([s.id for s in reversed(self.ledger().active_sets())], force=False)
        for path, value in self.all().items():
            assert value in self.foreign[path], f"{path} is {value}, which nobody but hwtune made it"
        for path in PATHS:
            if path not in self.theirs:
                assert self.at(path) is None or self.at(path) in self.foreign[path], path
        if done.whole:
            assert verify(self.ledger(), self.kernel, None) == []


def name_of(path: str) -> str:
    if path in (BYTES, RATIO):
        return "sysctl:vm.dirty_bytes,vm.dirty_ratio"
    if path.startswith("/proc/sys/"):
        return "sysctl:" + path.removeprefix("/proc/sys/").replace("/", ".")
    if path.startswith("/sys/"):
        return f"sysfs:{path}"
    if path == UNIT:
        return "service:tuned"
    return f"directory:{path}" if path == "/etc/notes" else f"file:{path}"


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_unit, "interpreter", lambda: "/usr/bin/python3")


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=int(os.environ.get("HWTUNE_MODEL_LIVES", "40")),
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
