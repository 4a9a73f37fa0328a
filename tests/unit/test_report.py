import json

import pytest

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.engine import Diagnosis, judge
from hwtune.diagnosis.row import Row
from hwtune.fact import known
from hwtune.model import Machine
from hwtune.model.network import IbPort
from hwtune.model.numa import NumaNode
from hwtune.model.storage import NvmeController
from hwtune.profile import load
from hwtune.report.box import _grouped, picture, size
from hwtune.report.clean import clean
from hwtune.report.digest import abridged
from hwtune.report.published import encode, publish
from hwtune.report.schema import schema
from hwtune.report.terminal import Style
from hwtune.report.text import render


class _Host:
    kind = "live"
    origin = "/"
    captured_at = None


def _machine() -> Machine:
    machine = Machine()
    machine.kernel.hostname = known("box7", "t")
    machine.kernel.release = known("6.1.0", "t")
    machine.cpus.online = known(list(range(8)), "t")
    machine.cpus.isolated = known([6, 7], "t")
    machine.numa.nodes = [
        NumaNode(id=0, cpus=known([0, 1, 2, 3], "t"), memory_bytes=known(62 << 30, "t")),
        NumaNode(id=1, cpus=known([4, 5, 6, 7], "t"), memory_bytes=known(62 << 30, "t")),
    ]
    machine.nvme.controllers = [
        NvmeController(name="nvme0", numa_node=known(0, "t")),
        NvmeController(name="nvme1", numa_node=known(1, "t")),
        NvmeController(name="nvme2", numa_node=known(-1, "t")),
    ]
    return machine


def _diagnosis() -> Diagnosis:
    def bad(machine, profile):  # type: ignore[no-untyped-def]
        return Verdict().finding(
            "sysctl:vm.swappiness",
            "The kernel may swap.",
            evidence("/proc/sys/vm/swappiness", 60, "at most 10"),
            advice="Lower it.",
        )

    def unread(machine, profile):  # type: ignore[no-untyped-def]
        return Verdict().unknown("nvme:nvme0", "Get Features needs root", remedy="run as root")

    rows = [
        Row(bad, "memory.swappiness", "t", "s", "c", "error", "runtime", "r", "k", ["x"], False),
        Row(unread, "nvme.apst", "t", "s", "c", "warning", "runtime", "r", "k", ["x"], False),
    ]
    return judge(_machine(), rows, load())


def test_the_picture_puts_everything_on_its_node() -> None:
    lines = {n.name: n.parts for n in picture(_machine(), load())}
    assert lines == {
        "node 0": ["CPU 0-3", "62 GiB", "nvme0"],
        "node 1": ["CPU 4-7", "isolated 6-7", "62 GiB", "nvme1"],
        "node ?": ["nvme2"],
    }


def test_a_box_with_one_node_owns_what_names_no_node() -> None:
    machine = _machine()
    machine.numa.nodes = machine.numa.nodes[:1]
    assert [n.name for n in picture(machine, load())] == ["node 0"]


def test_many_alike_are_named_or_counted_together() -> None:
    parts = [
        "CPU 0-3",
        "62 GiB",
        "nvme0 x4 16 GT/s",
        "eth0 25 Gb/s",
        "nvme1 x4 16 GT/s",
        "GPU H100",
        "GPU H100",
    ]
    assert _grouped(parts) == ["CPU 0-3", "62 GiB", "nvme0, nvme1 x4 16 GT/s", "eth0 25 Gb/s", "2 GPU H100"]


def test_three_and_more_that_count_up_are_a_range() -> None:
    parts = [f"nvme{n} x4" for n in (0, 1, 4, 5, 6)] + ["eth9 1 Gb/s", "eth10 1 Gb/s", "eth11 1 Gb/s"]
    assert _grouped(parts) == ["nvme0, nvme1, nvme4-6 x4", "eth9-11 1 Gb/s"]


def test_names_that_no_kernel_gives_do_not_stop_the_report() -> None:
    long = "nvme" + "9" * 5000
    assert _grouped([" a", " a", "x² b", "y² b", f"{long} x4", f"{long}9 x4"]) == [
        "2  a",
        "x² b",
        "y² b",
        f"{long}, {long}9 x4",
    ]


def test_ports_of_a_card_with_several_are_told_apart() -> None:
    machine = Machine()
    machine.network.ib_ports = [
        IbPort(device=device, port=port, rate_gbps=known(200.0, "t"), numa_node=known(0, "t"))
        for device, port in (("mlx5_0", 1), ("mlx5_0", 2), ("mlx5_1", 1))
    ]
    lines = {n.name: n.parts for n in picture(machine, load())}
    assert lines == {"node 0": ["mlx5_0/1, mlx5_0/2, mlx5_1 200 Gb/s"]}


def test_nodes_that_only_devices_name_are_drawn() -> None:
    machine = Machine()
    machine.nvme.controllers = [NvmeController(name="nvme0", numa_node=known(1, "t"))]
    assert [(n.name, n.parts) for n in picture(machine, load())] == [("node 1", ["nvme0"])]


def test_what_only_the_pci_tree_knows_is_counted_by_kind() -> None:
    from hwtune.model.pci import Link, PciDevice

    def device(address: str, kind: int, vendor: int, node: int) -> PciDevice:
        link = Link(current_gts=known(16.0, "t"), current_width=known(4, "t"))
        return PciDevice(
            address=address,
            class_code=known(kind, "t"),
            vendor=known(vendor, "t"),
            numa_node=known(node, "t"),
            link=link,
        )

    machine = _machine()
    machine.pci.devices = [
        device("0000:01:00.0", 0x010802, 0x144D, 1),
        device("0000:02:00.0", 0x010802, 0x144D, 1),
        device("0000:03:00.0", 0x030200, 0x10DE, 0),
        device("0000:04:00.0", 0x030000, 0x102B, 0),  # the display chip of a management controller
    ]
    lines = {n.name: n.parts for n in picture(machine, load())}
    assert lines["node 1"][-1] == "2 NVMe x4 16 GT/s"
    assert lines["node 0"][-1] == "GPU x4 16 GT/s"


@pytest.mark.parametrize(
    ("count", "text"),
    [(62 << 30, "62 GiB"), (3 << 29, "1.5 GiB"), (512 << 20, "512 MiB"), (2 << 40, "2 TiB"), (4096, "4 KiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_the_text_report_says_what_where_and_how() -> None:
    report = render(_diagnosis(), _Host(), load(), Style(80, False))  # type: ignore[arg-type]
    lines = report.splitlines()
    assert lines[0].startswith("hwtune 0.1.0   box7   Linux 6.1.0   profile low-latency")
    assert "1 error, 0 warnings, 1 unknown" in report
    assert any(
        line.startswith("ERROR   memory.swappiness") and line.endswith("sysctl:vm.swappiness")
        for line in lines
    )
    assert "    /proc/sys/vm/swappiness   60   should be at most 10" in lines
    assert "  Fix: Lower it." in lines
    assert "run as root:" in report and "nvme.apst" in report
    assert lines[-1] == "2 rows: 0 ok, 1 finding, 0 not applicable, 1 unknown. -v names them."
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in report


def _report(*verdicts: Verdict, width: int = 80, verbose: bool = False) -> list[str]:
    rows = [
        Row(lambda m, p, v=v: v, f"a.row{n}", "t", "s", "c", "warning", "runtime", "r", "k", ["x"], False)
        for n, v in enumerate(verdicts)
    ]
    diagnosis = judge(Machine(), rows, load())
    return render(diagnosis, _Host(), load(), Style(width, False), verbose).splitlines()  # type: ignore[arg-type]


def test_evidence_that_should_all_be_one_thing_says_so_once() -> None:
    path = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    items = [evidence(path.format(n), f"{n},{n + 40}", "whole cores, or none at all") for n in (5, 6)]
    lines = _report(Verdict().finding("cpu:45-46", "Cores are split.", *items))
    assert lines[4:9] == [
        "  Cores are split.",
        "    /sys/devices/system/cpu/cpu5/topology/thread_siblings_list   5,45",
        "    /sys/devices/system/cpu/cpu6/topology/thread_siblings_list   6,46",
        "      each should be whole cores, or none at all",
        "",
    ]


def test_a_long_list_of_cpus_is_cut_after_commas() -> None:
    cpus = ",".join(str(n) for n in range(0, 80, 2))
    lines = _report(Verdict().finding("cpu:" + cpus, "m", evidence("/sys/x", cpus)), width=60)
    assert max(map(len, lines)) <= 60
    assert "".join(line.strip() for line in lines).count(cpus) == 2


def test_one_remedy_of_several_findings_is_told_once() -> None:
    verdict = Verdict()
    for name in ("nvme:nvme0", "nvme:nvme1"):
        verdict.finding(name, "It is hot.", advice="Cool it.")
    lines = _report(verdict)
    assert lines[3:8] == [
        "WARNING a.row0" + "2 found".rjust(66),
        "  nvme:nvme0: It is hot.",
        "  nvme:nvme1: It is hot.",
        "  Fix of each: Cool it.",
        "",
    ]


def test_a_subject_that_has_no_room_goes_below() -> None:
    subject = "process:" + "x" * 60
    lines = _report(Verdict().finding(subject, "m"))
    assert lines[3:6] == ["WARNING a.row0", " " * 8 + subject, "  m"]


def test_what_no_remedy_makes_known_is_told_with_its_reason() -> None:
    lines = _report(
        Verdict().unknown("cpu:0", "no clock is told"),
        Verdict().unknown("cpu:0", "no clock is told"),
        Verdict().finding("cpu:1", "m").unknown("cpu:0", "denied", remedy="run as root"),
    )
    assert lines[-8:] == [
        "",
        "unknown (2 rows, and 1 finding in part): what would make them known",
        "  run as root:",
        "    a.row2",
        "  no remedy is known; the reasons:",
        "    a.row0, a.row1: no clock is told",
        "",
        "3 rows: 0 ok, 1 finding, 0 not applicable, 2 unknown. -v names them.",
    ]


def test_a_subsystem_that_is_unknown_as_a_whole_is_named_as_one() -> None:
    every = ["clock.a", "clock.b", "clock.c", "cpu.a", "cpu.b", "irq.a", "irq.b"]
    assert abridged(["clock.a", "clock.b", "clock.c", "cpu.a", "irq.a", "irq.b"], every) == [
        "clock.*",
        "cpu.a",
        "irq.a",
        "irq.b",
    ]


def test_a_long_head_line_wraps_between_its_parts() -> None:
    machine = _machine()
    machine.kernel.release = known("4.14.0-49.el7a.bz1553205.page_fault_hang.ppc64le", "t")
    lines = render(Diagnosis(machine, []), _Host(), load(), Style(80, False)).splitlines()  # type: ignore[arg-type]
    assert lines[:3] == [
        "hwtune 0.1.0   box7   Linux 4.14.0-49.el7a.bz1553205.page_fault_hang.ppc64le",
        "profile low-latency" + "0 errors, 0 warnings, 0 unknown".rjust(61),
        "",
    ]


def test_colour_is_only_paint() -> None:
    import re

    plain = render(_diagnosis(), _Host(), load(), Style(80, False))  # type: ignore[arg-type]
    colour = render(_diagnosis(), _Host(), load(), Style(80, True))  # type: ignore[arg-type]
    assert colour != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colour) == plain


def test_a_terminal_escape_in_a_name_is_shown_not_sent() -> None:
    machine = _machine()
    machine.kernel.hostname = known("evil\x1b]0;owned\x07\nbox\u202e", "t")
    report = render(Diagnosis(machine, []), _Host(), load(), Style(80, False))  # type: ignore[arg-type]
    assert "\x1b" not in report and "\x07" not in report and "\u202e" not in report
    assert "evil\\x1b]0;owned\\x07\\nbox\\u202e" in report
    assert clean("plain text, ümlaut") == "plain text, ümlaut"


def test_the_json_report_fits_its_schema() -> None:
    import jsonschema

    report = json.loads(encode(publish(_diagnosis(), _Host(), load())))  # type: ignore[arg-type]
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(report, schema())
    assert report["schema_version"] == "1"
    assert report["host"] == {
        "source": "live",
        "origin": "/",
        "hostname": "box7",
        "kernel": "6.1.0",
        "captured_at": None,
        "warnings": [],
    }
    assert report["machine"]["cpus"]["online"] == list(range(8))
    assert report["machine"]["cpus"]["nohz_full"] is None  # nobody read it
    assert report["machine"]["numa"]["nodes"][1]["memory_bytes"] == 62 << 30
    assert report["summary"]["by_severity"] == {"error": 1, "warning": 0, "info": 0}
    assert report["rows"][0]["findings"][0]["evidence"] == [
        {"source": "/proc/sys/vm/swappiness", "value": "60", "expected": "at most 10"}
    ]


def test_a_name_that_is_not_utf8_is_json_all_the_same() -> None:
    """As Python has the name of an interface of two bytes, FF and 31."""
    machine = _machine()
    machine.kernel.hostname = known("\udcff1", "t")
    machine.extra = {"\udcff": ["\udcff", {"n": 1}]}
    report = json.loads(encode(publish(Diagnosis(machine, []), _Host(), load())))  # type: ignore[arg-type]
    assert report["host"]["hostname"] == "\\udcff1"
    assert report["machine"]["extra"] == {"\\udcff": ["\\udcff", {"n": 1}]}
    assert report["machine"]["cpus"]["online"] == list(range(8))


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("nan"), float("inf")])
def test_a_time_that_is_no_date_is_not_known(seconds: float) -> None:
    host = _Host()
    host.captured_at = seconds  # type: ignore[assignment]
    report = json.loads(encode(publish(Diagnosis(Machine(), []), host, load())))  # type: ignore[arg-type]
    assert report["host"]["captured_at"] is None


def test_a_change_in_the_json_names_its_kind() -> None:
    from hwtune.changes import SysctlChange

    def bad(machine, profile):  # type: ignore[no-untyped-def]
        return Verdict().finding("memory", "m", changes=[SysctlChange("vm.swappiness", "10")])

    row = Row(bad, "a.b", "t", "s", "c", "error", "runtime", "r", "k", ["x"], False)
    report = json.loads(encode(publish(judge(Machine(), [row], load()), _Host(), load())))  # type: ignore[arg-type]
    change = report["rows"][0]["findings"][0]["changes"][0]
    assert change == {"kind": "sysctl", "key": "vm.swappiness", "value": "10", "clears": []}
