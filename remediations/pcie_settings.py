"""Rows: how links and devices are set: power saving, payload sizes, the IOMMU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import DENIED
from hwtune.remediations import _pcie
from hwtune.remediations._common import fix
from hwtune.remediations._pcie import Endpoint

if TYPE_CHECKING:
    from hwtune.changes import Change
    from hwtune.model import Machine
    from hwtune.model.cpus import Measured
    from hwtune.model.pci import PciDevice
    from hwtune.profile import Profile

_PARAMETERS = "Linux Documentation/admin-guide/kernel-parameters.txt"
_ABI = "Linux Documentation/ABI/testing/sysfs-bus-pci"


# -- ASPM -----------------------------------------------------------------------------------


@row(
    "pcie.aspm",
    title="Links of hot devices do not sleep",
    symptom="The first transfer after a pause is microseconds to tens of microseconds slower",
    cause="Active State Power Management lets an idle link sleep, and waking it takes its exit latency",
    severity="warning",
    scope="runtime",
    risk="A drive or card stays warmer.",
    cost="some watts a device",
    sources=(
        f"{_ABI}, link/l1_aspm",
        f"{_PARAMETERS}: pcie_aspm=off leaves what the firmware set unchanged; pcie_aspm.policy=",
        "PCI Express Base Specification, 5.4.1: Active State Power Management",
    ),
)
def aspm(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if profile.pcie.aspm:
        return verdict.not_applicable("the profile lets links save power (pcie.aspm)")
    ends = [end for end in _pcie.endpoints(machine) if end.device is not None]
    if not ends:
        return _pcie.no_devices(verdict, machine)
    for end in ends:
        states = end.link.aspm
        if end.linkless:
            verdict.not_applicable("the devices here have no PCI Express link of their own")
        elif not states.known:
            if _pcie.in_guest(machine, end):
                verdict.not_applicable("the host of this virtual machine decides on the links of its devices")
            else:
                verdict.unknown(end.subject, states)
        elif not states.get():
            verdict.ok(evidence(states.source, "off", "off"))
        else:
            _asleep(verdict, machine, end)
    return verdict


def _asleep(verdict: Verdict, machine: Machine, end: Endpoint) -> None:
    states = end.link.aspm
    on = ", ".join(states.get())
    told = f"The link of the {end.noun} may sleep when idle (ASPM {on})."
    items = [evidence(states.source, on, "off")]
    policy = machine.pci.aspm_policy
    if policy.known:
        items.append(fact_evidence(policy))
    # What turns L1 off takes its substates with it (drivers/pci/pcie/aspm.c, aspm_attr_store_common).
    files = [path for path in end.link.aspm_files if path.endswith(("/l0s_aspm", "/l1_aspm"))]
    changes: list[Change] = [SysfsAttribute(path, "0", persist="udev") for path in files]
    off = "off" in machine.kernel.argument_values("pcie_aspm")
    if not changes and off:
        told += " The boot argument pcie_aspm=off does not turn it off: it keeps what the firmware set."
        items.append(evidence(machine.kernel.cmdline.source, "pcie_aspm=off", "pcie_aspm.policy=performance"))
        changes = [KernelArguments(set=("pcie_aspm.policy=performance",), remove=("pcie_aspm",))]
    if not changes and not states.source.startswith("/sys/"):
        # From a pasted text: whether the kernel has a switch for this link, only the machine knows.
        changes = [SysfsAttribute("/sys/module/pcie_aspm/parameters/policy", "performance")]
    if changes:
        verdict.finding(end.subject, told, *items, **fix(machine, *changes))
    else:
        verdict.finding(end.subject, told, *items, advice="Turn ASPM off for this slot in BIOS setup.")


# -- payload --------------------------------------------------------------------------------


@row(
    "pcie.max-payload",
    title="Both ends of a link agree on the size of packets",
    symptom="Malformed TLP errors, a device that stops, or slow transfers",
    cause="A function that sends packets larger than the next port takes has them dropped as malformed",
    severity="warning",
    scope="boot",
    risk="Smaller packets cost some bandwidth.",
    cost="bandwidth, where the smaller size wins",
    sources=(
        "PCI Express Base Specification, 7.5.3.4: Max_Payload_Size",
        f"{_PARAMETERS}: pci=pcie_bus_safe, pcie_bus_perf",
        "Linux drivers/pci/probe.c, pci_configure_mps",
    ),
)
def max_payload(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    ends = [end for end in _pcie.endpoints(machine) if end.device is not None]
    if not ends:
        return _pcie.no_devices(verdict, machine)
    by_address = machine.pci.by_address()
    perf = any("pcie_bus_perf" in value for value in machine.kernel.argument_values("pci"))
    for end in ends:
        device = end.device
        assert device is not None
        if device.max_payload.absent or end.linkless:
            verdict.not_applicable("the devices here have no PCI Express link of their own")
        elif not device.max_payload.known:
            if _pcie.in_guest(machine, end) and device.max_payload.gap != DENIED:
                verdict.not_applicable("the host of this virtual machine decides on the links of its devices")
            else:
                verdict.unknown(end.subject, device.max_payload)
        else:
            _payload(verdict, machine, end, device, _pcie.way_up(end.address, by_address), perf)
    return verdict


def _payload(
    verdict: Verdict, machine: Machine, end: Endpoint, device: PciDevice, above: list[PciDevice], perf: bool
) -> None:
    mine = device.max_payload.get()
    ports = [port for port in above if port.max_payload.known]
    if not ports:
        if _pcie.in_guest(machine, end):
            verdict.not_applicable("the host of this virtual machine decides on the links of its devices")
        else:
            verdict.unknown(end.subject, above[0].max_payload if above else _pcie.NO_PORT)
        return
    smallest = min(ports, key=lambda port: port.max_payload.get())
    least = smallest.max_payload.get()
    requests = device.max_read_request
    if mine > least:
        told = f"The {end.noun} sends packets of up to {mine} bytes, but {smallest.address} takes {least}."
    elif mine < ports[0].max_payload.get() and not perf and (not requests.known or requests.get() > mine):
        # With pcie_bus_perf the kernel means it so, and keeps read requests small instead.
        told = (
            f"The {end.noun} takes packets of up to {mine} bytes, but the port above it sends up to "
            f"{ports[0].max_payload.get()}."
        )
    else:
        verdict.ok(evidence(device.max_payload.source, f"{mine} bytes", f"{least} bytes"))
        return
    verdict.finding(
        end.subject,
        told,
        evidence(device.max_payload.source, f"{mine} bytes"),
        evidence(smallest.max_payload.source, f"{smallest.address}: {least} bytes"),
        advice="Boot with pci=pcie_bus_safe, beside what pci= says already: all then take the same size.",
    )


# -- IOMMU ----------------------------------------------------------------------------------


@row(
    "pcie.iommu",
    title="DMA of hot devices is not translated strictly",
    symptom="More CPU time and jitter for each packet or block that a device transfers",
    cause="With strict translation, each mapping is taken back and flushed at once",
    severity="info",
    scope="boot",
    risk="A device can then reach all memory.",
    cost="security: no protection from devices and drivers that go wrong",
    sources=(
        "Linux Documentation/ABI/testing/sysfs-kernel-iommu_groups, type (since 5.11)",
        f"{_PARAMETERS}: iommu.passthrough, iommu.strict",
    ),
)
def iommu(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    wanted = profile.pcie.iommu_types
    ends = [end for end in _pcie.endpoints(machine) if end.device is not None]
    if not ends:
        return _pcie.no_devices(verdict, machine)
    if machine.pci.iommu_present.value is False:
        return verdict.not_applicable("no IOMMU is in use, so that DMA is not translated")
    if any(device.driver.value == "vfio-pci" for device in machine.pci.devices):
        return verdict.not_applicable("devices are lent to guests (vfio-pci), which needs translation")
    bad: dict[str, list[Endpoint]] = {}
    for end in ends:
        assert end.device is not None
        kind = end.device.iommu_type
        if kind.known:
            if kind.get() in wanted:
                verdict.ok(fact_evidence(kind, " or ".join(wanted)))
            else:
                bad.setdefault(kind.get(), []).append(end)
        elif end.device.iommu_group.absent:
            verdict.not_applicable("the devices here are in no IOMMU group")
        elif kind.absent:
            verdict.unknown(end.subject, f"{kind.source} does not exist: kernels before 5.11 do not tell")
        else:
            verdict.unknown(end.subject, kind)
    for name, affected in bad.items():
        _translated(verdict, machine, name, affected, wanted)
    return verdict


def _translated(
    verdict: Verdict, machine: Machine, kind: str, affected: list[Endpoint], wanted: list[str]
) -> None:
    names = _pcie.listed([f"{_pcie.NOUNS[end.role]} {end.address}" for end in affected])
    items = [
        fact_evidence(end.device.iommu_type, " or ".join(wanted))
        for end in affected
        if end.device is not None
    ]
    told = f"DMA of {names} goes through an IOMMU domain of type {kind}."
    argument = {"identity": "iommu.passthrough=1", "DMA-FQ": "iommu.strict=0"}.get(
        wanted[0] if wanted else ""
    )
    if argument is None:
        advice = (
            "Choose the domain's type with iommu.passthrough= or iommu.strict= on the kernel's command line."
        )
        verdict.finding(affected[0].subject, told, *items, advice=advice)
    else:
        verdict.finding(affected[0].subject, told, *items, **fix(machine, KernelArguments(set=(argument,))))


# -- runtime power management ---------------------------------------------------------------

_NVIDIA = 0x10DE
# What a latency is measured against the others on the same machine.
_OUTLIER_US = 100.0
_OUTLIER_TIMES = 10


@row(
    "pcie.runtime-pm",
    title="Hot devices do not suspend while the machine runs",
    symptom="Rare latencies of a millisecond and more on one CPU",
    cause="A device that the kernel may suspend at run time has to be woken, with interrupts held off or "
    "locks taken meanwhile",
    severity="info",
    scope="runtime",
    risk="The device stays warmer.",
    cost="some watts a device",
    sources=(
        "Linux Documentation/power/runtime_pm.rst",
        "Linux Documentation/ABI/testing/sysfs-devices-power, control and runtime_status",
    ),
)
def runtime_pm(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if profile.pcie.runtime_pm:
        return verdict.not_applicable("the profile lets devices suspend (pcie.runtime_pm)")
    devices = [d for d in machine.pci.devices if d.role in _pcie.NOUNS and d.physical_function is None]
    if not devices:
        return _pcie.no_devices(verdict, machine)
    outliers = _outliers(machine)
    for device in devices:
        subject = f"pci:{device.address}"
        control, status = device.power_control, device.runtime_status
        if control.absent or status.value == "unsupported":
            verdict.not_applicable("the devices here have no runtime power management")
        elif not control.known:
            verdict.unknown(subject, control)
        elif control.get() != "auto":
            verdict.ok(fact_evidence(control, "on"))
        elif status.value in ("suspended", "suspending") or (outliers and _sleeps(device)):
            _may_suspend(verdict, machine, device, outliers)
        elif status.known:
            verdict.ok(fact_evidence(control), reason="devices that may suspend are active")
        else:
            verdict.unknown(subject, status)
    return verdict


def _sleeps(device: PciDevice) -> bool:
    """Graphics of the processor suspend between frames; a data centre GPU that is active stays so,
    and a drive or card in use does not suspend."""
    return device.role == "gpu" and device.vendor.value != _NVIDIA


def _may_suspend(
    verdict: Verdict, machine: Machine, device: PciDevice, outliers: list[tuple[Measured, float]]
) -> None:
    items = [fact_evidence(device.power_control, "on")]
    if device.runtime_status.known:
        items.append(fact_evidence(device.runtime_status))
    noun = _pcie.NOUNS[device.role]
    told = f"The {noun} {device.address}{_driver(device)} may suspend while the machine runs."
    for outlier, rest in outliers:
        told += (
            f" CPU {outlier.cpu} had a latency of {outlier.max_us:g} us, the others {rest:g} us at most: "
            "waking a device can cause that."
        )
        items.append(evidence(outlier.source, f"CPU {outlier.cpu}: {outlier.max_us:g} us"))
    verdict.finding(
        f"pci:{device.address}",
        told,
        *items,
        severity="warning" if outliers else "info",
        **fix(machine, SysfsAttribute(f"{device.source}/power/control", "on", persist="udev")),
    )


def _driver(device: PciDevice) -> str:
    return f" ({device.driver.get()})" if device.driver.known else ""


def _outliers(machine: Machine) -> list[tuple[Measured, float]]:
    """The CPUs whose worst latency stands out from the others of the same measurement, each with
    the worst of these."""
    found = []
    groups: dict[tuple[str, str, str], list[Measured]] = {}
    for measured in machine.cpus.measured:
        if measured.cpu is not None and measured.kind in ("", "thread"):
            groups.setdefault((measured.source, measured.tool, measured.kind), []).append(measured)
    for group in groups.values():
        ordered = sorted(m.max_us for m in group)
        middle = ordered[(len(ordered) - 1) // 2]
        far = [m for m in group if m.max_us >= _OUTLIER_US and m.max_us >= _OUTLIER_TIMES * middle]
        rest = [m.max_us for m in group if all(m is not other for other in far)]
        found += [(measured, max(rest)) for measured in far if rest]
    return found
