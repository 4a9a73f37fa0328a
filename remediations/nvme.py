"""Rows: how the kernel drives NVMe drives, and what these do by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments, NvmeLatencyTolerance, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import fix, plural, size
from hwtune.remediations._nvme import NONE, SPEC, drives, each, kernel_name, subject, unknown

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.model import Machine
    from hwtune.model.storage import BlockDevice, Mount, NvmeController, PowerState
    from hwtune.profile import Profile

_BLOCK_ABI = "Linux Documentation/ABI/stable/sysfs-block"


# -- autonomous power states --------------------------------------------------------------


@row(
    "nvme.apst",
    title="Autonomous power states of drives",
    symptom="The first I/O after a pause takes milliseconds, every time.",
    cause="A drive that was idle for a tenth of a second goes to sleep, and has to wake up for the next I/O.",
    severity="warning",
    scope="runtime",
    risk="The drive stays warmer, so that it may throttle in a tight slot.",
    cost="Some watts for each drive.",
    sources=(
        f"{SPEC}, Autonomous Power State Transition (feature 0Ch)",
        "Linux drivers/nvme/host/core.c, nvme_configure_apst()",
        "Linux Documentation/ABI/testing/sysfs-devices-power, pm_qos_latency_tolerance_us",
    ),
)
def apst(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    for controller in drives(machine, verdict):
        if profile.nvme.apst:
            verdict.ok(reason="the profile lets drives sleep")
        else:
            _judge_apst(verdict, machine, controller)
    return verdict


def _judge_apst(verdict: Verdict, machine: Machine, controller: NvmeController) -> None:
    """By the feature itself where it could be read; by what the kernel asks for otherwise."""
    enabled, supported, tolerance = (
        controller.apst_enabled, controller.apst_supported, controller.latency_tolerance,
    )  # fmt: skip
    if enabled.known and not enabled.get():
        verdict.ok(fact_evidence(enabled, "no"), reason=f"{controller.name} does not sleep by itself")
    elif enabled.absent or (supported.known and not supported.get()):
        verdict.not_applicable(f"{controller.name} has no autonomous power states")
    elif enabled.known and controller.apst_transitions.known:
        _judge_table(verdict, machine, controller)
    elif tolerance.absent:
        # The file is there exactly where the kernel may use APST.
        verdict.not_applicable(f"the kernel uses no autonomous power states of {controller.name}")
    elif not tolerance.known:
        unknown(verdict, controller, tolerance, enabled)
    elif tolerance.get() == "0":
        verdict.ok(fact_evidence(tolerance, "0"), reason=f"the kernel keeps {controller.name} awake")
    else:
        _judge_request(verdict, machine, controller)


def _judge_table(verdict: Verdict, machine: Machine, controller: NvmeController) -> None:
    """By the table of transitions that the drive itself has."""
    transitions = controller.apst_transitions.get()
    if not transitions:
        verdict.ok(
            fact_evidence(controller.apst_enabled, "no"),
            reason=f"{controller.name} has the feature on with an empty table",
        )
        return
    listed = controller.power_states.get() if controller.power_states.known else []
    states = {state.index: state for state in listed}
    reached = [states[t.target] for t in transitions if t.target in states]
    idle = min(t.idle_ms for t in transitions)
    _sleeps(
        verdict, machine, controller, reached, f"After {idle} ms without I/O {controller.name} goes to sleep"
    )


def _judge_request(verdict: Verdict, machine: Machine, controller: NvmeController) -> None:
    """By the latency that the kernel tolerates, as it chooses states itself (nvme_configure_apst)."""
    if not controller.power_states.known:
        unknown(verdict, controller, controller.apst_enabled, controller.power_states)
        return
    text = controller.latency_tolerance.get()
    limit = int(text) if text.isdecimal() else None  # "any" and "auto" set none
    reached = [
        state
        for state in controller.power_states.get()
        if state.non_operational and (limit is None or state.exit_us <= limit)
    ]
    if not reached:
        verdict.ok(
            fact_evidence(controller.latency_tolerance),
            reason=f"no sleeping state of {controller.name} is as quick as the kernel asks for",
        )
        return
    _sleeps(verdict, machine, controller, reached, f"The kernel lets {controller.name} go to sleep")


def _sleeps(
    verdict: Verdict, machine: Machine, controller: NvmeController, reached: list[PowerState], what: str
) -> None:
    slowest = max(reached, key=lambda state: state.exit_us, default=None)
    wait = "has to wait until it is awake"
    if slowest is not None and slowest.exit_us:
        wait = f"waits up to {slowest.exit_us:,} us until it is awake"
    items = []
    if controller.apst_enabled.known:
        items.append(fact_evidence(controller.apst_enabled, "no"))
    if controller.latency_tolerance.known:
        items.append(fact_evidence(controller.latency_tolerance, "0"))
    for state in sorted({state.index: state for state in reached}.values(), key=lambda state: state.index):
        items.append(
            evidence(
                controller.power_states.source,
                f"power state {state.index}: {state.entry_us} us to enter, {state.exit_us} us to leave",
            )
        )
    verdict.finding(
        subject(controller),
        f"{what}; the next I/O {wait}.",
        *items,
        **_keep_awake(machine, controller),  # type: ignore[arg-type]
    )


def _keep_awake(machine: Machine, controller: NvmeController) -> dict[str, object]:
    tolerance = controller.latency_tolerance
    if tolerance.known and tolerance.get() == "0":
        # The same value again would not be passed on to the drive.
        return {"advice": "Find what turned the feature on in the drive itself, and reset the controller."}
    boot = KernelArguments(set=("nvme_core.default_ps_max_latency_us=0",))
    if tolerance.known and kernel_name(controller):
        return fix(machine, NvmeLatencyTolerance(controller.name, "0"), boot)
    return fix(machine, boot)


# -- the block layer ----------------------------------------------------------------------


def _disks(machine: Machine, verdict: Verdict) -> list[BlockDevice]:
    """NVMe disks; where there are none, the verdict says why."""
    found = [device for device in machine.block.devices if device.nvme is not None]
    if not found:
        nvme, listed = machine.nvme, machine.block.listed
        local = [c.name for c in nvme.controllers if c.transport.value in (None, "pcie")]
        if local and listed.known:
            verdict.unknown("block:nvme*", f"no disk of {', '.join(local)} is in {listed.source}")
        elif listed.known or listed.absent or not (nvme.listed.unknown or nvme.controllers):
            verdict.not_applicable(NONE)
        else:
            verdict.unknown("block:nvme*", listed)
    return found


@row(
    "nvme.scheduler",
    title="I/O scheduler of drives",
    symptom="I/O costs more CPU time than it must, and threads wait for each other on the queue's lock.",
    cause="A scheduler sorts I/O for devices that are slower than the sorting; an NVMe drive is not.",
    severity="warning",
    scope="runtime",
    risk="Fairness between processes, and limits by I/O priority, go.",
    cost="None on a drive that does not queue.",
    sources=(
        f"{_BLOCK_ABI}, queue/scheduler",
        "Linux Documentation/block/bfq-iosched.rst, section 2",
        "Linux block/elevator.c (none is the default of devices with several queues)",
    ),
)
def scheduler(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    accepted = profile.nvme.scheduler
    expected = " or ".join(accepted)
    for disk in _disks(machine, verdict):
        value = disk.scheduler
        if value.absent:
            # Disks above several paths pass I/O on as it is; the choice is that of the paths.
            verdict.not_applicable(f"{disk.name} has no scheduler")
        elif not value.known:
            verdict.unknown(f"block:{disk.name}", value)
        elif value.get() in accepted:
            verdict.ok(fact_evidence(value, expected))
        else:
            path = f"/sys/block/{disk.name}/queue/scheduler"
            verdict.finding(
                f"block:{disk.name}",
                f"I/O to {disk.name} goes through the scheduler {value.get()}.",
                fact_evidence(value, expected),
                severity="warning" if value.get() == "bfq" else "info",
                **fix(machine, SysfsAttribute(path, accepted[0], persist="udev")),
            )
    return verdict


@row(
    "nvme.write-cache-view",
    title="The kernel's view of the write cache",
    symptom="After a power cut, data is gone that fsync() had reported as written.",
    cause='With "write through" the kernel sends no flushes; a drive with a volatile cache needs them.',
    severity="error",
    scope="hands",
    risk="None: the finding is about data at risk now.",
    cost="The latency of the flushes that were left out.",
    sources=(
        f"{_BLOCK_ABI}, queue/write_cache",
        f"{SPEC}, Volatile Write Cache (VWC, feature 06h)",
        "Linux drivers/nvme/host/core.c (the view comes from Identify, not from the feature)",
    ),
)
def write_cache_view(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    by_name = {controller.name: controller for controller in machine.nvme.controllers}
    for disk in _disks(machine, verdict):
        if disk.write_cache.absent:
            verdict.not_applicable(f"{disk.name} has no write_cache file")
        elif not disk.write_cache.known:
            verdict.unknown(f"block:{disk.name}", disk.write_cache)
        else:
            _judge_cache(verdict, disk, by_name.get(disk.nvme or ""))
    return verdict


def _judge_cache(verdict: Verdict, disk: BlockDevice, controller: NvmeController | None) -> None:
    view = fact_evidence(disk.write_cache)
    if disk.write_cache.get() == "write back":
        verdict.ok(view, reason=f"the kernel sends flushes to {disk.name}, as a volatile cache needs them")
        return
    if controller is None:
        verdict.unknown(f"block:{disk.name}", f"which controller {disk.name} belongs to is not known")
        return
    present, enabled = controller.volatile_write_cache_present, controller.volatile_write_cache_enabled
    if present.known and not present.get():
        verdict.ok(view, fact_evidence(present), reason=f"{controller.name} has no volatile cache to flush")
    elif not present.known:
        verdict.unknown(f"block:{disk.name}", present)
    elif enabled.known and not enabled.get():
        verdict.ok(view, fact_evidence(enabled), reason=f"the cache of {controller.name} is off")
    elif not enabled.known:
        verdict.unknown(f"block:{disk.name}", enabled)
    else:
        verdict.finding(
            f"block:{disk.name}",
            f"{controller.name} has its volatile cache on, and the kernel sends no flushes: a power cut loses"
            " data that was reported as written.",
            fact_evidence(disk.write_cache, "write back"),
            evidence(enabled.source, "volatile write cache on"),
            advice="Find the rule or script that changes queue/write_cache, remove it and reboot.",
        )


@row(
    "nvme.discard-mount",
    title="Discard while the file system is in use",
    symptom="fsync() and deletions take long, now and then, on a drive that is not busy.",
    cause="With the option discard each freed extent is trimmed at once, between the reads and writes.",
    severity="warning",
    scope="hands",
    risk="Space that was freed is trimmed later, once a week by default.",
    cost="None where fstrim.timer runs.",
    sources=(
        "Linux Documentation/admin-guide/xfs.rst, discard",
        "ext4(5), discard",
        "btrfs(5), discard (sync and async)",
        "fstrim(8)",
    ),
)
def discard_mount(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    mounts = machine.block.mounts
    if not mounts.known:
        if machine.block.listed.known and not any(device.nvme for device in machine.block.devices):
            return verdict.not_applicable(NONE)
        return verdict.unknown("block:nvme*", mounts)
    on_drives = [mount for mount in mounts.get() if _nvme_disks(mount)]
    _unresolved(verdict, machine, mounts.get())
    if not on_drives and not verdict.unknowns:
        return verdict.not_applicable("no file system on an NVMe drive is mounted here")
    for mount in on_drives:
        _judge_mount(verdict, machine, profile, mount)
    return verdict


def _nvme_disks(mount: Mount) -> list[str]:
    found = [disk for disk in mount.disks if disk.startswith("nvme")]
    name = mount.device.removeprefix("/dev/")
    return found or ([name] if not mount.disks and name.startswith("nvme") else [])


def _unresolved(verdict: Verdict, machine: Machine, mounts: list[Mount]) -> None:
    """Mappings that discard, and of which nobody tells the drive."""
    if not any(device.nvme for device in machine.block.devices) and machine.block.listed.known:
        return
    for mount in mounts:
        if "discard" in mount.options and not mount.disks and not _nvme_disks(mount):
            reason = f"which drive {mount.device} lies on is not known"
            verdict.unknown(f"block:{mount.device.rpartition('/')[2]}", reason)


# f2fs gathers discards and issues them while it is idle, whatever the option says.
_LAZY = ("f2fs",)


def _judge_mount(verdict: Verdict, machine: Machine, profile: Profile, mount: Mount) -> None:
    source = machine.block.mounts.source
    options = [option for option in mount.options if option.partition("=")[0] == "discard"]
    if "discard" not in mount.options or mount.fstype in _LAZY:
        verdict.ok(
            evidence(source, f"{mount.target}: {mount.fstype}, {options[0] if options else 'no discard'}")
        )
        return
    if profile.nvme.discard_mounts:
        verdict.ok(
            evidence(source, f"{mount.target}: discard"), reason="the profile lets file systems discard"
        )
        return
    by_name = machine.block.by_name()
    disks = _nvme_disks(mount)
    limits = [by_name[disk].discard_max_bytes for disk in disks if disk in by_name]
    if limits and all(limit.known and limit.get() == 0 for limit in limits):
        verdict.ok(
            fact_evidence(limits[0]), reason=f"{mount.target} has the option, and its drive takes no discard"
        )
        return
    items = [evidence(source, f"{mount.device} on {mount.target}: {mount.fstype}, discard", "no discard")]
    fstab = machine.block.fstab_discard
    if fstab.known and mount.target in fstab.get():
        items.append(evidence(fstab.source, f"{mount.target}: discard", "no discard"))
    advice = "Take discard out of the mount options and enable fstrim.timer, which trims off-hours."
    if mount.fstype == "btrfs":
        advice = "Mount it with discard=async, or without discard and with fstrim.timer enabled."
    verdict.finding(
        f"block:{disks[0]}",
        f"{mount.target} trims what is freed at once, in the way of other I/O to {', '.join(disks)}.",
        *items,
        advice=advice,
    )


# -- the drives themselves ----------------------------------------------------------------


@row(
    "nvme.state",
    title="State of NVMe controllers",
    symptom="I/O to the drive hangs or fails.",
    cause="The controller is being reset, was given up, or does not answer.",
    severity="error",
    scope="hands",
    risk="None for reading.",
    cost="None.",
    sources=("Linux drivers/nvme/host/core.c, nvme_change_ctrl_state()",),
)
def state(machine: Machine, profile: Profile) -> Verdict:
    return each(_judge_state, machine, Verdict())


def _judge_state(verdict: Verdict, controller: NvmeController) -> None:
    value, answers = controller.state, controller.answers
    if answers.known and not answers.get():
        verdict.finding(
            subject(controller),
            f"{controller.name} gave no answer to an admin command within five seconds.",
            evidence(answers.source, "no answer", "an answer within milliseconds"),
            *([fact_evidence(value, "live")] if value.known else []),
            advice="Look into the kernel log for timeouts of it, and move its data off while it still reads.",
        )
    elif not value.known:
        if value.absent:
            verdict.not_applicable(f"this kernel does not tell the state of {controller.name}")
        else:
            unknown(verdict, controller, value)
    elif value.get() == "live":
        verdict.ok(fact_evidence(value, "live"))
    else:
        dead = value.get() == "dead"
        verdict.finding(
            subject(controller),
            f"{controller.name} is {value.get()}: no I/O reaches it" + ("." if dead else " for now."),
            fact_evidence(value, "live"),
            severity=None if dead else "warning",
            advice="Check the drive's power and seat, and the kernel log for why it was given up."
            if dead
            else "Ask again in a minute; if it is still so, look into the kernel log for why.",
        )


@row(
    "nvme.queues",
    title="I/O queues of drives",
    symptom="I/O from many CPUs is slower than the drive, and all its interrupts land on one CPU.",
    cause="The drive got one I/O queue for all CPUs, for want of interrupt vectors or of queues.",
    severity="warning",
    scope="boot",
    risk="None known.",
    cost="None.",
    sources=("Linux drivers/nvme/host/pci.c, nvme_setup_io_queues()",),
)
def queues(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    online = machine.cpus.online
    for controller in drives(machine, verdict):
        count = controller.queue_count
        if count.absent:
            verdict.not_applicable(f"this kernel does not tell the queues of {controller.name}")
        elif not count.known or not online.known:
            unknown(verdict, controller, count, online)
        else:
            _judge_queues(verdict, machine, controller, count.get() - 1, len(online.get()))
    return verdict


def _judge_queues(
    verdict: Verdict, machine: Machine, controller: NvmeController, own: int, cpus: int
) -> None:
    """``own``: its I/O queues. One for each CPU is what the driver asks for."""
    count = controller.queue_count
    if own >= cpus:
        verdict.ok(evidence(count.source, f"{own} I/O queues", f"{cpus} CPUs"))
    elif own > 1 or machine.virtualization.is_guest:
        what = f"{plural(own, 'I/O queue')} of {controller.name} for {cpus} CPUs, so that CPUs share one"
        verdict.ok(evidence(count.source, plural(own, "I/O queue"), f"{cpus} CPUs"), reason=what)
    else:
        verdict.finding(
            subject(controller),
            f"All {cpus} CPUs share the one I/O queue of {controller.name}."
            if own == 1
            else f"{controller.name} has no I/O queue.",
            evidence(count.source, f"{count.get()} queues with the admin queue", f"up to {cpus + 1}"),
            advice="Look into the kernel log for why the driver got no more queues or interrupt vectors.",
            severity=None if own == 1 else "error",
        )


@row(
    "nvme.host-memory-buffer",
    title="Drives that keep their tables in host memory",
    symptom="Random reads of a drive vary more than those of others, and more under load on memory or PCIe.",
    cause="A drive without memory of its own looks its mapping up in the host's, or in its flash.",
    severity="info",
    scope="hands",
    risk="None for reading.",
    cost="Another drive.",
    sources=(f"{SPEC}, Host Memory Buffer (HMPRE)", "Linux drivers/nvme/host/pci.c, nvme_setup_host_mem()"),
)
def host_memory_buffer(machine: Machine, profile: Profile) -> Verdict:
    return each(_judge_host_memory, machine, Verdict())


def _judge_host_memory(verdict: Verdict, controller: NvmeController) -> None:
    wanted = controller.host_memory_buffer_kib
    if not wanted.known:
        unknown(verdict, controller, wanted)
    elif wanted.get() == 0:
        verdict.ok(evidence(wanted.source, "asks for no host memory"))
    else:
        verdict.finding(
            subject(controller),
            f"{controller.name} asks for {size(wanted.get() << 10)} of host memory for its tables: likely a"
            " client drive without memory of its own.",
            evidence(wanted.source, f"prefers {size(wanted.get() << 10)}", "0"),
            advice="Keep the data of the hot path on a drive that has its own memory.",
        )


@row(
    "nvme.firmware-mismatch",
    title="Firmware of alike drives",
    symptom="One of several alike drives is slower, or has faults that the others don't.",
    cause="Drives of one model run different firmware.",
    severity="info",
    scope="firmware",
    risk="A firmware update may lose data: back it up first.",
    cost="None.",
    sources=(f"{SPEC}, Firmware Revision (FR)",),
)
def firmware_mismatch(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    models: dict[str, list[NvmeController]] = {}
    for controller in drives(machine, verdict):
        if controller.model.known and controller.firmware.known:
            models.setdefault(controller.model.get(), []).append(controller)
        else:
            unknown(verdict, controller, controller.model, controller.firmware)
    alike = {model: same for model, same in models.items() if len(same) > 1}
    if models and not alike and not verdict.unknowns:
        return verdict.not_applicable("no two drives are of one model")
    for model, same in alike.items():
        _judge_firmware(verdict, model, same)
    return verdict


def _judge_firmware(verdict: Verdict, model: str, same: list[NvmeController]) -> None:
    revisions: dict[str, list[str]] = {}
    for controller in same:
        revisions.setdefault(controller.firmware.get(), []).append(controller.name)
    if len(revisions) == 1:
        verdict.ok(evidence(same[0].firmware.source, f"{len(same)} x {model}: {next(iter(revisions))}"))
        return
    fewest = min(revisions.values(), key=len)
    shown: list[Evidence] = [
        evidence(c.firmware.source, f"{c.name}: {c.firmware.get()}", "one revision") for c in same[:16]
    ]
    verdict.finding(
        f"nvme:{fewest[0]}",
        f"{len(same)} drives of the model {model} run {len(revisions)} revisions of firmware: "
        + "; ".join(f"{revision} on {', '.join(names)}" for revision, names in revisions.items())
        + ".",
        *shown,
        advice="Bring all of them to the revision that the maker recommends.",
    )
