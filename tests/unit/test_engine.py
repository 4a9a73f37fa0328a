from types import SimpleNamespace

import pytest

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.row import Row
from hwtune.diagnosis.table import choose, find, table
from hwtune.errors import UsageError
from hwtune.fact import DENIED, gap
from hwtune.model import Machine
from hwtune.profile import Profile, load


def _row(check, id: str = "test.row", severity: str = "warning") -> Row:  # type: ignore[no-untyped-def]
    return Row(check, id, "t", "s", "c", severity, "runtime", "r", "k", ["x"], False)


def _judge(check, severity: str = "warning"):  # type: ignore[no-untyped-def]
    return judge(Machine(), [_row(check, severity=severity)], load())


def test_a_finding_wins_over_everything_and_takes_the_rows_severity() -> None:
    def check(machine: Machine, profile: Profile) -> Verdict:
        verdict = Verdict().ok(evidence("a", 1)).unknown("b", "no idea").not_applicable("c")
        return verdict.finding("memory", "bad", evidence("/x", 60, 10))

    result = _judge(check, "error").results[0]
    assert (result.outcome, result.severity) == ("finding", "error")
    assert result.findings[0].evidence[0].expected == "10"
    assert len(result.unknowns) == 1  # what could not be judged is still told


def test_the_unknown_wins_over_the_good() -> None:
    result = _judge(lambda m, p: Verdict().ok().unknown("nvme:nvme0", gap(DENIED, "/dev/nvme0"))).results[0]
    assert result.outcome == "unknown"
    assert "/dev/nvme0" in result.reason
    assert result.unknowns[0].remedy == "run as root"


def test_ok_and_not_applicable() -> None:
    assert _judge(lambda m, p: Verdict().ok().not_applicable("no swap")).results[0].outcome == "ok"
    result = _judge(lambda m, p: Verdict().not_applicable("no swap")).results[0]
    assert (result.outcome, result.reason, result.severity) == ("not-applicable", "no swap", None)


def test_a_row_that_says_nothing_is_unknown_never_ok() -> None:
    assert _judge(lambda m, p: Verdict()).results[0].outcome == "unknown"


def test_memory_that_ends_is_not_the_rows_defect() -> None:
    def check(machine: Machine, profile: Profile) -> Verdict:
        raise MemoryError

    with pytest.raises(MemoryError):
        _judge(check)


def test_a_row_that_fails_is_unknown_and_told_as_a_defect() -> None:
    def check(machine: Machine, profile: Profile) -> Verdict:
        raise KeyError("eth0")

    diagnosis = _judge(check)
    assert diagnosis.results[0].outcome == "unknown"
    assert "test.row" in diagnosis.defects[0].where
    assert "KeyError" in diagnosis.defects[0].error and "test_engine.py" in diagnosis.defects[0].error


def test_a_probe_that_fails_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import hwtune.diagnosis.engine as engine

    def read(host: object) -> object:
        raise RuntimeError("odd machine")

    broken = SimpleNamespace(PART="memory", read=read)
    fine = SimpleNamespace(PART="numa", read=lambda host: "numa part")
    monkeypatch.setattr(
        engine, "iter_modules", lambda path: [SimpleNamespace(name="a"), SimpleNamespace(name="b")]
    )
    monkeypatch.setattr(engine, "import_module", lambda name: broken if name.endswith(".a") else fine)
    machine, defects = probe(SimpleNamespace())  # type: ignore[arg-type]
    assert machine.numa == "numa part"
    assert machine.memory.total_bytes.unknown
    assert [d.where for d in defects] == ["probe memory"]


def test_the_summary_counts_rows_by_outcome_and_findings_by_severity() -> None:
    rows = [
        _row(lambda m, p: Verdict().ok(), "a.a"),
        _row(lambda m, p: Verdict().finding("memory", "x").finding("memory", "y", severity="error"), "a.b"),
        _row(lambda m, p: Verdict().unknown("memory", "z"), "a.c"),
    ]
    diagnosis = judge(Machine(), rows, load())
    assert diagnosis.summary() == {
        "ok": 1,
        "finding": 1,
        "not-applicable": 0,
        "unknown": 1,
        "by_severity": {"error": 1, "warning": 1, "info": 0},
    }
    assert diagnosis.worst() == "error"


def test_choose_takes_globs_and_refuses_what_matches_nothing() -> None:
    rows = [_row(lambda m, p: Verdict(), i) for i in ("irq.on-isolated", "irq.one-cpu", "cpu.governor")]
    assert [r.id for r in choose(rows, ["irq.*"], ["*.one-cpu"])] == ["irq.on-isolated"]
    with pytest.raises(UsageError, match=r"did you mean cpu\.governor"):
        choose(rows, ["cpu.govenor"], [])
    with pytest.raises(UsageError, match="no row matches"):
        find(rows, "zzz")


def test_every_row_of_the_table_is_whole() -> None:
    rows = table()
    assert len(rows) >= 70
    for row in rows:
        assert row.id.count(".") == 1 and row.id == row.id.lower(), row.id
        assert row.sources and all(row.sources), row.id
        for text in (row.title, row.symptom, row.cause, row.risk, row.cost):
            assert len(text) > 3 and not text.startswith(" "), row.id


_FIXED = """
memory.swappiness memory.swap-in-use memory.transparent-hugepages memory.khugepaged memory.ksm
memory.numa-balancing memory.zone-reclaim memory.dirty-limits memory.hugepages memory.ecc-errors
cpu.governor cpu.frequency-limits cpu.idle-states cpu.turbo cpu.throttled cpu.prochot cpu.offline
cpu.microcode-mitigations isolation.isolcpus isolation.domain-flag isolation.nohz-full
isolation.boot-cpu isolation.smt-split isolation.tasks isolation.workqueues isolation.kernel-args
isolation.tick isolation.rt-throttling isolation.cpuset-partition irq.on-isolated
irq.default-affinity irq.irqaffinity-arg irq.irqbalance irq.one-cpu irq.numa-distance
numa.device-node numa.memoryless-node numa.node-unknown numa.misses numa.buggy-topology
pcie.link-width pcie.link-speed pcie.path-bandwidth pcie.shared-uplink pcie.aer-correctable
pcie.aer-uncorrectable pcie.acs-redirect pcie.aspm pcie.max-payload pcie.iommu nvme.apst
nvme.scheduler nvme.smart-critical nvme.endurance nvme.thermal nvme.unsafe-shutdowns
nvme.io-timeouts nvme.controller-lost nvme.discard-mount nvme.write-cache-view gpu.driver gpu.xid
gpu.lost gpu.ecc gpu.row-remap gpu.throttled gpu.persistence gpu.clocks gpu.power-limit gpu.busy
gpu.nic-affinity gpu.cpu-affinity gpu.p2p nvlink.inactive nvlink.errors nvlink.disabled-by-env
nvlink.fabric-manager nvlink.ignored-variable nic.link nic.speed nic.coalescing nic.rings
nic.channels nic.offloads nic.drops nic.busy-poll nic.rps nic.xdp-support ib.port-state ib.rate
clock.source clock.tsc clock.sync kernel.sysctl-conflict kernel.args-pending kernel.args-duplicate
kernel.args-ignored kernel.lockdown service.tuner-conflict service.smi-timers
"""
FIXED_IDS = _FIXED.split()


@pytest.mark.parametrize("id", FIXED_IDS)
def test_the_ids_that_scripts_rely_on_are_there(id: str) -> None:
    assert find(table(), id).id == id
