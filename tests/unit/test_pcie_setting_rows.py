"""pcie.aspm, pcie.max-payload, pcie.iommu, pcie.runtime-pm and pcie.acs-redirect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hwtune.changes import KernelArguments, SysfsAttribute
from tests.support import Link, host
from tests.support.pci import (
    BARE_METAL,
    BRIDGE,
    GPU,
    GUEST,
    NIC,
    NVME,
    VGA,
    X4,
    X16,
    Files,
    config,
    drive,
    function,
    switch,
)
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

ASPM, PAYLOAD, IOMMU, SUSPEND, ACS = (
    "pcie.aspm",
    "pcie.max-payload",
    "pcie.iommu",
    "pcie.runtime-pm",
    "pcie.acs-redirect",
)
_PORT = "/sys/devices/pci0000:00/0000:00:01.0"
_DRIVE = f"{_PORT}/0000:01:00.0"


def _row(tmp_path: Path, row: str, files: Files, settings: tuple[str, ...] = (), **more: object) -> RowResult:
    return diagnose_one(host(tmp_path, files, **more), row, settings=settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [ASPM, PAYLOAD, IOMMU, SUSPEND, ACS])
def test_nothing_to_judge(tmp_path: Path, row: str) -> None:
    files = {**BARE_METAL, **function("pci0000:00/0000:00:1f.0", 0x060100, None, (0x8086, 2), "lpc_ich")}
    assert _row(tmp_path, row, files).outcome == "not-applicable"
    assert _row(tmp_path, row, dict(BARE_METAL)).outcome == "unknown"
    assert _row(tmp_path, row, dict(BARE_METAL), complete=True).reason == "this machine has no PCI"


# -- ASPM ---------------------------------------------------------------------------------------


def test_links_that_stay_awake(tmp_path: Path) -> None:
    assert _row(tmp_path, ASPM, drive(link__l1_aspm="0\n", link__l0s_aspm="0\n")).outcome == "ok"
    assert _row(tmp_path, ASPM, drive(config=config()), complete=True).outcome == "ok"


def test_a_link_that_sleeps(tmp_path: Path) -> None:
    files = drive(link__l1_aspm="1\n", link__l1_2_aspm="1\n")
    files["/sys/module/pcie_aspm/parameters/policy"] = "default performance [powersave] powersupersave\n"
    (finding,) = _row(tmp_path, ASPM, files).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "warning")
    assert [(e.source, e.value) for e in finding.evidence] == [
        (f"{_DRIVE}/link", "L1, L1.2"),
        ("/sys/module/pcie_aspm/parameters/policy", "powersave"),
    ]
    # turning L1 off takes its substates with it
    assert finding.changes == [SysfsAttribute(f"{_DRIVE}/link/l1_aspm", "0", persist="udev")]


def test_the_argument_that_does_not_turn_it_off(tmp_path: Path) -> None:
    files = {**drive(config=config(aspm=2)), "/proc/cmdline": "root=/dev/sda1 pcie_aspm=off\n"}
    (finding,) = _row(tmp_path, ASPM, files, complete=True).findings
    assert "does not turn it off" in finding.message
    assert finding.changes == [KernelArguments(set=("pcie_aspm.policy=performance",), remove=("pcie_aspm",))]


def test_a_link_that_only_the_firmware_rules(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, ASPM, drive(config=config(aspm=2)), complete=True).findings
    assert (finding.changes, "BIOS" in finding.advice) == ([], True)


def test_aspm_without_privilege_is_unknown(tmp_path: Path) -> None:
    result = _row(tmp_path, ASPM, drive(config=config()[:64]), complete=True)
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


def test_a_profile_that_lets_links_sleep(tmp_path: Path) -> None:
    assert _row(tmp_path, ASPM, drive(link__l1_aspm="1\n"), ("pcie.aspm=true",)).outcome == "not-applicable"


# -- payload ------------------------------------------------------------------------------------


def _sizes(device: int, port: int, request: int = 512, **more: str) -> Files:
    files = drive(config=config(payload=device, request=request), **more)
    files[f"{_PORT}/config"] = config("root-port", payload=port, class_code=BRIDGE)
    return files


def test_sizes_that_agree(tmp_path: Path) -> None:
    assert _row(tmp_path, PAYLOAD, _sizes(256, 256)).outcome == "ok"


def test_packets_larger_than_the_port_takes(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, PAYLOAD, _sizes(512, 128)).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "warning")
    assert "512 bytes, but 0000:00:01.0 takes 128" in finding.message
    assert [e.value for e in finding.evidence] == ["512 bytes", "0000:00:01.0: 128 bytes"]


def test_a_port_that_sends_more_than_the_device_takes(tmp_path: Path) -> None:
    assert _row(tmp_path, PAYLOAD, _sizes(128, 256)).outcome == "finding"
    # as pcie_bus_perf means it, or as small requests make it harmless
    perf = {**_sizes(128, 256), "/proc/cmdline": "pci=pcie_bus_perf\n"}
    assert _row(tmp_path, PAYLOAD, perf).outcome == "ok"
    assert _row(tmp_path, PAYLOAD, _sizes(128, 256, request=128)).outcome == "ok"


def test_payload_needs_privilege(tmp_path: Path) -> None:
    result = _row(tmp_path, PAYLOAD, drive(config=config()[:64]))
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")
    in_guest = _row(tmp_path, PAYLOAD, {**drive(config=config()[:64]), **GUEST})
    assert (in_guest.outcome, in_guest.unknowns[0].remedy) == ("unknown", "run as root")


# -- IOMMU --------------------------------------------------------------------------------------


def _grouped(kind: str | None) -> Files:
    files = drive()
    files[f"{_DRIVE}/iommu_group"] = Link("../../../../kernel/iommu_groups/7")
    files["/sys/kernel/iommu_groups/7/reserved_regions"] = ""
    if kind is not None:
        files["/sys/kernel/iommu_groups/7/type"] = kind + "\n"
    return files


@pytest.mark.parametrize("kind", ["identity", "DMA-FQ"])
def test_domains_that_do_not_hold_up(tmp_path: Path, kind: str) -> None:
    assert _row(tmp_path, IOMMU, _grouped(kind)).outcome == "ok"


def test_strict_translation(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, IOMMU, _grouped("DMA")).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "info")
    assert finding.evidence[0].source == "/sys/kernel/iommu_groups/7/type"
    assert finding.changes == [KernelArguments(set=("iommu.passthrough=1",))]


def test_kernels_that_do_not_tell_the_domain(tmp_path: Path) -> None:
    result = _row(tmp_path, IOMMU, _grouped(None), complete=True)
    assert (result.outcome, "5.11" in result.reason) == ("unknown", True)


def test_no_iommu_in_use(tmp_path: Path) -> None:
    from tests.support import Directory

    files = {**drive(), "/sys/kernel/iommu_groups": Directory()}
    assert _row(tmp_path, IOMMU, files, complete=True).outcome == "not-applicable"


def test_devices_lent_to_guests_need_translation(tmp_path: Path) -> None:
    files = {**_grouped("DMA"), **function("pci0000:00/0000:00:02.0", NIC, None, (0x8086, 1), "vfio-pci")}
    assert _row(tmp_path, IOMMU, files).outcome == "not-applicable"


# -- runtime power management -------------------------------------------------------------------


def _display(control: str, status: str | None = "active", vendor: int = 0x8086) -> Files:
    files = {**BARE_METAL, **function("pci0000:00/0000:00:02.0", VGA, None, (vendor, 0x9A49), "i915")}
    files["/sys/devices/pci0000:00/0000:00:02.0/power/control"] = control + "\n"
    if status is not None:
        files["/sys/devices/pci0000:00/0000:00:02.0/power/runtime_status"] = status + "\n"
    return files


_TIMERLAT = """\
                                     Timer Latency
  0 00:00:06   |          IRQ Timer Latency (us)        |         Thread Timer Latency (us)
CPU COUNT      |      cur       min       avg       max |      cur       min       avg       max
  0 #5823      |       24         0         1        24 |     {worst:4}         3         7      {worst:4}
  1 #5824      |        1         0         1         4 |        6         2         6        11
  2 #5824      |        1         0         1         5 |        6         2         6        10
"""


def test_devices_that_stay_on(tmp_path: Path) -> None:
    assert _row(tmp_path, SUSPEND, _display("on")).outcome == "ok"


def test_a_device_that_may_suspend_and_a_latency_that_fits(tmp_path: Path) -> None:
    documents = {"timerlat.txt": _TIMERLAT.format(worst=1035)}
    (finding,) = _row(tmp_path, SUSPEND, _display("auto", None), documents=documents).findings
    assert (finding.subject, finding.severity) == ("pci:0000:00:02.0", "warning")
    assert "1035 us, the others 11 us" in finding.message
    path = "/sys/devices/pci0000:00/0000:00:02.0/power/control"
    assert finding.changes == [SysfsAttribute(path, "on", persist="udev")]


def test_without_a_latency_an_active_device_is_no_finding(tmp_path: Path) -> None:
    assert _row(tmp_path, SUSPEND, _display("auto")).outcome == "ok"
    quiet = {"timerlat.txt": _TIMERLAT.format(worst=12)}
    assert _row(tmp_path, SUSPEND, _display("auto"), documents=quiet).outcome == "ok"


def test_a_device_that_has_suspended(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, SUSPEND, _display("auto", "suspended")).findings
    assert finding.severity == "info"


def test_whether_a_device_sleeps_is_not_guessed(tmp_path: Path) -> None:
    result = _row(tmp_path, SUSPEND, _display("auto", None))
    assert result.outcome == "unknown"
    assert "power/runtime_status" in result.unknowns[0].reason


def test_runtime_pm_not_captured_or_not_there(tmp_path: Path) -> None:
    assert _row(tmp_path, SUSPEND, drive()).outcome == "unknown"
    assert _row(tmp_path, SUSPEND, drive(), complete=True).outcome == "not-applicable"
    assert _row(tmp_path, SUSPEND, _display("auto"), ("pcie.runtime_pm=true",)).outcome == "not-applicable"


# -- ACS ----------------------------------------------------------------------------------------

# source validation; with request and completion redirection and upstream forwarding
_CHECKS, _REDIRECTS = (0x7F, 0x01), (0x7F, 0x1D)
_PAIR = {"03": (GPU, X16), "04": (NIC, X16)}


def test_the_short_way(tmp_path: Path) -> None:
    assert _row(tmp_path, ACS, switch(_PAIR)).outcome == "ok"
    assert _row(tmp_path, ACS, switch(_PAIR, acs={"03": _CHECKS, "04": _CHECKS})).outcome == "ok"


def test_redirection_between_a_gpu_and_a_network_card(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, ACS, switch(_PAIR, acs={"03": _REDIRECTS, "04": _REDIRECTS})).findings
    assert (finding.subject, finding.severity) == ("pci:0000:02:00.0", "warning")
    assert "0000:03:00.0 and 0000:04:00.0" in finding.message
    assert finding.evidence[0].value == "0000:02:00.0: ReqRedir CmpltRedir UpstreamFwd"
    assert "never write one value to all ports" in finding.advice
    assert finding.changes == []


def test_redirection_that_no_gpu_meets(tmp_path: Path) -> None:
    drives = {"03": (NVME, X4), "04": (NVME, X4)}
    files = switch(drives, acs={"03": _REDIRECTS, "04": _REDIRECTS})
    assert _row(tmp_path, ACS, files).outcome == "not-applicable"


def _two_gpus(acs: tuple[int, int]) -> Files:
    files = dict(BARE_METAL)
    for number in (1, 2):
        port = f"pci0000:00/0000:00:{number:02x}.0"
        space = config("root-port", class_code=BRIDGE, acs=acs)
        files.update(function(port, BRIDGE, X16, (0x8086, 1), "pcieport", config=space))
        files.update(
            function(f"{port}/0000:{number:02x}:00.0", GPU, X16, (0x10DE, 0x2330), "nvidia", config=config())
        )
    return files


def test_two_gpus_on_root_ports_of_one_host_bridge(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, ACS, _two_gpus(_REDIRECTS)).findings
    assert finding.subject == "pci:0000:00:01.0"
    assert _row(tmp_path, ACS, _two_gpus(_CHECKS)).outcome == "ok"


def test_acs_needs_privilege(tmp_path: Path) -> None:
    files = {k: v[:64] if k.endswith("/config") else v for k, v in switch(_PAIR).items()}  # type: ignore[index]
    result = _row(tmp_path, ACS, files)
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


def test_where_isolation_is_wanted_acs_is_no_finding(tmp_path: Path) -> None:
    files = switch(_PAIR, acs={"03": _REDIRECTS, "04": _REDIRECTS})
    lent = {**files, **function("pci0000:00/0000:00:02.0", NIC, None, (0x8086, 1), "vfio-pci")}
    assert _row(tmp_path, ACS, lent).outcome == "not-applicable"
    assert _row(tmp_path, ACS, {**files, **GUEST}).outcome == "not-applicable"
    assert _row(tmp_path, ACS, files, ("pcie.p2p=false",)).outcome == "not-applicable"


def test_controls_without_their_functions(tmp_path: Path) -> None:
    on = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    checks = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    off = "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    (finding,) = _row(tmp_path, ACS, {}, documents={"acs.txt": on * 2 + checks + off * 3}).findings
    assert "on 2 of 6 ports; 1 only check addresses" in finding.message
    assert _row(tmp_path, ACS, {}, documents={"acs.txt": checks + off}).outcome == "ok"
