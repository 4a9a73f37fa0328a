"""A healthy box of four cores with two threads each, on two packages, as files; tests spoil it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

CPU = "/sys/devices/system/cpu"
CPUS = range(8)
# CPU n and n + 4 are siblings; cores 0 and 1 are package 0, cores 2 and 3 package 1
STATES = (("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133))


def core(cpu: int) -> int:
    return cpu % 4


def package(cpu: int) -> int:
    return core(cpu) // 2


def cpuinfo(mhz: float = 3100.0) -> str:
    return "".join(
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
        f"model name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\nmicrocode\t: 0x5003707\n"
        f"cpu MHz\t\t: {mhz + cpu:.3f}\nphysical id\t: {package(cpu)}\nsiblings\t: 4\n"
        f"core id\t\t: {core(cpu) % 2}\ncpu cores\t: 2\nflags\t\t: fpu lm aperfmperf\n\n"
        for cpu in CPUS
    )


def topology() -> dict[str, Any]:
    files: dict[str, Any] = {f"{CPU}/{name}": "0-7\n" for name in ("possible", "present", "online")}
    files |= {f"{CPU}/offline": "\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "  (null)\n"}
    files |= {f"{CPU}/smt/control": "on\n", "/proc/cpuinfo": cpuinfo()}
    for cpu in CPUS:
        own = f"{CPU}/cpu{cpu}/topology"
        files |= {
            f"{own}/thread_siblings_list": f"{core(cpu)},{core(cpu) + 4}\n",
            f"{own}/core_siblings_list": "0-1,4-5\n" if package(cpu) == 0 else "2-3,6-7\n",
            f"{own}/physical_package_id": f"{package(cpu)}\n",
            f"{own}/core_id": f"{core(cpu) % 2}\n",
        }
    for node in (0, 1):
        files[f"/sys/devices/system/node/node{node}/cpulist"] = "0-1,4-5\n" if node == 0 else "2-3,6-7\n"
    return files


def frequency(driver: str = "intel_pstate", **own: str) -> dict[str, Any]:
    """A policy a CPU; ``own``: contents of files of each policy (governor for scaling_governor ...)."""
    files: dict[str, Any] = {}
    values = {
        "scaling_driver": driver, "scaling_governor": "performance",
        "scaling_available_governors": "performance powersave", "scaling_min_freq": "800000",
        "scaling_max_freq": "3900000", "cpuinfo_min_freq": "800000", "cpuinfo_max_freq": "3900000",
        **own,
    }  # fmt: skip
    for cpu in CPUS:
        folder = f"{CPU}/cpufreq/policy{cpu}"
        files |= {f"{folder}/{name}": f"{text}\n" for name, text in values.items()}
        files[f"{folder}/affected_cpus"] = f"{cpu}\n"
    return files


def idle(disabled: tuple[str, ...] = ("C6",), resume: str = "0") -> dict[str, Any]:
    files: dict[str, Any] = {f"{CPU}/cpuidle/current_driver": "intel_idle\n"}
    for cpu in CPUS:
        files[f"{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us"] = f"{resume}\n"
        for index, (name, latency) in enumerate(STATES):
            state = f"{CPU}/cpu{cpu}/cpuidle/state{index}"
            files |= {
                f"{state}/name": f"{name}\n",
                f"{state}/latency": f"{latency}\n",
                f"{state}/disable": f"{int(name in disabled)}\n",
            }
    return files


def throttle(
    core_events: Mapping[int, int] | None = None, package_events: Mapping[int, int] | None = None
) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for cpu in CPUS:
        folder = f"{CPU}/cpu{cpu}/thermal_throttle"
        files[f"{folder}/core_throttle_count"] = f"{(core_events or {}).get(cpu, 0)}\n"
        files[f"{folder}/package_throttle_count"] = f"{(package_events or {}).get(cpu, 0)}\n"
    return files


# not a guest: the DMI strings and flags that say so are absent
METAL = {"/sys/class/dmi/id/sys_vendor": "Dell Inc.\n", "/sys/class/dmi/id/product_name": "PowerEdge R740\n"}
CMDLINE = {"/proc/cmdline": "BOOT_IMAGE=/vmlinuz ro quiet\n"}


def healthy() -> dict[str, Any]:
    return {**topology(), **frequency(), **idle(), **throttle(), **METAL, **CMDLINE}
