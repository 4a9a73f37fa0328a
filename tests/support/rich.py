"""A box with a bit of everything that doctor reads, as files: a machine to damage.

The quiet box (tests/support/quiet.py) on its eight CPUs, with clocks, idle states, memory, drives,
a network card, a GPU, services, a boot loader, a kernel's log and what somebody pasted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support import Link, cpus, fake_nvme, gpu, nvme_box, pci, quiet, tree

if TYPE_CHECKING:
    from pathlib import Path

CPU = quiet.CPU
NODE = "/sys/devices/system/node"
_ROOT = "pci0000:00"
NIC = "0000:01:00.0"
DRIVE = "0000:41:00.0"
GPU = "0000:81:00.0"

_SYSCTL = {
    "kernel/hung_task_timeout_secs": "120",
    "kernel/numa_balancing": "0",
    "kernel/perf_cpu_time_max_percent": "25",
    "kernel/printk": "4 4 1 7",
    "kernel/random/boot_id": "00000000-0000-4000-8000-000000000000",
    "kernel/sched_energy_aware": "1",
    "kernel/tainted": "0",
    "kernel/timer_migration": "1",
    "kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)",
    "kernel/hostname": "box7",
    "kernel/watchdog": "1",
    "net/core/busy_poll": "0",
    "net/core/busy_read": "0",
    "net/core/netdev_budget": "300",
    "net/core/netdev_budget_usecs": "8000",
    "net/core/netdev_max_backlog": "1000",
    "vm/compact_unevictable_allowed": "1",
    "vm/compaction_proactiveness": "20",
    "vm/dirty_background_bytes": "0",
    "vm/dirty_background_ratio": "10",
    "vm/dirty_bytes": "0",
    "vm/dirty_ratio": "20",
    "vm/numa_stat": "1",
    "vm/stat_interval": "1",
    "vm/swappiness": "60",
    "vm/zone_reclaim_mode": "0",
}
_HEADING = " ".join(f"CPU{cpu}" for cpu in range(8))
_COUNTERS = (
    "rx_packets", "rx_errors", "rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_crc_errors",
    "rx_frame_errors", "rx_length_errors", "rx_over_errors", "tx_packets", "tx_errors", "tx_dropped",
    "tx_carrier_errors",
)  # fmt: skip


def files() -> dict[str, Any]:
    """Path -> content, as ``tests.support.tree`` takes it."""
    found: dict[str, Any] = {
        path: content
        for path, content in quiet.files().items()
        if not path.startswith("/sys/bus/pci/devices/")  # functions below, with all their files
    }
    for part in (cpus.topology(), cpus.frequency(), cpus.idle(), cpus.throttle(), cpus.METAL):
        found = {**part, **found}
    for part in (_clock(), _memory(), _nodes(), _devices(), _interface(), _boot(), _services()):
        found.update(part)
    found.update({f"/proc/sys/{name}": f"{value}\n" for name, value in _SYSCTL.items()})
    return found


def build(folder: Path) -> Path:
    """The box, with recorded answers and pasted texts beside its files."""
    tree(folder, files())
    for number, (library, arguments, value) in enumerate(answers()):
        place = folder / "libraries" / f"{number:04d}.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps({"library": library, "arguments": arguments, "value": value}))
    tree(folder / "texts", documents())
    return folder


def _clock() -> dict[str, Any]:
    folder = "/sys/devices/system/clocksource/clocksource0"
    flags = "fpu tsc msr constant_tsc nonstop_tsc tsc_known_freq aperfmperf"
    return {
        f"{folder}/current_clocksource": "tsc\n",
        f"{folder}/available_clocksource": "tsc hpet acpi_pm\n",
        "/run/chrony/chronyd.pid": "812\n",
        "/proc/812/comm": "chronyd\n",
        "/sys/class/ptp/ptp0/clock_name": "mlx5_p2p\n",
        "/proc/cpuinfo": cpus.cpuinfo().replace("fpu lm aperfmperf", flags),
        f"{CPU}/vulnerabilities/meltdown": "Not affected\n",
        f"{CPU}/vulnerabilities/retbleed": "Vulnerable\n",
        f"{CPU}/intel_pstate/status": "active\n",
        f"{CPU}/intel_pstate/no_turbo": "0\n",
        f"{CPU}/cpuidle/current_governor": "menu\n",
    }


def _memory() -> dict[str, Any]:
    huge, pools = "/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/hugepages/hugepages-2048kB"
    pressure = (
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=10\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
    )
    edac = "/sys/devices/system/edac/mc/mc0"
    return {
        "/proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        33554432 kB\n"
        "MemAvailable:   50331648 kB\nSwapTotal:       8388604 kB\nSwapFree:        8388604 kB\n",
        "/proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/sda2                               partition\t8388604\t\t0\t\t-2\n",
        "/proc/vmstat": "nr_free_pages 8388608\npgmajfault 100\ncompact_stall 0\npswpin 0\npswpout 0\n",
        **{f"/proc/pressure/{name}": pressure for name in ("cpu", "io", "memory")},
        f"{huge}/enabled": "always [madvise] never\n",
        f"{huge}/defrag": "always defer defer+madvise [madvise] never\n",
        f"{huge}/khugepaged/defrag": "1\n",
        f"{huge}/khugepaged/pages_to_scan": "4096\n",
        f"{huge}/khugepaged/scan_sleep_millisecs": "10000\n",
        f"{pools}/nr_hugepages": "64\n",
        f"{pools}/free_hugepages": "32\n",
        f"{pools}/resv_hugepages": "0\n",
        f"{pools}/surplus_hugepages": "0\n",
        f"{pools}/nr_overcommit_hugepages": "0\n",
        "/sys/kernel/mm/ksm/run": "0\n",
        "/sys/kernel/mm/ksm/pages_shared": "0\n",
        "/sys/kernel/mm/ksm/pages_sharing": "0\n",
        f"{edac}/mc_name": "Skylake Socket#0 IMC#0\n",
        f"{edac}/ce_count": "3\n",
        f"{edac}/ue_count": "0\n",
        f"{edac}/ce_noinfo_count": "0\n",
        f"{edac}/ue_noinfo_count": "0\n",
        f"{edac}/dimm0/dimm_label": "CPU_SrcID#0_MC#0_Chan#0_DIMM#0\n",
        f"{edac}/dimm0/dimm_ce_count": "3\n",
        f"{edac}/dimm0/dimm_ue_count": "0\n",
    }


def _nodes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node, distance in ((0, "10 21"), (1, "21 10")):
        folder = f"{NODE}/node{node}"
        found |= {
            f"{folder}/distance": f"{distance}\n",
            f"{folder}/meminfo": f"Node {node} MemTotal:       33554432 kB\n"
            f"Node {node} MemFree:        16777216 kB\n",
            f"{folder}/numastat": "numa_hit 1000000\nnuma_miss 10\nnuma_foreign 10\ninterleave_hit 5\n"
            "local_node 999990\nother_node 20\n",
            f"{folder}/cpumap": "33\n" if node == 0 else "cc\n",
            f"{folder}/hugepages/hugepages-2048kB/nr_hugepages": "32\n",
            f"{folder}/hugepages/hugepages-2048kB/free_hugepages": "16\n",
            f"{folder}/hugepages/hugepages-2048kB/surplus_hugepages": "0\n",
        }
    return found


def _devices() -> dict[str, Any]:
    found: dict[str, Any] = {}
    aer = {f"aer_dev_{kind}": f"{name} 0\nTOTAL_ERR_X 0\n" for kind, name in (
        ("correctable", "RxErr"), ("nonfatal", "DLP"), ("fatal", "DLP"))}  # fmt: skip
    for port, address, node, code, ids, driver, link in (
        ("0000:00:01.0", NIC, 0, pci.NIC, (0x15B3, 0x1021), "mlx5_core", pci.X16),
        ("0000:00:02.0", DRIVE, 1, pci.NVME, (0x144D, 0xA80A), "nvme", pci.X4),
        ("0000:00:03.0", GPU, 1, pci.GPU, (0x10DE, 0x2330), "nvidia", pci.X16),
    ):
        buses = (int(address[5:7], 16),) * 2
        speed_and_lanes = (5, 16) * 2 if link is pci.X16 else (4, 4) * 2
        space = pci.config(
            "root-port", class_code=pci.BRIDGE, buses=buses, acs=(0x1F, 0x1D), link=speed_and_lanes
        )
        more = {"numa_node": f"{node}\n", "local_cpulist": "0-1,4-5\n" if node == 0 else "2-3,6-7\n"}
        found |= pci.function(
            f"{_ROOT}/{port}", pci.BRIDGE, link, (0x8086, 0x352A), "pcieport",
            **{"class": "0x060400\n", "config": space, **more, **aer},
        )  # fmt: skip
        found |= pci.function(
            f"{_ROOT}/{port}/{address}", code, link, ids, driver,
            **{
                "class": f"0x{code:06x}\n", "vendor": f"0x{ids[0]:04x}\n", "device": f"0x{ids[1]:04x}\n",
                "config": pci.config(class_code=code, link=speed_and_lanes), "enable": "1\n",
                "power__control": "on\n", "power__runtime_status": "active\n", "irq": "24\n", **more, **aer,
            },
        )  # fmt: skip
        for function, name in ((f"{port}", "pcieport"), (f"{port}/{address}", driver)):
            found[f"/sys/devices/{_ROOT}/{function}/driver"] = Link(f"/sys/bus/pci/drivers/{name}")
            found[f"/sys/bus/pci/drivers/{name}/module/version"] = "1\n"
    found |= _drive()
    found |= {
        **{
            f"/sys/devices/{_ROOT}/{port}/{address}/iommu_group": Link(f"/sys/kernel/iommu_groups/{number}")
            for number, (port, address) in enumerate(
                (("0000:00:01.0", NIC), ("0000:00:02.0", DRIVE), ("0000:00:03.0", GPU))
            )
        },
        **{f"/sys/kernel/iommu_groups/{number}/type": "identity\n" for number in range(3)},
        "/sys/class/dmi/id/bios_version": "2.1.0\n",
        "/sys/module/pcie_aspm/parameters/policy": "[default] performance powersave\n",
        "/sys/module/nvme_core/parameters/default_ps_max_latency_us": "100000\n",
        "/sys/module/nvme_core/parameters/io_timeout": "30\n",
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n",
        "/proc/driver/nvidia/params": "EnableResizableBar: 0\nNvLinkDisable: 0\n",
        f"/proc/driver/nvidia/gpus/{GPU}/information": "Model: NVIDIA H100\nBus Location: 0000:81:00.0\n",
    }
    return found


def _drive() -> dict[str, Any]:
    """The drive of ``nvme_box`` below the port that this box has it at."""
    there, here = "0000:00:01.0/0000:01:00.0", f"0000:00:02.0/{DRIVE}"
    found: dict[str, Any] = {}
    for path, content in nvme_box.files().items():
        if there in path or isinstance(content, Link):
            if isinstance(content, Link):
                content = Link(content.target.replace(there, here))
            found[path.replace(there, here)] = content
    return found


def _interface() -> dict[str, Any]:
    folder = f"/sys/devices/{_ROOT}/0000:00:01.0/{NIC}/net/eth0"
    values = {
        "operstate": "up", "carrier": "1", "carrier_changes": "2", "carrier_up_count": "1",
        "speed": "100000", "duplex": "full", "mtu": "1500", "flags": "0x1003", "type": "1",
        "threaded": "0", "gro_flush_timeout": "0", "napi_defer_hard_irqs": "0", "dev_id": "0x0",
    }  # fmt: skip
    return {
        "/sys/class/net/eth0": Link(f"../../devices/{_ROOT}/0000:00:01.0/{NIC}/net/eth0"),
        f"{folder}/device": Link("../.."),
        **{f"{folder}/{name}": f"{value}\n" for name, value in values.items()},
        **{f"{folder}/statistics/{name}": "1000000\n" if "packets" in name else "0\n" for name in _COUNTERS},
        **{f"{folder}/queues/rx-{queue}/rps_cpus": "00\n" for queue in (0, 1)},
        f"/sys/devices/{_ROOT}/0000:00:01.0/{NIC}/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        f"/sys/devices/{_ROOT}/0000:00:01.0/{NIC}/infiniband/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)\n",
        f"/sys/devices/{_ROOT}/0000:00:01.0/{NIC}/infiniband/mlx5_0/ports/1/link_layer": "Ethernet\n",
        "/sys/class/infiniband/mlx5_0": Link(f"../../devices/{_ROOT}/0000:00:01.0/{NIC}/infiniband/mlx5_0"),
        "/proc/net/softnet_stat": "".join(
            f"{1000:08x} 00000000 00000000" + " 00000000" * 9 + f" {cpu:08x}\n" for cpu in range(8)
        ),
        "/proc/softirqs": f"        {_HEADING}\n TIMER: 1000 1000 10 10 1000 1000 10 10\n"
        "NET_RX: 500 500 0 0 500 500 0 0\n",
    }


def _boot() -> dict[str, Any]:
    line = quiet.CMDLINE.partition(" ")[2]
    return {
        "/etc/default/grub": f'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="{line.partition("ro ")[2]}"\n'
        'GRUB_CMDLINE_LINUX=""\n',
        "/boot/grub/grub.cfg": "set default=0\nmenuentry 'Debian' {\n"
        f"\tlinux /vmlinuz-6.1.0-13-amd64 {line}\n\tinitrd /initrd.img-6.1.0-13-amd64\n}}\n",
        "/boot/config-6.1.0-13-amd64": "CONFIG_NO_HZ_FULL=y\nCONFIG_RCU_NOCB_CPU=y\nCONFIG_HZ=250\n"
        "CONFIG_PREEMPT_DYNAMIC=y\n",
        "/proc/version": "Linux version 6.1.0-13-amd64 (a@b) (gcc) #1 SMP PREEMPT_DYNAMIC\n",
        "/proc/modules": "nvme 1 2 - Live 0x0\nnvidia 1 2 - Live 0x0\n",
        "/sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
    }


def _services() -> dict[str, Any]:
    return {
        "/etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "/etc/fstab": "/dev/sda1 / ext4 errors=remount-ro 0 1\n/dev/nvme0n1 /data xfs discard 0 0\n",
        "/etc/sysctl.conf": "vm.swappiness = 10\n",
        "/etc/sysctl.d/90-box.conf": "kernel.numa_balancing = 0\nvm.stat_interval = 10\n",
        "/usr/lib/sysctl.d/50-default.conf": "net.core.busy_poll = 0\n",
        "/etc/environment": "NCCL_P2P_DISABLE=0\n",
        "/etc/nccl.conf": "NCCL_DEBUG=INFO\n",
        "/etc/modprobe.d/nvidia.conf": "options nvidia NVreg_EnableGpuFirmware=0\n",
        "/proc/self/mountinfo": "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "30 22 259:0 / /data rw,discard - xfs /dev/nvme0n1 rw\n",
        "/proc/1/comm": "systemd\n",
        "/run/systemd/system/.keep": "",
        "/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs": "900\n",
        "/etc/systemd/system/multi-user.target.wants/irqbalance.service": Link(
            "/usr/lib/systemd/system/irqbalance.service"
        ),
        "/etc/tuned/active_profile": "network-latency\n",
        "/run/sysctl.d/.keep": "",
        "/usr/local/lib/sysctl.d/.keep": "",
        "/lib/sysctl.d": Link("../usr/lib/sysctl.d"),
        "/usr/lib/systemd/systemd-sysctl": "",
    }


def documents() -> dict[str, str]:
    return {
        "dmesg.txt": "[    0.000000] Linux version 6.1.0-13-amd64 (a@b) (gcc) #1 SMP PREEMPT_DYNAMIC\n"
        "[    0.100000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro\n"
        "[    1.000000] pci 0000:00:01.0: [8086:352a] type 01 class 0x060400\n"
        "[   20.000000] nvme nvme0: I/O 12 QID 3 timeout, aborting\n"
        "[   30.000000] pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0\n"
        "[   40.000000] NVRM: Xid (PCI:0000:81:00): 79, pid=1, GPU has fallen off the bus.\n",
        "lscpu.txt": "Architecture:          x86_64\nCPU(s):                8\n"
        "On-line CPU(s) list:   0-7\nThread(s) per core:    2\nCore(s) per socket:    2\nSocket(s):  2\n",
        "numactl-H.txt": "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 4 5\nnode 0 size: 32768 MB\n"
        "node 0 free: 16384 MB\nnode 1 cpus: 2 3 6 7\nnode 1 size: 32768 MB\nnode 1 free: 16384 MB\n"
        "node distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n",
    }


def answers() -> list[tuple[str, list[Any], Any]]:
    """(library, arguments, answer) as a capture keeps them."""
    gpu_answer = gpu.nvml(gpu.H100)
    gpu_answer["gpus"][0]["nvmlDeviceGetPciInfo"] = {"value": "00000000:81:00.0"}
    settings = {
        "rings": {"rx_max": 8192, "tx_max": 8192, "rx": 1024, "tx": 1024},
        "channels": {"combined_max": 8, "combined": 2},
        "coalescing": {"rx_usecs": 8, "rx_max_frames": 128, "use_adaptive_rx": 1},
        "link": {
            "autoneg": True,
            "supported": ["Autoneg", "100000baseSR4/Full"],
            "advertised": ["Autoneg", "100000baseSR4/Full"],
            "partner": [],
        },
        "features": {"rx-gro": True, "rx-lro": False, "tx-tcp-segmentation": True},
        "changeable": ["rx-gro", "tx-tcp-segmentation"],
        "pause": {"autoneg": False, "rx": True, "tx": True, "rx_frames": 0, "tx_frames": 0},
        "xdp": ["basic", "redirect"],
        "refused": {},
    }
    driver = {"driver": "mlx5_core", "version": "6.1.0", "firmware": "22.36.1010", "bus": NIC}
    clock = {"synchronized": True, "estimated_error_us": 5, "max_error_us": 500}
    sensor = {"path": "/sys/class/nvme/nvme0/hwmon2", "temp1_input": 41, "hung": None}
    return [
        ("processes", ["tasks", "2-3,6-7"], quiet.PINNED),
        ("adjtimex", [], clock),
        ("uname", [], {"machine": "x86_64"}),
        ("cpu_latency", [], 2_000_000_000),
        ("hwdb", [f"pci:v0000{ids}" for ids in ("10DEd00002330", "144Dd0000A80A", "15B3d00001021")], {}),
        ("nvml", [], gpu_answer),
        ("nvme_admin", ["nvme0"], fake_nvme.said(nvme_box.controller())),
        ("nvme_hwmon", ["nvme0"], sensor),
        ("ethtool", ["settings", "eth0"], settings),
        ("ethtool", ["driver", "eth0"], driver),
        ("ethtool", ["statistics", "eth0"], {"rx_out_of_buffer": 0}),
    ]
