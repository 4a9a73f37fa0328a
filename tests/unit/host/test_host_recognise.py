"""Pasted texts: known by their content, split where another output begins, in bounded time."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.host import prompts
from hwtune.host.recognise import clean, recognise

SAMPLES = {
    "nvidia-smi topo -m": "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV4\tPIX\t0-3\n",
    "nvidia-smi topo -p2p": " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
    "nvidia-smi -q": "==============NVSMI LOG==============\n\nAttached GPUs : 1\nGPU 00000000:01:00.0\n",
    "nvidia-smi -q -x": '<?xml version="1.0" ?>\n<nvidia_smi_log>\n<gpu/>\n</nvidia_smi_log>\n',
    "nvidia-smi nvlink -s": "GPU 0: H100 (UUID: GPU-1)\n\t Link 0: 26 GB/s\n\t Link 1: <inactive>\n",
    "nvidia-smi -L": "GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\n",
    "nvidia-smi": "+------+\n| NVIDIA-SMI 570.1   Driver Version: 570.1 |\n|---+---+---|\n",
    "NCCL topology": '<system version="1">\n  <cpu numaid="0"/>\n</system>\n',
    "lspci": "00:00.0 Host bridge: Vendor Chip\n01:00.0 3D controller [0302]: Vendor [10de:2330]\n",
    "lspci -v": "0000:01:00.0 Non-Volatile memory controller: X\n\tLnkSta:\tSpeed 16GT/s, Width x4\n",
    "lspci -t": "-+-[0000:80]-+-00.0  X\n \\-[0000:00]-+-00.0  Y\n",
    "lspci -mm": '00:00.0 "Host bridge" "Vendor" "Chip" -r02 "" ""\n',
    "lscpu": "Architecture:        x86_64\nCPU op-mode(s):      32-bit, 64-bit\nCPU(s):              8\n",
    "numactl -H": "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 1 MB\n",
    "dmesg": "[    0.000000] Linux version 6.1\n[    1.500000] nvme nvme0: x\n",
    "syslog": "Jan  2 10:00:00 box systemd[1]: Started X.\n",
    "nvme smart-log": "Smart Log for NVME device:nvme0 namespace-id:ffffffff\ncritical_warning : 0\n",
    "nvme id-ctrl": "NVME Identify Controller:\nvid       : 0x144d\nssvid     : 0x144d\n",
    "nvme error-log": "Error Log Entries for device:nvme0 entries:64\n.................\n Entry[ 0]\n",
    "smartctl -a": "smartctl 7.3 2022-02-28 r5338\n\n=== START OF INFORMATION SECTION ===\n",
    "smartctl --json": '{\n  "smartctl": {"version": [7, 3]},\n  "device": {"name": "/dev/nvme0"}\n}\n',
    "ethtool": "Settings for eth0:\n\tSpeed: 100000Mb/s\n",
    "ethtool -S": "NIC statistics:\n     rx_packets: 1\n     Link: 3\n",
    "ethtool -l": "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\t16\n",
    "ethtool -g": "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\n",
    "ethtool -c": "Coalesce parameters for eth0:\nAdaptive RX: off  TX: off\n",
    "ethtool -k": "Features for eth0:\nrx-checksumming: on\n",
    "ethtool -a": "Pause parameters for eth0:\nAutonegotiate:\ton\n",
    "ethtool -i": "driver: mlx5_core\nversion: 6.1\nfirmware-version: 28\nbus-info: 0000:01:00.0\n",
    "ethtool -T": "Time stamping parameters for eth0:\nCapabilities:\n",
    "ibstat": "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n",
    "ip -s link": (
        "2: eth0: <BROADCAST,UP> mtu 1500 qdisc mq state UP mode DEFAULT\n    RX:  bytes packets\n    1 2\n"
    ),
    "udevadm info --export-db": "P: /devices/pci0000:00\nE: DEVPATH=/devices/pci0000:00\n\n",
    "/proc/interrupts": "           CPU0       CPU1\n  0:         37          0  IO-APIC   2-edge timer\n",
    "/proc/softirqs": "                    CPU0       CPU1\n          HI:          1          0\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro isolcpus=2-3\n",
    "/proc/meminfo": "MemTotal:       16384 kB\nMemFree: 1024 kB\n",
    "cyclictest": "# /dev/cpu_dma_latency set to 0us\npolicy: fifo: loadavg: 0.1 0.1 0.1 1/1 1\n",
    "rtla timerlat": "                 Timer Latency\n  0 00:00:06   |  IRQ Timer Latency (us)\n",
    "rtla osnoise": "               Operating System Noise\nduration:   0 00:00:05 | time is in us\n",
    "environment": "NCCL_P2P_LEVEL=LOC\nexport CUDA_VISIBLE_DEVICES=0,1\n",
    "edac-util": "mc0: 0 Uncorrected Errors with no DIMM info\nmc0: csrow0: 2 Corrected Errors\n",
    "sysctl -a": "".join(f"vm.setting_{number} = {number}\n" for number in range(120)),
    "irqbalance --debug": "Isolated CPUs: 00000000\nAdaptive-ticks CPUs: 00000000\n",
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_each_kind_is_known(kind: str) -> None:
    [piece] = recognise(SAMPLES[kind])
    assert (piece.kind, piece.command) == (kind, "")
    # What a person puts around it changes nothing.
    around = f"Hello,\nhere is what you asked for:\n\n{SAMPLES[kind]}"
    weak = (
        "environment",
        "/proc/cmdline",
        "sysctl -a",
        "smartctl --json",
        "nvidia-smi -q -x",
        "NCCL topology",
    )
    if kind not in weak:
        assert [found.kind for found in recognise(around)] == [kind]


@pytest.mark.parametrize("kind", SAMPLES)
def test_each_kind_is_known_below_a_prompt_and_between_others(kind: str) -> None:
    text = f"$ uptime\n 10:00 up 1 day\n[root@box ~]# some command\n{SAMPLES[kind]}\nuser@box:/tmp$ lscpu\n"
    text += SAMPLES["lscpu"]
    pieces = recognise(text)
    assert [piece.kind for piece in pieces] == [kind, "lscpu"]
    assert [piece.command for piece in pieces] == ["some command", "lscpu"]
    assert pieces[0].text.strip("\n") in SAMPLES[kind]
    assert text.split("\n")[pieces[1].line - 1].startswith("Architecture:")


@pytest.mark.parametrize(
    "line",
    [
        "Jan 02 16:19:28 box kernel: nvme nvme0: x",
        "2026-01-02T16:19:28.123456+01:00 box kernel: nvme nvme0: x",
        "2026-01-02T16:19:28+0000 box kernel: nvme nvme0: x",
        "Jan 02 16:19:28.123456 box kernel: nvme nvme0: x",
        "Fri 2026-01-02 16:19:28 CET box kernel: nvme nvme0: x",
        "1767370768.123456 box kernel: nvme nvme0: x",
        "[  123.456789] x",
        "[  123.456789][  T812] x",
        "[    0.000000][    T0] x",
        "[Fri Jan  2 11:11:22 2026] x",
        "[Jan 2 11:11] x",
        "[  +0.000012] x",
        "<6>[  201.650687] x",
        "kern  :warn  : [  123.456789] x",
        "kern  :warn  : 2025-01-21T04:41:44,285060+00:00 x",
        "2025-01-21T04:41:44,285060+00:00 x",
        "6,3964,206764307,-;x",
        "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1",
        " pcieport 0000:00:1d.0: AER: PCIe Bus Error: severity=Corrected",
        "mce: CPU3: Core temperature above threshold",
        "EDAC MC1: 1 CE memory scrubbing error",
    ],
)
def test_forms_of_the_kernel_log(line: str) -> None:
    assert [piece.kind for piece in recognise(line + "\n")] == ["dmesg"]
    assert [piece.kind for piece in recognise(f"{line}\n{line}\n  continued\n{line}\n")] == ["dmesg"]


@pytest.mark.parametrize(
    "fragment",
    [
        ("lspci -v", "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+\n"),
        ("lspci -v", "LnkSta: Speed 8GT/s (downgraded), Width x2 (downgraded)\n"),
        ("nvidia-smi -q", "    Remapped Rows\n        Pending       : Yes\n"),
        ("smartctl -a", "SMART/Health Information (NVMe Log 0x02)\nCritical Warning:      0x00\n"),
        ("nvme smart-log", "percentage_used      : 3%\nnum_err_log_entries  : 1\n"),
        ("nvidia-smi nvlink -s", "NVML: Unable to retrieve NVLink information as all links are inActive\n"),
    ],
)
def test_fragments(fragment: tuple[str, str]) -> None:
    kind, text = fragment
    [piece] = recognise(text)
    assert piece.kind == kind
    assert piece.text == text.rstrip("\n")  # its own indentation is kept


def test_outputs_one_after_another_without_prompts() -> None:
    order = ["lscpu", "ethtool -l", "lspci -v", "dmesg", "nvidia-smi topo -m", "ibstat", "numactl -H"]
    text = "\n".join(SAMPLES[kind] for kind in order)
    assert [piece.kind for piece in recognise(text)] == order


def test_an_output_for_each_interface_is_one_document() -> None:
    text = SAMPLES["ethtool -g"] + SAMPLES["ethtool -g"].replace("eth0", "eth1")
    pieces = recognise(text)
    assert [(piece.kind, piece.line) for piece in pieces] == [("ethtool -g", 1), ("ethtool -g", 4)]
    assert "eth0" in pieces[0].text
    assert "eth1" not in pieces[0].text


def test_one_output_with_many_devices_is_one_document() -> None:
    for kind in ("lspci -v", "ibstat", "nvidia-smi nvlink -s", "udevadm info --export-db", "dmesg"):
        assert [piece.kind for piece in recognise(SAMPLES[kind] + SAMPLES[kind])] == [kind]


def test_xml_ends_where_it_ends() -> None:
    text = SAMPLES["nvidia-smi -q -x"] + SAMPLES["nvidia-smi -q -x"] + "\n" + SAMPLES["lscpu"]
    pieces = recognise(text)
    assert [piece.kind for piece in pieces] == ["nvidia-smi -q -x", "nvidia-smi -q -x", "lscpu"]
    assert all(piece.text.endswith("</nvidia_smi_log>") for piece in pieces[:2])


def test_a_quotation_is_unindented() -> None:
    text = "".join(f"    {line}\n" for line in SAMPLES["ethtool"].splitlines())
    [piece] = recognise(text)
    assert (piece.kind, piece.text) == ("ethtool", SAMPLES["ethtool"].rstrip("\n"))


def test_a_command_that_failed_gives_nothing() -> None:
    for failure in (
        "bash: nvidia-smi: command not found",
        "Cannot get stats strings information: Operation not supported",
        "dmesg: read kernel buffer failed: Operation not permitted",
    ):
        for command in ("nvidia-smi -q", "ethtool -S eth0", "dmesg"):
            assert recognise(f"$ {command}\n{failure}\n") == []


def test_a_command_whose_output_is_cut_down() -> None:
    """grep leaves lines that nobody could know without the command line."""
    [piece] = recognise("$ sudo ethtool eth0 | grep -i speed\n\tSpeed: 100000Mb/s\n$ uptime\n")
    assert (piece.kind, piece.command) == ("ethtool", "sudo ethtool eth0 | grep -i speed")


def test_prose_is_nothing() -> None:
    for text in (
        "The log says NVRM: Xid 79 and kernel: things. We ran dmesg and lspci -vvv.\n",
        "# Notes\n\n- GPU0 is slow\n- isolcpus=2-3 was set\n",
        'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n',
        "ETHTOOL\nethtool: bad command line argument(s)\nFor more information run ethtool -h\n",
        "smartctl is missing here\nDriver: none\n",
        "a = 1\nb = 2\n",
        "",
        "\n\n\n",
    ):
        assert recognise(text) == []


# -- prompts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("$ lspci -vvv", "lspci -vvv"),
        ("# lspci -vvv", "lspci -vvv"),
        ("#lspci -vvv", "lspci -vvv"),
        ("# $ nvidia-smi -q", "nvidia-smi -q"),
        ("root@box:~# dmesg -T", "dmesg -T"),
        ("[root@box ~]# dmesg", "dmesg"),
        ("(venv) user@gpu-7:/opt/x$ nvidia-smi topo -m", "nvidia-smi topo -m"),
        ("user@box:~$ anything at all", "anything at all"),
        ("+ lscpu", "lscpu"),
        ("> numactl -H", "numactl -H"),
        ("=== ethtool -S eth0 ===", "ethtool -S eth0"),
        ("------ lspci -tv ------", "lspci -tv"),
        ("==> /proc/interrupts <==", "/proc/interrupts"),
        ("## nvme smart-log /dev/nvme0 ##", "nvme smart-log /dev/nvme0"),
        ("nvidia-smi topo -m", "nvidia-smi topo -m"),
        ("lscpu", "lscpu"),
        ("sudo nvme smart-log /dev/nvme0", "sudo nvme smart-log /dev/nvme0"),
        ("################################", ""),
        ("```", ""),
        ("```text", ""),
    ],
)
def test_prompts(line: str, command: str) -> None:
    found = prompts.prompt(line)
    assert found is not None
    assert found.command == command


@pytest.mark.parametrize(
    "line",
    [
        "# a comment",
        "# /dev/cpu_dma_latency set to 0us",
        "# RTLA timerlat histogram",
        "==============NVSMI LOG==============",
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff",
        "smartctl 7.3 2022-02-28 r5338 [x86_64-linux]",
        "ethtool version 6",
        "rtla timerlat hit stop tracing",
        "---------",
        "|===============================+======================|",
        "-[0000:00]-+-00.0  Host bridge",
        "[    1.000000] x",
        "mail user@example.org about it",
        "",
    ],
)
def test_lines_that_are_no_prompts(line: str) -> None:
    assert prompts.prompt(line) is None


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("nvidia-smi", "nvidia-smi"),
        ("/usr/bin/nvidia-smi -q", "nvidia-smi -q"),
        ("nvidia-smi -q -x", "nvidia-smi -q -x"),
        ("nvidia-smi -x -q", "nvidia-smi -q -x"),
        ("nvidia-smi --query-gpu=name --format=csv", ""),
        ("sudo -n LC_ALL=C lspci -vvvnn -s 01:00.0", "lspci -v"),
        ("lspci -tv", "lspci -t"),
        ("lspci -Dmm", "lspci -mm"),
        ("lspci | grep -i nvme", "lspci"),
        ("ethtool -S eth0 | grep drop", "ethtool -S"),
        ("ethtool --show-channels eth0", "ethtool -l"),
        ("ethtool eth0", "ethtool"),
        ("ethtool -s eth0 speed 10000", ""),
        ("nvme smart-log /dev/nvme0", "nvme smart-log"),
        ("nvme list", ""),
        ("smartctl -a -j /dev/nvme0", "smartctl --json"),
        ("smartctl -a /dev/nvme0", "smartctl -a"),
        ("journalctl -k -b", "dmesg"),
        ("journalctl -u nvidia-fabricmanager", ""),
        ("cat /proc/interrupts", "/proc/interrupts"),
        ("/proc/cmdline", "/proc/cmdline"),
        ("ip -s -s link show eth0", "ip -s link"),
        ("numactl --hardware", "numactl -H"),
        ("numactl -N 0 lscpu", "lscpu"),
        ("env | grep NCCL", "environment"),
        ("env NCCL_DEBUG=INFO nvidia-smi -q", "nvidia-smi -q"),
        ("timeout 5 dmesg", "dmesg"),
        ("rtla timerlat top -c 0-3", "rtla timerlat"),
        ("udevadm info --export-db", "udevadm info --export-db"),
        ("sysctl -a", "sysctl -a"),
        ("sysctl vm.swappiness", "sysctl -a"),
        ("sysctl -w vm.swappiness=1", ""),
        ("echo hello", ""),
        ("", ""),
    ],
)
def test_kinds_of_commands(command: str, kind: str) -> None:
    assert prompts.kind(command) == kind


# -- bytes --------------------------------------------------------------------------------------------


def test_clean() -> None:
    assert clean(b"a\r\nb\r\n") == "a\nb\n"
    assert clean(b"progress 1\rprogress 2\n") == "progress 1\nprogress 2\n"
    assert clean(b"\x1b[4mGPU0\x1b[0m\t\x1b[1;31mX\x1b[m\n") == "GPU0\tX\n"
    assert clean(b"\x1b]0;title\x07prompt\x1b]0;title\x1b\\x\n") == "promptx\n"
    assert clean(b"a\x07\x08\x1b\x9bb\x7f\n") == "a\ufffdb\n"
    assert clean("caf\u00e9\u0085\n".encode()) == "caf\u00e9\n"
    assert clean(b"\xef\xbb\xbfArchitecture: x\n") == "Architecture: x\n"
    assert clean("Architecture: x\r\n".encode("utf-16")) == "Architecture: x\n"
    assert clean(b"bin\0ary") is None
    assert clean(b"\xff\xfeodd") is not None


@given(st.binary(max_size=300))
def test_clean_and_recognise_take_anything(content: bytes) -> None:
    text = clean(content)
    if text is not None:
        assert not set(text) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
        for piece in recognise(text):
            assert piece.kind
            assert piece.line >= 1


HOSTILE = {
    "one long line of spaces": " " * 2_000_000,
    "many lines of spaces": (" " * 3000 + "\n") * 700,
    "one long word": "a" * 2_000_000,
    "rulers": ("-" * 1999 + "x\n") * 1000,
    "equals": ("=" * 1990 + " lspci\n") * 1000,
    "ats": ("a@" * 900 + "\n") * 1000,
    "escapes": "\x1b[" * 1_000_000,
    "long escapes": ("\x1b[" + "1;" * 1000 + "\n") * 1000,
    "titles": ("\x1b]" + "x" * 1000) * 2000,
    "nested json": "{" * 1_000_000,
    "nested lists": '{"a":' + "[" * 1_000_000,
    "open xml": "<?xml ?>\n<nvidia_smi_log>\n" * 20_000,
    "cpus": (" CPU0" * 700 + "x\n") * 600,
    "stamps": "[" + "1" * 2_000_000,
    "prompts": "$ lscpu\n" * 300_000,
    "bare commands": "lscpu\n" * 300_000,
    "starts": "NIC statistics:\n" * 150_000,
    "matrices": "GPU0 x\n" * 250_000,
    "drivers": "driver: x\n" * 150_000,
    "assignments": "NCCL_" + "A" * 2_000_000 + "=\n",
    "prompt path": "a@b:" + "/x" * 1_000_000,
    "dots": "a.b." * 500_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_texts_take_no_longer_than_honest_ones(what: str) -> None:
    content = HOSTILE[what].encode()
    begin = time.process_time()
    text = clean(content)
    assert text is not None
    recognise(text)
    # 2 MB of honest text take about 0.3 s on a slow machine; quadratic time would take minutes.
    assert time.process_time() - begin < 5


def test_time_grows_with_length() -> None:
    lines = [line for sample in SAMPLES.values() for line in sample.split("\n")]
    choose = random.Random(7)
    times = []
    for count in (20_000, 80_000):
        text = "\n".join(choose.choices(lines, k=count))
        begin = time.process_time()
        recognise(text)
        times.append(time.process_time() - begin)
    assert times[1] < 12 * times[0]
