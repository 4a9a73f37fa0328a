"""doctor and capture on a real kernel with real drivers.

What they have to say follows from hardware.py, from what the tests do to the machine, and from what lscpu,
numactl, lspci and nvme say of it. The order matters: the machine as it is, then provoked, then with CPUs kept
apart.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.machine.hardware import DISTANCE, DRIVES, IO_QUEUES, MAC
from tests.machine.install import HWTUNE
from tests.machine.looking import (
    Report,
    differences,
    doctor,
    drive,
    holding_still,
    nic_settings,
    row,
    settings,
    subjects,
    words,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.machine.machine import Machine

# Of hardware.py, as firmware and kernel number it: the buses are given out depth first.
PORT0, PORT1, PORT2 = "0000:20:00.0", "0000:20:01.0", "0000:40:00.0"
SWITCH, LEAF0, LEAF1 = "0000:22:00.0", "0000:23:00.0", "0000:23:01.0"
AT = {"HWT0": "0000:21:00.0", "HWT1": "0000:41:00.0", "HWT2": "0000:24:00.0"}
NIC = "0000:25:00.0"
PARENTS = {
    PORT0: None,
    AT["HWT0"]: PORT0,
    PORT1: None,
    SWITCH: PORT1,
    LEAF0: SWITCH,
    AT["HWT2"]: LEAF0,
    LEAF1: SWITCH,
    NIC: LEAF1,
    PORT2: None,
    AT["HWT1"]: PORT2,
}
NODES = {"HWT0": 0, "HWT1": 1, "HWT2": 0}
# What QEMU 7.2's drives say of themselves, in kelvin: 323, and 343 and 373 as limits (hw/nvme/nvme.h).
TEMPERATURE, WARNING, CRITICAL = 50, 70, 100


class Tools(NamedTuple):
    """What others say of the machine."""

    lscpu: dict[str, str]
    cpus: list[dict[str, str]]
    numactl: str
    lspci: dict[str, list[str]]
    nvme: list[dict[str, Any]]
    smart: dict[str, dict[str, Any]]
    identify: dict[str, dict[str, Any]]
    links: dict[str, list[str]]


class Quiet(NamedTuple):
    """Traces of one run of doctor."""

    report: Report
    system_calls: str
    admin_commands: list[str]
    changed_settings: dict[str, str]
    changed_files: str


# -- the machine as it is


@pytest.fixture(scope="module")
def machine(running: Machine) -> Machine:
    nic = running.check("ls /sys/class/net | grep -v lo").strip()
    running.check(f"ip link set dev {nic} up")
    # the emulated link is negotiated in real time, which an emulated CPU is late for
    running.check(
        f"for n in $(seq 600); do grep -q 1 /sys/class/net/{nic}/carrier && exit 0; sleep 0.1; done; exit 1"
    )
    # strace has it loaded when it first names a socket; so that hwtune isn't suspected of it.
    running.check("modprobe netlink_diag")
    running.check("udevadm settle --timeout=60")
    return running


@pytest.fixture(scope="module")
def live(machine: Machine) -> Report:
    return doctor(machine)


@pytest.fixture(scope="module")
def person(machine: Machine) -> Report:
    return doctor(machine, user="person")


@pytest.fixture(scope="module")
def tools(machine: Machine) -> Tools:
    def parsed(command: str) -> Any:
        return json.loads(machine.check(command))

    def each(command: str) -> dict[str, dict[str, Any]]:
        return {serial: parsed(f"nvme {command} -o json /dev/{drive(machine, serial)}") for serial in DRIVES}

    links = "current_link_speed current_link_width max_link_speed max_link_width"
    files = machine.check(
        "cd /sys/bus/pci/devices && for device in *; do [ -e $device/max_link_speed ] || continue; "
        f"for file in {links}; do echo $device $(cat $device/$file); done; done"
    )
    seen: dict[str, list[str]] = {}
    for line in files.splitlines():
        address, _, value = line.partition(" ")
        seen.setdefault(address, []).append(value)
    listed = [line.partition(" ") for line in machine.check("lspci -D -mm -nn").splitlines()]
    return Tools(
        {item["field"].rstrip(":"): item["data"] for item in _flat(parsed("lscpu -J")["lscpu"])},
        parsed("lscpu -J -e=CPU,NODE,SOCKET,CORE,ONLINE")["cpus"],
        machine.check("numactl -H"),
        {address: re.findall(r'"[^"]*\[([0-9a-f]{4})\]"', rest) for address, _, rest in listed},
        parsed("nvme list -o json")["Devices"],
        each("smart-log"),
        each("id-ctrl"),
        seen,
    )


def _flat(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [found for item in items for found in (item, *_flat(item.get("children", [])))]


def test_cpus(live: Report, tools: Tools) -> None:
    cpus = live["machine"]["cpus"]
    assert cpus["online"] == cpus["possible"] == list(range(8))
    assert cpus["smt"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (cpus["package_count"], cpus["core_count"], cpus["threads_per_core"]) == (2, 4, 2)
    assert (cpus["isolated"], cpus["nohz_full"]) == ([], [])
    assert tools.lscpu["On-line CPU(s) list"] == "0-7"
    assert cpus["model_name"] == tools.lscpu["Model name"]
    assert [(str(cpu["id"]), str(cpu["node"]), str(cpu["package"])) for cpu in cpus["cpus"]] == [
        (str(cpu["cpu"]), str(cpu["node"]), str(cpu["socket"])) for cpu in tools.cpus
    ]


def test_caches(live: Report, tools: Tools) -> None:
    """Sums of size and number, as lscpu has them: 256 KiB (8 instances)."""
    units = {"KiB": 1 << 10, "MiB": 1 << 20}
    for name, level, kind in (("L1d", 1, "Data"), ("L2", 2, "Unified"), ("L3", 3, "Unified")):
        size, unit, instances = re.fullmatch(
            r"(\d+) (\w+) \((\d+) instances?\)", tools.lscpu[f"{name} cache"]
        ).groups()  # type: ignore[union-attr]
        found = [c for c in live["machine"]["cpus"]["caches"] if (c["level"], c["type"]) == (level, kind)]
        assert len(found) == int(instances)
        assert sum(cache["size_bytes"] for cache in found) == int(size) * units[unit]


def test_nodes(live: Report, tools: Tools) -> None:
    nodes = live["machine"]["numa"]["nodes"]
    assert [(node["id"], node["cpus"]) for node in nodes] == [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7])]
    assert [node["distances"] for node in nodes] == [{"0": 10, "1": DISTANCE}, {"0": DISTANCE, "1": 10}]
    for node in nodes:
        assert f"node {node['id']} size: {node['memory_bytes'] >> 20} MB" in tools.numactl


def test_every_pci_function(live: Report, tools: Tools) -> None:
    devices = live["machine"]["pci"]["devices"]
    assert {device["address"] for device in devices} == set(tools.lspci)
    for device in devices:
        code, vendor, number = tools.lspci[device["address"]][:3]
        seen = (device["class"] >> 8, device["vendor"], device["device"])
        assert seen == (int(code, 16), int(vendor, 16), int(number, 16))


def test_the_tree(live: Report) -> None:
    devices = {device["address"]: device for device in live["machine"]["pci"]["devices"]}
    assert {address: devices[address]["parent"] for address in PARENTS} == PARENTS
    assert [devices[address]["port_type"] for address in (PORT0, SWITCH, LEAF0)] == [
        "root-port",
        "upstream",
        "downstream",
    ]
    for address, device in devices.items():
        bus = int(address[5:7], 16)
        node = -1 if bus < 0x20 else 0 if bus < 0x40 else 1
        assert (device["numa_node"], device["root"]) == (
            node,
            f"pci0000:{'00' if node < 0 else '20' if node == 0 else '40'}",
        )


def test_links(live: Report, tools: Tools) -> None:
    devices = {device["address"]: device for device in live["machine"]["pci"]["devices"]}
    links = {address: devices[address]["link"] for address in devices}
    # As QEMU was told (x-speed, x-width); QEMU trains a port to what is plugged in, here 2.5 GT/s x1.
    ports = {PORT0: (16.0, 4), PORT1: (8.0, 8), PORT2: (16.0, 4)}
    for address, able in ports.items():
        assert (links[address]["max_gts"], links[address]["max_width"]) == able
        assert (links[address]["current_gts"], links[address]["current_width"]) == (2.5, 1)
    for address, (speed, width, top_speed, top_width) in tools.links.items():
        link = links[address]
        assert (link["current_gts"], link["current_width"]) == (float(speed.split()[0]), int(width))
        if (
            top_speed == "Unknown"
        ):  # QEMU's downstream port says speed 0, width 0: no word on what it could do
            assert (link["max_gts"], link["max_width"]) == (None, None)
        else:
            assert (link["max_gts"], link["max_width"]) == (float(top_speed.split()[0]), int(top_width))
    # The lesser of both ends.
    assert (links[AT["HWT0"]]["expected_gts"], links[AT["HWT0"]]["expected_width"]) == (2.5, 1)
    for id in ("pcie.link-speed", "pcie.link-width", "pcie.path-bandwidth"):
        assert row(live, id)["outcome"] == "ok"


def test_drives(live: Report, tools: Tools) -> None:
    controllers = {c["serial"]: c for c in live["machine"]["nvme"]["controllers"]}
    assert set(controllers) == set(DRIVES)
    for serial, controller in controllers.items():
        assert (controller["numa_node"], controller["pci_address"]) == (NODES[serial], AT[serial])
        assert controller["queue_count"] == IO_QUEUES + 1
        assert controller["state"] == "live"
    said = {device["SerialNumber"]: device for device in tools.nvme}
    disks = {device["name"]: device for device in live["machine"]["block"]["devices"]}
    for serial, controller in controllers.items():
        (disk,) = controller["namespaces"]
        assert f"/dev/{disk}" == said[serial]["DevicePath"]
        assert controller["firmware"] == said[serial]["Firmware"]
        assert controller["model"] == said[serial]["ModelNumber"]
        assert disks[disk]["size_bytes"] == said[serial]["PhysicalSize"]
        assert (disks[disk]["nvme"], disks[disk]["pci_address"]) == (controller["name"], AT[serial])
        assert disks[disk]["scheduler"] == "none"


def test_what_the_drives_themselves_say(live: Report, tools: Tools) -> None:
    """Through ioctl: Identify, the SMART log, the write cache; no autonomous power states in QEMU."""
    for controller in live["machine"]["nvme"]["controllers"]:
        serial, smart = controller["serial"], controller["smart"]
        log, identify = tools.smart[serial], tools.identify[serial]
        assert smart["temperature_c"] == TEMPERATURE == log["temperature"] - 273
        assert (controller["warning_temp_c"], controller["critical_temp_c"]) == (WARNING, CRITICAL)
        assert (identify["wctemp"], identify["cctemp"]) == (WARNING + 273, CRITICAL + 273)
        assert (smart["critical_warning"], smart["percentage_used"]) == (0, 0)
        assert smart["unsafe_shutdowns"] == int(log["unsafe_shutdowns"])  # nvme-cli writes it as text
        assert (smart["available_spare"], smart["spare_threshold"]) == (
            log["avail_spare"],
            log["spare_thresh"],
        )
        assert identify["vwc"] & 1 == 1
        assert (controller["volatile_write_cache_present"], controller["volatile_write_cache_enabled"]) == (
            True,
            True,
        )
        assert identify["apsta"] == 0
        assert (controller["apst_supported"], controller["apst_enabled"]) == (False, None)
        assert controller["host_memory_buffer_kib"] == identify["hmpre"] * 4
    assert row(live, "nvme.apst")["outcome"] == "not-applicable"
    for id in ("nvme.smart-critical", "nvme.thermal", "nvme.endurance", "nvme.state", "nvme.queues"):
        assert row(live, id)["outcome"] == "ok"


def test_the_nic(live: Report, machine: Machine) -> None:
    (nic,) = live["machine"]["nics"]
    assert (nic["pci_address"], nic["driver"], nic["numa_node"]) == (NIC, "e1000e", 0)
    assert (nic["carrier"], nic["speed_mbps"]) == (True, 1000)
    assert machine.check(["cat", f"/sys/class/net/{nic['name']}/address"]).strip() == MAC
    rings = machine.check(["ethtool", "-g", nic["name"]]).partition("Current hardware settings")[2]
    assert f"RX:\t\t{nic['rings']['rx']}\n" in rings
    assert f"rx-usecs:\t{nic['coalescing']['rx_usecs']}\n" in machine.check(
        ["ethtool", "-c", nic["name"]]
    ).replace(" ", "\t")


# The kernel refuses to move what it manages, with EIO before 6.12 and with EPERM since. Each is told to stay
# where it is.
_TELL_TO_STAY = """
import errno, json, os
said = {}
for name in os.listdir("/proc/irq"):
    path = f"/proc/irq/{name}/smp_affinity_list"
    if name.isdecimal() and any(entry.is_dir() for entry in os.scandir(f"/proc/irq/{name}")):
        with open(path) as file:
            cpus = file.read()
        try:
            with open(path, "w") as file:
                file.write(cpus)
            said[name] = ""
        except OSError as error:
            said[name] = errno.errorcode[error.errno]
print(json.dumps(said))
"""


def test_interrupts(live: Report, machine: Machine) -> None:
    irqs = live["machine"]["irqs"]
    queues = {action: irq for irq in irqs for action in irq["actions"] if action.startswith("nvme")}
    places = {c["name"]: c["pci_address"] for c in live["machine"]["nvme"]["controllers"]}
    assert set(queues) == {f"{name}q{number}" for name in places for number in range(IO_QUEUES + 1)}
    for action, irq in queues.items():
        assert irq["pci_address"] == places[action.partition("q")[0]]
        assert bool(irq["managed"]) == (not action.endswith("q0"))
    # A queue a CPU, and each CPU has one.
    for name in places:
        asked = [queues[f"{name}q{number}"]["affinity"] for number in range(1, IO_QUEUES + 1)]
        assert sorted(asked) == [[cpu] for cpu in range(8)]
    refused = json.loads(machine.check(["python3", "-c", _TELL_TO_STAY]))
    for irq in irqs:
        if irq["actions"] and irq["actions"] != ["timer"]:
            assert bool(irq["managed"]) == (refused[str(irq["number"])] in ("EIO", "EPERM")), irq


def test_a_healthy_machine_has_no_false_alarm(live: Report) -> None:
    """What it is blamed for is what it has: see hardware.py and image.py."""
    expected = {
        "clock.sync",  # nothing here sets the clock
        "cpu.microcode-mitigations",  # the CPU is emulated without
        "memory.compact-unevictable",
        "memory.compaction",
        "memory.dirty-limits",  # tuned's virtual-guest
        "memory.khugepaged",
        "memory.numa-balancing",
        "memory.transparent-hugepages",
        "nic.coalescing",
        "service.tuned-profile",
    }
    found = {row["id"] for row in live["rows"] if row["outcome"] == "finding"}
    # An emulated CPU is away for long, and the kernel may notice.
    assert found - {"clock.timer-stall", "kernel.tainted", "irq.one-cpu"} == expected
    assert [row["id"] for row in live["rows"] if row["outcome"] == "unknown"] == []


def test_a_person_without_privilege_is_told_what_root_would_see(person: Report, live: Report) -> None:
    """The same as root's, but for what root alone may read; and that is unknown, with what to do."""
    theirs, roots = words(person), words(live)
    differ = {id for id in roots if theirs[id] != roots[id]}
    kept_from_them = {
        *("nvme.endurance", "nvme.host-memory-buffer", "nvme.smart-critical", "nvme.unsafe-shutdowns"),
        *("nvme.controller-lost", "nvme.io-timeouts", "pcie.link-down", "pcie.slot-power"),
        *("kernel.args-ignored", "kernel.args-pending", "pcie.max-payload"),
    }
    assert kept_from_them <= differ
    others = {id: row(person, id) for id in differ}
    assert {id: found["outcome"] for id, found in others.items() if found["outcome"] != "unknown"} == {}
    assert {gap["remedy"] for found in others.values() for gap in found["unknowns"]} == {"run as root"}
    assert row(person, "nvme.thermal")["outcome"] == "ok"


# -- doctor leaves no trace

# Calls that read, ask or concern the process itself; strace need not stop for them.
_HARMLESS = """
    read pread64 readv close lseek newfstatat fstat statx access faccessat faccessat2 readlink readlinkat
    getdents64 getcwd mmap munmap mprotect mremap madvise brk rt_sigaction rt_sigprocmask rt_sigreturn
    sigaltstack getpid gettid getppid getuid geteuid getgid getegid getrandom uname sysinfo prlimit64
    arch_prctl set_tid_address set_robust_list rseq futex pselect6 poll ppoll select epoll_wait epoll_create1
    epoll_ctl wait4 waitid exit exit_group pipe2 dup dup2 dup3 sched_getaffinity clock_gettime
    clock_nanosleep statfs fstatfs getsockname getsockopt recvfrom recvmsg execve
""".split()  # noqa: SIM905
# Of the rest: what, and how.
_ALLOWED = (
    re.compile(r"open(at)?\(.*O_RDONLY"),
    re.compile(r"write\(\d+<pipe:\[\d+\]>"),
    re.compile(r"write\([12]<"),
    re.compile(r"fcntl\(\d+<.*?>(\(deleted\))?, F_(GETFD|SETFD|GETFL|DUPFD_CLOEXEC)"),
    re.compile(r"ioctl\(\d+<.*?>(\(deleted\))?, (TCGETS|FIOCLEX|FIONREAD|FIONBIO)"),
    re.compile(r"ioctl\(\d+</dev/nvme\d+>, NVME_IOCTL_ADMIN_CMD"),
    re.compile(r"ioctl\(\d+<socket:\[\d+\]>, (SIOCETHTOOL|SIOCGIFINDEX)"),
    re.compile(r"clone3?\(|vfork\("),
    re.compile(r"clock_adjtime\(CLOCK_REALTIME, \{modes=0[,}]"),
    re.compile(r"socket\(AF_(NETLINK, SOCK_RAW|UNIX, SOCK_DGRAM|INET, SOCK_DGRAM)"),
    re.compile(r"bind\(\d+<[^>]*>, \{sa_family=AF_NETLINK"),
    # Which families there are; the GETs of ethtool (include/uapi/linux/ethtool_netlink.h) up to pause.
    re.compile(r"sendto\(.*nlmsg_type=nlctrl,.*\"\\x03"),
    re.compile(r"sendto\(.*nlmsg_type=ethtool,.*\"\\x(01|02|04|06|07|09|0b|0d|0f|11|13|15)"),
)
# Identify, Get Log Page, Get Features: NVM Express Base Specification 1.4, section 5.
_READING = {"0x6", "0x2", "0xa"}


@pytest.fixture(scope="module")
def quiet(machine: Machine, live: Report, tools: Tools) -> Quiet:
    """One run on a read-only root, watched by strace, by the drives and by what can be compared."""
    before = settings(machine) | nic_settings(machine)
    machine.check("touch /run/before && sleep 1.1")
    machine.check("mkdir -p /run/trace && mount -t tmpfs none /run/trace")
    told = machine.folder / "trace.log"
    offset = told.stat().st_size
    untraced = ",".join(_HARMLESS)
    strace = f"strace -f -y -s 80 --seccomp-bpf -e trace='!{untraced}' -o /run/trace/calls"
    watched = f"mount -o remount,ro,bind / && exec {strace} {HWTUNE} doctor --format json"
    result = machine.run(["unshare", "--mount", "sh", "-c", watched], timeout=600)
    assert (result.status, result.stderr) == (1, "")
    commands = told.read_bytes()[offset:].decode().splitlines()
    calls = machine.get("/run/trace/calls").decode()
    machine.check("umount /run/trace && rmdir /run/trace")
    after = settings(machine) | nic_settings(machine)
    # The journal takes note of what is mounted, and of what tests do.
    changed = machine.check(
        "find / -xdev -newer /run/before -not -path '/var/log/journal*' -not -path /run; "
        "find /run /dev/shm /dev/mqueue -xdev -newer /run/before -not -path '/run/log/*' -not -path /run"
        " -not -path '/run/systemd/*' -not -path '/run/udev*'"
    )
    moved = {key: value for key, value in after.items() if before.get(key) != value}
    return Quiet(json.loads(result.stdout), calls, commands, moved, changed)


def test_it_reads_a_read_only_machine_as_any_other(quiet: Quiet, live: Report) -> None:
    assert words(quiet.report) == words(live)
    assert differences(holding_still(quiet.report), holding_still(live)) == {}


def test_it_calls_nothing_that_could_change_anything(quiet: Quiet) -> None:
    calls = [line.partition(" ")[2].strip() for line in quiet.system_calls.splitlines()]
    begun = [call for call in calls if not call.startswith(("<...", "+++", "---"))]
    assert sum("NVME_IOCTL_ADMIN_CMD" in call for call in begun) >= 3 * len(DRIVES)
    assert [call for call in begun if not any(allowed.match(call) for allowed in _ALLOWED)] == []


def test_it_gives_the_drives_no_command_that_sets_anything(quiet: Quiet) -> None:
    commands = [line for line in quiet.admin_commands if "pci_nvme_admin_cmd" in line]
    assert {word for line in commands for word in re.findall(r"opc (0x[0-9a-f]+)", line)} == _READING


def test_no_setting_and_no_file_is_another_afterwards(quiet: Quiet) -> None:
    assert quiet.changed_settings == {}
    assert quiet.changed_files == ""


# -- capture


@pytest.fixture(scope="module")
def captured(machine: Machine, quiet: Quiet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """What capture wrote in the machine, brought here; and what doctor said there at that time."""
    assert machine.check([HWTUNE, "capture", "-o", "/run/box.tar.gz"], 300).strip() == "/run/box.tar.gz"
    place = tmp_path_factory.mktemp("captured") / "box.tar.gz"
    place.write_bytes(machine.get("/run/box.tar.gz"))
    machine.check("rm /run/box.tar.gz")
    return place, doctor(machine)


def test_a_capture_read_elsewhere_says_what_the_machine_said(captured: tuple[Path, Report]) -> None:
    box, live = captured
    command = [sys.executable, "-m", "hwtune", "doctor", "--snapshot", str(box), "--format", "json"]
    result = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (1, b"")
    elsewhere = json.loads(result.stdout)
    assert (elsewhere["host"]["source"], elsewhere["host"]["hostname"]) == ("snapshot", "machine")
    assert words(elsewhere) == words(live)
    assert differences(holding_still(elsewhere), holding_still(live)) == {}
    texts = [{id: _said(report, id) for id in words(live)} for report in (elsewhere, live)]
    assert texts[0] == texts[1]


def _said(report: Report, id: str) -> list[Any]:
    """Message and evidence of a row's findings, but for counts since the boot."""
    return [
        (finding["message"], [item for item in finding["evidence"] if item["source"] != "/proc/vmstat"])
        for finding in row(report, id)["findings"]
    ]


# -- provoked

_PROVOKE = """
set -e
echo mq-deadline > /sys/block/{HWT0}/queue/scheduler
mkfs.ext4 -q -F /dev/{HWT1}
mkdir /srv/data
mount -o discard /dev/{HWT1} /srv/data
mkswap /dev/{HWT2} >/dev/null
swapon /dev/{HWT2}
echo 0 > /sys/devices/system/cpu/cpu5/online
sysctl -q vm.zone_reclaim_mode=1
echo 'vm.zone_reclaim_mode = 0' > /etc/sysctl.d/70-admin.conf
echo hpet > /sys/devices/system/clocksource/clocksource0/current_clocksource
mkdir /sys/fs/cgroup/hot
echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
echo 6-7 > /sys/fs/cgroup/hot/cpuset.cpus
echo isolated > /sys/fs/cgroup/hot/cpuset.cpus.partition
"""
_UNDO = """
echo member > /sys/fs/cgroup/hot/cpuset.cpus.partition
rmdir /sys/fs/cgroup/hot
echo -cpuset > /sys/fs/cgroup/cgroup.subtree_control
echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource
rm /etc/sysctl.d/70-admin.conf
sysctl -q vm.zone_reclaim_mode=0
echo 1 > /sys/devices/system/cpu/cpu5/online
swapoff /dev/{HWT2}
umount /srv/data
rmdir /srv/data
wipefs -qa /dev/{HWT1} /dev/{HWT2}
echo none > /sys/block/{HWT0}/queue/scheduler
"""


@pytest.fixture(scope="module")
def disks(machine: Machine) -> dict[str, str]:
    return {serial: drive(machine, serial) for serial in DRIVES}


@pytest.fixture(scope="module")
def provoked(
    machine: Machine,
    disks: dict[str, str],
    live: Report,
    person: Report,
    tools: Tools,
    captured: tuple[Path, Report],
) -> tuple[Report, dict[str, str]]:
    """What doctor says when much is wrong at once, and which CPU serves each interrupt then."""
    machine.check(_PROVOKE.format_map(disks))
    return _doctor_and_served(machine)


def _doctor_and_served(machine: Machine) -> tuple[Report, dict[str, str]]:
    """At a moment when irqbalance does not move anything meanwhile."""
    for _ in range(5):
        before, report, after = _served(machine), doctor(machine), _served(machine)
        if before == after:
            return report, after
    raise AssertionError("irqbalance does not come to rest")


def _served(machine: Machine) -> dict[str, str]:
    lines = machine.check("cd /proc/irq && grep -s . */effective_affinity_list").splitlines()
    return {line.partition("/")[0]: line.partition(":")[2] for line in lines}


@pytest.mark.parametrize(
    ("id", "subject"),
    [
        ("nvme.scheduler", "block:{HWT0}"),
        ("nvme.discard-mount", "block:{HWT1}"),
        ("memory.swappiness", "sysctl:vm.swappiness"),  # tuned says 30, and now there is swap
        ("cpu.offline", "cpu:5"),
        ("memory.zone-reclaim", "sysctl:vm.zone_reclaim_mode"),
        ("kernel.sysctl-not-live", "sysctl:vm.zone_reclaim_mode"),
        ("clock.source", "clock"),
        ("irq.irqbalance", "service:irqbalance"),
        ("irq.default-affinity", "cpu:6-7"),
        ("isolation.nohz-full", "cpu:6-7"),
        ("isolation.workqueues", "cpu:6-7"),
        ("numa.device-node", "nic:{nic}"),  # on node 0
    ],
)
def test_it_finds_what_was_done(
    provoked: tuple[Report, dict[str, str]], disks: dict[str, str], id: str, subject: str
) -> None:
    report, _ = provoked
    nic = report["machine"]["nics"][0]["name"]
    assert subjects(report, id) == [subject.format(nic=nic, **disks)]


def test_it_finds_nothing_else(provoked: tuple[Report, dict[str, str]], live: Report) -> None:
    """What doesn't bear on what was done says what it said."""
    report, _ = provoked
    bears = {"memory.swappiness", "memory.swap-in-use", "memory.zone-reclaim", "kernel.sysctl-not-live"}
    bears |= {
        "kernel.sysctl-conflict",
        "kernel.sysctl-noop",
        "nvme.scheduler",
        "nvme.discard-mount",
        "cpu.offline",
    }
    bears |= {"numa.device-node", "nic.rps", "nic.coalescing", "nic.channels"}
    before, now = words(live), words(report)
    others = [id for id in before if id not in bears and not id.startswith(("irq.", "isolation."))]
    assert {id: now[id] for id in others} == {id: before[id] for id in others}


def test_the_partition_is_seen_and_valid(provoked: tuple[Report, dict[str, str]]) -> None:
    report, _ = provoked
    (partition,) = report["machine"]["cpus"]["partitions"]
    assert (partition["cpus"], partition["state"]) == ([6, 7], "isolated")
    assert row(report, "isolation.cpuset-partition")["outcome"] == "ok"
    assert report["machine"]["cpus"]["online"] == [0, 1, 2, 3, 4, 6, 7]
    assert report["machine"]["cpus"]["smt"] == [[0, 1], [2, 3], [6, 7]]


def test_it_would_move_the_interrupts_that_can_be_moved(provoked: tuple[Report, dict[str, str]]) -> None:
    report, served = provoked
    _moves_what_can_be_moved(report, served, {"6", "7", "6-7"})


def _moves_what_can_be_moved(report: Report, served: dict[str, str], apart: set[str]) -> None:
    irqs = {str(irq["number"]): irq for irq in report["machine"]["irqs"]}
    ours = {number for number, cpus in served.items() if cpus in apart and irqs[number]["actions"]}
    movable = {number for number in ours if not irqs[number]["managed"]}
    found = row(report, "irq.on-isolated")
    changes = [change for finding in found["findings"] for change in finding["changes"]]
    assert {str(change["irq"]) for change in changes} == movable
    for change in changes:
        assert not {str(cpu) for cpu in change["cpus"]} & apart


def test_undone_it_says_what_it_said_before(
    provoked: tuple[Report, dict[str, str]], machine: Machine, disks: dict[str, str], live: Report
) -> None:
    machine.check(_UNDO.format_map(disks))
    machine.check("udevadm settle --timeout=60")
    assert words(doctor(machine)) == words(live)


# -- with CPUs kept apart, and only half so: isolcpus= names a flag and not "domain"

_ARGUMENTS = "isolcpus=managed_irq,2-3 nohz_full=2-3"
_DROP_IN = "/etc/default/grub.d/zz-apart.cfg"


@pytest.fixture(scope="module")
def pending(machine: Machine, provoked: tuple[Report, dict[str, str]]) -> tuple[Report, Report]:
    """Arguments given and not yet generated; generated and not yet booted."""
    machine.put(_DROP_IN, f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {_ARGUMENTS}"\n')
    given = doctor(machine, "--only", "kernel.args-pending")
    machine.check("update-grub", 300)
    return given, doctor(machine, "--only", "kernel.args-pending")


@pytest.fixture(scope="module")
def apart(machine: Machine, pending: tuple[Report, Report]) -> tuple[Report, dict[str, str]]:
    """Booted with them, through the boot loader."""
    machine.reboot()
    return _doctor_and_served(machine)


def test_arguments_that_wait_for_a_reboot(pending: tuple[Report, Report]) -> None:
    for report in pending:
        (finding,) = row(report, "kernel.args-pending")["findings"]
        assert _ARGUMENTS in {item["value"] for item in finding["evidence"]}
    advices = [row(report, "kernel.args-pending")["findings"][0]["advice"] for report in pending]
    assert "update-grub" in advices[0]
    assert "eboot" in advices[1]


def test_the_boot_loader_gave_them(apart: tuple[Report, dict[str, str]], live: Report) -> None:
    report, _ = apart
    assert report["machine"]["kernel"]["cmdline"] == f"{live['machine']['kernel']['cmdline']} {_ARGUMENTS}"
    assert report["machine"]["kernel"]["boot_id"] != live["machine"]["kernel"]["boot_id"]
    assert row(report, "kernel.args-pending")["outcome"] == "ok"


def test_the_missing_domain_flag(apart: tuple[Report, dict[str, str]], machine: Machine) -> None:
    report, _ = apart
    assert report["machine"]["cpus"]["isolated"] == []
    assert report["machine"]["cpus"]["nohz_full"] == [2, 3]
    # The kernel's own word: it balances across these CPUs.
    assert machine.check("cat /sys/devices/system/cpu/isolated").strip() == ""
    (finding,) = row(report, "isolation.domain-flag")["findings"]
    assert (finding["subject"], finding["severity"]) == ("cpu:2-3", "error")
    assert finding["evidence"][0]["source"] == "/proc/cmdline"
    assert finding["evidence"][0]["value"] == "isolcpus=managed_irq,2-3"
    assert finding["evidence"][0]["expected"] == "isolcpus=domain,managed_irq,2-3"
    # 2 and 3 are one core; CPU 0 is not among them; nohz_full= names both.
    for id in ("isolation.smt-split", "isolation.boot-cpu", "isolation.nohz-full", "isolation.managed-irq"):
        assert row(report, id)["outcome"] == "ok"


def test_interrupts_of_the_cpus_apart(apart: tuple[Report, dict[str, str]]) -> None:
    report, served = apart
    _moves_what_can_be_moved(report, served, {"2", "3", "2-3"})
