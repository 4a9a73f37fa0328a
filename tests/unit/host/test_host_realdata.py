"""Every machine captured elsewhere opens, with its root where its files say that it is."""

from __future__ import annotations

import os
import re
import tarfile
from typing import TYPE_CHECKING

from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot

if TYPE_CHECKING:
    from pathlib import Path

_ROOT = re.compile(r"(?:\./)?((?:[^/]+/){0,3}?)(?:sys|proc)(?:/.*)?")


def archives(realdata: Path) -> list[Path]:
    return sorted(
        path
        for path in realdata.rglob("*")
        if re.search(r"\.(tgz|tar(\.\w+)?)$", path.name) and path.is_file()
    )


def listed(path: Path) -> tarfile.TarFile | None:
    try:
        return tarfile.open(path)
    except tarfile.ReadError:
        return None  # the fetch left a pointer in its place


def roots(members: list[tarfile.TarInfo]) -> list[str]:
    """The shallowest folders that hold sys/ or proc/, by the archive's own list."""
    found = {f"/{match[1]}".rstrip("/") for member in members if (match := _ROOT.fullmatch(member.name))}
    least = min((root.count("/") for root in found), default=0)
    return sorted(root for root in found if root.count("/") == least)


def test_every_archive_opens_at_its_root(realdata: Path) -> None:
    opened = 0
    for path in archives(realdata):
        tar = listed(path)
        members = tar.getmembers() if tar else []
        wanted = roots(members)
        try:
            host = open_snapshot(str(path))
        except UsageError as error:
            assert not wanted, (path, error)
            continue
        assert host.root == wanted[0], path
        assert [sentence for sentence in host.warnings if "machines" not in sentence] == [], path
        assert ("machines" in " ".join(host.warnings)) == (len(wanted) > 1), path
        opened += 1
    assert opened > 90


def test_every_file_of_an_archive_is_as_its_list_says(realdata: Path) -> None:
    for path in archives(realdata):
        if path.stat().st_size > 60_000:
            continue
        tar = listed(path)
        members = tar.getmembers() if tar else []
        wanted = roots(members)
        if tar is None or not wanted:
            continue
        host = open_snapshot(str(path))
        for member in members:
            name = "/" + member.name.removeprefix("./")
            if not name.startswith(f"{wanted[0]}/"):
                continue
            inside = name[len(wanted[0]) :]
            if member.issym():
                assert host.exists(inside).value is True, (path, inside)
            elif member.isfile() and not (member.size == 0 and inside.startswith(("/proc/", "/sys/"))):
                content = tar.extractfile(member)
                assert content is not None
                assert host.read_bytes(inside, 32 << 20).value == content.read(), (path, inside)
            elif member.isdir():
                assert host.names(inside).known, (path, inside)


def test_no_link_of_an_archive_leads_out(realdata: Path) -> None:
    """Each captured link resolves inside the tree, as a chroot would resolve it."""
    path = realdata / "derived" / "udev-dgx-a100.tar.gz"
    host = open_snapshot(str(path))
    names = host.names("/sys/class/net").get()
    assert names
    for name in names:
        assert host.resolve(f"/sys/class/net/{name}").get().startswith("/sys/devices/")


def test_report_cases_open_with_their_texts(realdata: Path) -> None:
    """Each text of a report is known for what its author called it."""
    kinds = {
        "topo-m.txt": "nvidia-smi topo -m",
        "topo-p2p-rw.txt": "nvidia-smi topo -p2p",
        "nvlink-s.txt": "nvidia-smi nvlink -s",
        "dmesg.txt": "dmesg",
        "lspci-vvv.txt": "lspci -v",
        "lspci-acs.txt": "lspci -v",
        "nvidia-smi-q.txt": "nvidia-smi -q",
        "nvme-smart-log.txt": "nvme smart-log",
        "smartctl-a.txt": "smartctl -a",
        "environ.txt": "environment",
        "numactl-H.txt": "numactl -H",
        "lscpu.txt": "lscpu",
        "ibstat.txt": "ibstat",
        "ethtool-S.txt": "ethtool -S",
        "ethtool-l.txt": "ethtool -l",
        "cyclictest.txt": "cyclictest",
        "rtla-timerlat-top.txt": "rtla timerlat",
        "irqbalance-debug.txt": "irqbalance --debug",
        "irqbalance-debug-before.txt": "irqbalance --debug",
        "nccl-topo-fragment.xml": "NCCL topology",
    }
    cases = sorted(path for path in (realdata / "reports").iterdir() if path.is_dir())
    assert len(cases) > 30
    for case in cases:
        host = open_snapshot(str(case))
        assert host.root == ("/sysroot" if (case / "sysroot").is_dir() else None), case
        wanted = {(kinds[path.name], path.name) for path in case.iterdir() if path.name in kinds}
        found = {
            (kind, document.path)
            for kind in {*kinds.values(), "nvidia-smi", "lspci", "syslog", "/proc/cmdline", "ethtool"}
            for document in host.documents(kind)
        }
        assert found == wanted, case


def test_whole_captures_are_split_at_their_prompts(realdata: Path) -> None:
    folder = realdata / "nvidia_gpu_exporter" / "internal" / "captures"
    for path in sorted(folder.glob("linux*.txt")):
        host = open_snapshot(str(path))
        matrix = host.documents("nvidia-smi topo -m")
        assert len(matrix) == 1, path
        assert matrix[0].command == "nvidia-smi topo -m"
        assert "\x1b" not in matrix[0].text
        assert matrix[0].text.lstrip().startswith("GPU0")
        queries = host.documents("nvidia-smi -q")
        assert [document.command for document in queries] == ["nvidia-smi -q"] * 2, path
        assert all(document.text.startswith("==============NVSMI LOG") for document in queries)
        # Nothing of the next section is at the end of one.
        assert all("::" not in document.text and "####" not in document.text for document in queries)
        assert len(host.documents("nvidia-smi nvlink -s")) == 1, path
        assert host.documents("dmesg") == []


def test_texts_of_other_tools_are_known(realdata: Path) -> None:
    wanted = {
        "gpud/pkg/pci/testdata/lspci-vvv": "lspci -v",
        "gpud/pkg/kmsg/testdata/kmsg.1.log": "dmesg",
        "gpud/components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log": "dmesg",
        "gpud/components/memory/testdata/dmesg.decode.iso.log": "dmesg",
        "gpud/pkg/pstore/testdata/dmesg-erst.txt": "dmesg",
        "azurehpc-health-checks/test/data/bad_nvlink_status.txt": "nvidia-smi nvlink -s",
        "azurehpc-health-checks/test/data/bad_nvsmi8_output.txt": "nvidia-smi -q",
        "azurehpc-health-checks/test/data/1dev_6flap_syslog": "syslog",
        "jc/tests/fixtures/ubuntu-20.10/lspci-mmv.out": "lspci -mm",
        "jc/tests/fixtures/generic/ethtool--default1.out": "ethtool",
        "jc/tests/fixtures/linux-proc/interrupts": "/proc/interrupts",
        "jc/tests/fixtures/ubuntu-18.04/sysctl-a.out": "sysctl -a",
        "jc/tests/fixtures/linux-proc/softirqs": "/proc/softirqs",
        "telegraf/plugins/inputs/nvidia_smi/testdata/a10g.xml": "nvidia-smi -q -x",
        "pciutils/tests/cap-aer-hdr": "lspci -v",
        "pciutils/tests/tree-asus-p6t6": "lspci",
        "insights-core/dmesg/MSGINFO.txt": "dmesg",
        "insights-core/ethtool/TEST_ETHTOOL_I_GOOD.txt": "ethtool -i",
        "insights-core/ethtool/TEST_ETHTOOL_DOCS.txt": "ethtool",
        "insights-core/ethtool/ETHTOOL_K_STANDARD.txt": "ethtool -k",
        "insights-core/ethtool/TEST_ETHTOOL_C.txt": "ethtool -c",
        "insights-core/ethtool/TEST_ETHTOOL_G_3.txt": "ethtool -g",
        "insights-core/ethtool/SUCCESS_ETHTOOL_A.txt": "ethtool -a",
        "insights-core/cmdline/CMDLINE_GRUB2_AB.txt": "/proc/cmdline",
        "insights-core/lscpu/LSCPU_3.txt": "lscpu",
        "node_exporter/collector/fixtures/ethtool/eth0/statistics": "ethtool -S",
        "smartctl_exporter/testdata/KXG60ZNV512G_TOSHIBA_8.json": "smartctl --json",
        "checkbox/checkbox-ng/checkbox_ng/support/parsers/tests/udevadm_data/NVIDIA_DGXA100.txt": (
            "udevadm info --export-db"
        ),
    }
    for name, kind in wanted.items():
        host = open_snapshot(str(realdata / name))
        assert len(host.documents(kind)) == 1, name
    # A text that says which command was run and of which device.
    assert (
        open_snapshot(str(realdata / "node_exporter/collector/fixtures/ethtool/eth0/statistics"))
        .documents("ethtool -S")[0]
        .command
        == "ethtool -S eth0"
    )


def test_texts_that_are_something_else_are_not_known(realdata: Path) -> None:
    for name in (
        "insights-core/lspci/LSPCI_DRIVER_DETAILS_3.txt",
        "insights-core/ethtool/ETHTOOL_K_BAD_ARGS.txt",
        "insights-core/ethtool/ETHTOOL_K_CANNOT_GET.txt",
        "insights-core/nvidia/NVIDIA_SMI_QUERY_GPU_DATA_1.txt",
        "jc/tests/fixtures/linux-proc/version",
        "gpud/pkg/host/testdata/etc-os-release",
        "superbenchmark/tests/data/nccl_allreduce.log",
        "EXPECTED.md",
        "INDEX.md",
    ):
        try:
            open_snapshot(str(realdata / name))
        except UsageError as error:
            assert "holds neither" in str(error)
            continue
        raise AssertionError(f"{name} was taken for the output of a command")


def test_a_folder_answers_as_its_archive(realdata: Path, tmp_path: Path) -> None:
    """The same tree, unpacked: every file and every link gives the same."""
    path = realdata / "derived" / "gcm-compute_samsung980pro.tar.gz"
    with tarfile.open(path) as tar:
        tar.extraction_filter = staticmethod(tarfile.tar_filter) if hasattr(tarfile, "tar_filter") else None
        for member in tar:
            tar.extract(member, tmp_path, set_attrs=False)
    packed, unpacked = open_snapshot(str(path)), open_snapshot(str(tmp_path))
    asked = 0
    for folder, _, files in os.walk(tmp_path / "gcm-compute_samsung980pro"):
        inside = folder[len(str(tmp_path / "gcm-compute_samsung980pro")) :] or "/"
        assert packed.names(inside) == unpacked.names(inside)
        for name in files:
            asked += 1
            for question in ("read_bytes", "resolve"):
                answers = [getattr(host, question)(f"{inside}/{name}") for host in (packed, unpacked)]
                assert answers[0] == answers[1]
    assert asked > 600
