"""Services by systemd's own files, by sosreport's texts, by the names of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.probes import services
from tests.support import Directory, Link, host

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.machine import Services

WANTS = "/etc/systemd/system/multi-user.target.wants/"
TUNED = {
    "/run/systemd/units/invocation:tuned.service": Link("0f"),
    "/run/systemd/units/invocation:ptp4l@eth0.service": Link("0f"),
    "/run/systemd/units/invocation:cron.service": Link("0f"),
    "/run/systemd/units/log-level-max:irqbalance.service": Link("3"),
    WANTS + "tuned.service": Link("/usr/lib/systemd/system/tuned.service"),
    WANTS + "irqbalance.service": Link("/usr/lib/systemd/system/irqbalance.service"),
    "/etc/systemd/system/timers.target.wants/fstrim.timer": Link("/usr/lib/systemd/system/fstrim.timer"),
    "/etc/systemd/system/tlp.service": Link("/dev/null"),
    "/usr/lib/systemd/system/tuned.service": "",
    "/usr/lib/systemd/system/irqbalance.service": "",
    "/usr/lib/systemd/system/cpupower.service": "",
    "/usr/lib/systemd/system/cron.service": "",
    "/etc/tuned/active_profile": "network-latency\n",
}


def read(tmp_path: Path, files: dict[str, Any], **more: Any) -> Services:
    return services.read(host(tmp_path, files, **{"complete": True, **more}))


def states(found: Services) -> dict[str, tuple[bool | None, bool | None, str]]:
    return {s.name: (s.active.value, s.enabled.value, s.detail) for s in found.services}


def test_systemd(tmp_path: Path) -> None:
    found = read(tmp_path, TUNED)
    assert states(found) == {
        "cpupower": (False, False, ""),
        "fstrim.timer": (None, True, ""),  # whether a timer runs stands in no file
        "irqbalance": (False, True, ""),
        "ptp4l@eth0": (True, False, ""),
        "tlp": (False, False, "masked"),
        "tuned": (True, True, "profile network-latency"),
    }
    assert found.listed.get() is True
    assert found.active("tuned").get() is True
    assert found.active("auto-cpufreq").get() is False  # not there at all
    tuned = found.find("tuned")
    assert tuned is not None
    assert tuned.source == "/run/systemd/units"
    assert tuned.enabled.source == WANTS + "tuned.service"


def test_cgroups_where_systemd_is_older(tmp_path: Path) -> None:
    files = {
        "/sys/fs/cgroup/systemd/system.slice/tuned.service/cgroup.procs": "812\n",
        "/usr/lib/systemd/system/irqbalance.service": "",
        "/usr/lib/systemd/system/cpupower.service": "",
        "/etc/systemd/system": Directory(),
    }
    found = states(read(tmp_path, files))
    assert found["tuned"][0] is True
    assert found["irqbalance"][0] is False
    assert found["cpupower"][0] is None  # it sets what it sets and leaves no process


def test_processes_where_there_is_no_systemd(tmp_path: Path) -> None:
    files = {"/proc/1/comm": "init\n", "/proc/77/comm": "irqbalance\n", "/proc/self/comm": "tlp\n"}
    files["/proc/78/comm"] = "\n"  # prctl(PR_SET_NAME, "") is allowed, and some units have no process
    found = read(tmp_path, files)
    assert states(found) == {"irqbalance": (True, None, "")}
    assert found.active("tuned").get() is False


def test_sosreport(tmp_path: Path) -> None:
    files = {
        "/proc/cmdline": "",
        "/sos_commands/systemd/systemctl_list-units": (
            "  UNIT                LOAD   ACTIVE SUB     DESCRIPTION\n"
            "  irqbalance.service  loaded active running irqbalance daemon\n"
            "● tuned.service       loaded failed failed  Dynamic System Tuning Daemon\n"
            "  fwupd-refresh.timer loaded active waiting Refresh fwupd metadata regularly\n"
        ),
        "/sos_commands/systemd/systemctl_list-unit-files": (
            "UNIT FILE            STATE    VENDOR PRESET\n"
            "irqbalance.service   enabled  enabled\n"
            "tlp.service          masked   enabled\n"
            "fwupd-refresh.timer  enabled  enabled\n"
        ),
    }
    assert states(read(tmp_path, files, complete=False)) == {
        "fwupd-refresh.timer": (True, True, ""),
        "irqbalance": (True, True, ""),
        "tlp": (False, False, "masked"),
    }


def test_nothing_captured(tmp_path: Path) -> None:
    found = read(tmp_path, {"/proc/cmdline": ""}, complete=False)
    assert found.services == []
    assert found.listed.unknown
    assert found.active("tuned").unknown


def test_pasted_profile_of_tuned(tmp_path: Path) -> None:
    files = {k: v for k, v in TUNED.items() if not k.startswith("/etc/tuned")}
    found = read(tmp_path, files, documents={"tuned.txt": "Current active profile: virtual-guest\n"})
    assert states(found)["tuned"][2] == "profile virtual-guest"


def test_pasted_profile_where_nothing_else_tells_of_services(tmp_path: Path) -> None:
    text = {"t.txt": "Current active profile: balanced\n"}
    found = read(tmp_path, {"/proc/cmdline": ""}, complete=False, documents=text)
    assert states(found) == {"tuned": (True, None, "profile balanced")}


def test_kubelets_cpu_manager(tmp_path: Path) -> None:
    files = {
        "/run/systemd/units/invocation:kubelet.service": Link("0f"),
        "/var/lib/kubelet/cpu_manager_state": '{"policyName":"static","defaultCpuSet":"0-3","checksum":1}',
    }
    assert states(read(tmp_path, files))["kubelet"][2] == "CPU manager policy static"
