"""The parsers of what nvidia-smi, the driver's log and NCCL's files say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import (
    nccl_env,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_xml,
    nvidia_topo,
    nvlink_status,
    pci_address,
    xid,
)

# -- topo -m --------------------------------------------------------------------------------

MATRIX = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPXB\t0-15,32-47\t0\t\tN/A
GPU1\tNV12\t X \tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = that many NVLinks

NIC Legend:

  NIC0: mlx5_2
"""


def test_matrix_with_underline_codes_and_legend() -> None:
    found = nvidia_topo.parse_matrix(MATRIX)
    assert found.columns == ["GPU0", "GPU1", "NIC0"]
    assert found.ways == {
        ("GPU0", "GPU1"): "NV12",
        ("GPU0", "NIC0"): "PXB",
        ("GPU1", "NIC0"): "SYS",
    }
    assert found.affinity == {"GPU0": "0-15,32-47", "GPU1": "16-31,48-63"}
    assert found.numa_node == {"GPU0": 0, "GPU1": 1}
    assert found.nic_names == {"NIC0": "mlx5_2"}
    assert found.incomplete == []


def test_old_matrix_names_its_hcas_and_has_no_node() -> None:
    text = "      GPU0  GPU1  mlx5_0  CPU Affinity\nGPU0   X    NV6   PIX     0-23,48-71\n"
    found = nvidia_topo.parse_matrix(text)
    assert found.ways["GPU0", "mlx5_0"] == "PIX"
    assert found.affinity == {"GPU0": "0-23,48-71"}
    assert found.numa_node == {}
    assert found.incomplete == ["GPU1"]


def test_row_that_was_cut_off_is_incomplete_and_keeps_what_it_has() -> None:
    text = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tSYS\tPIX\tSYS\t0-7\nGPU1\tSYS\t X \tSY"
    found = nvidia_topo.parse_matrix(text)
    assert found.incomplete == ["GPU1"]
    assert ("GPU1", "NIC0") not in found.ways
    assert found.ways["GPU0", "GPU1"] == "SYS"


def test_one_gpu_has_no_pairs() -> None:
    found = nvidia_topo.parse_matrix("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n")
    assert found.ways == {}
    assert found.affinity == {"GPU0": "0-7"}


def test_peer_access_says_why_not() -> None:
    text = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n  OK   = Status Ok\n"
    assert nvidia_topo.parse_peer_access(text) == {("GPU0", "GPU1"): "GNS", ("GPU1", "GPU0"): "CNS"}


@pytest.mark.parametrize(
    "text", ["", "GPU", "no matrix here\n", "\x00\x01", "GPU0 GPU1-3NIC0\n", "GPU0 GPU0\n"]
)
def test_no_matrix(text: str) -> None:
    with pytest.raises(ValueError, match="no heading"):
        nvidia_topo.parse_matrix(text)


# -- nvlink -s ------------------------------------------------------------------------------


def test_links_with_speed_and_inactive_ones() -> None:
    text = (
        "GPU 3: Tesla V100-SXM2-32GB (UUID: GPU-00000003-0000-4000-8000-000000000003)\n"
        "\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n"
    )
    (gpu,) = nvlink_status.parse(text)
    assert (gpu.number, gpu.name) == (3, "Tesla V100-SXM2-32GB")
    assert gpu.links == [(0, 25781), (1, None)]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("NVML: Unable to retrieve NVLink information as all links are inActive", "all inactive"),
        ("Device does not have or support Nvlink", "none"),
        ("Nvlink queries are not supported for Devices in MIG mode", "mig"),
    ],
)
def test_what_is_printed_in_place_of_links(line: str, note: str) -> None:
    (gpu,) = nvlink_status.parse(f"GPU 0: NVIDIA H200 (UUID: GPU-0)\n{line}\n")
    assert (gpu.number, gpu.note, gpu.links) == (0, note, [])
    (stray,) = nvlink_status.parse(line)
    assert (stray.number, stray.note) == (None, note)


# -- nvidia-smi -q --------------------------------------------------------------------------

LOG = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  5 10:00:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Device
        Index                             : 0
        ECC Errors
            Volatile
                SRAM Uncorrectable        : 7
    Clocks Throttle Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    Remapped Rows                         : N/A
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : /usr/bin/serve: worker
            Used GPU Memory               : 2566 MiB
        Process ID                        : 4243
            Type                          : G
            Name                          : Xorg
            Used GPU Memory               : N/A
GPU 00000000:0F:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Processes                             : None
"""


def test_log_is_a_tree_by_indentation() -> None:
    found = nvidia_smi_q.parse(LOG)
    assert (found.driver_version, found.cuda_version, found.attached) == ("550.54.15", "12.4", 2)
    first, second = found.gpus
    assert (first.address, second.address) == ("00000000:07:00.0", "00000000:0F:00.0")
    assert first.values["product name"] == "NVIDIA A100-SXM4-80GB"
    assert first.values["clocks throttle reasons/hw slowdown"] == "Active"
    assert first.values["clocks throttle reasons/hw slowdown/hw thermal slowdown"] == "Active"
    assert first.values["remapped rows"] == "N/A"
    # A MIG device's counters are not the GPU's.
    assert not any(path.startswith("ecc errors") for path in first.values)
    assert [(p.pid, p.kind, p.name, p.memory) for p in first.processes] == [
        (4242, "C", "/usr/bin/serve: worker", "2566 MiB"),
        (4243, "G", "Xorg", "N/A"),
    ]
    assert second.values["processes"] == "None"


def test_fragment_without_a_gpu_line_is_one_unnamed_gpu() -> None:
    found = nvidia_smi_q.parse("    Remapped Rows\n        Pending : Yes\n")
    assert [gpu.address for gpu in found.gpus] == [""]
    assert found.gpus[0].values == {"remapped rows/pending": "Yes"}


def test_note_after_a_version_is_dropped() -> None:
    text = (
        "Driver Version : 610.57.04 [Deprecated; use another]\nGPU 00000000:01:00.0\n    Minor Number : 0\n"
    )
    assert nvidia_smi_q.parse(text).driver_version == "610.57.04"


# -- nvidia-smi -q -x -----------------------------------------------------------------------

XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>550.54.15</driver_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:07:00.0">
    <product_name>NVIDIA A100 &amp; more</product_name>
    <clocks><sm_clock>210 MHz</sm_clock></clocks>
    <supported_clocks><supported_mem_clock><value>1593 MHz</value></supported_mem_clock></supported_clocks>
    <processes>
      <process_info><pid>4242</pid><type>C</type><process_name>serve</process_name>
        <used_memory>12 MiB</used_memory></process_info>
    </processes>
  </gpu>
</nvidia_smi_log>
"""


def test_xml_has_the_same_in_elements() -> None:
    found = nvidia_smi_xml.parse(XML)
    assert (found.driver_version, found.attached) == ("550.54.15", 1)
    (gpu,) = found.gpus
    assert gpu.address == "00000000:07:00.0"
    assert gpu.values == {"product_name": "NVIDIA A100 & more", "clocks/sm_clock": "210 MHz"}
    assert [(p.pid, p.kind, p.name, p.memory) for p in gpu.processes] == [(4242, "C", "serve", "12 MiB")]


def test_empty_list_of_processes_is_known_to_be_empty() -> None:
    text = "<nvidia_smi_log><gpu id='0'><processes>\n</processes></gpu></nvidia_smi_log>"
    assert nvidia_smi_xml.parse(text).gpus[0].values == {"processes": ""}


def test_xml_that_was_cut_off_keeps_what_it_has() -> None:
    cut = XML[: XML.index("<supported_clocks>")]
    (gpu,) = nvidia_smi_xml.parse(cut).gpus
    assert gpu.values["clocks/sm_clock"] == "210 MHz"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not XML",
        "<html><gpu id='1'><a>b</a></gpu></html>",
        '<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><gpu id="1"><a>&a;</a></gpu></nvidia_smi_log>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><nvidia_smi_log>&a;</nvidia_smi_log>',
        "<nvidia_smi_log>" + "<a>" * 100,
    ],
)
def test_hostile_or_foreign_xml_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        nvidia_smi_xml.parse(text)


# -- the table ------------------------------------------------------------------------------

TABLE = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.86.10              Driver Version: 535.86.10    CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000001:00:00.0 Off |                    3 |
| N/A   34C    P0              62W / 400W |      4MiB / 81920MiB |     17%   E. Process |
|                                         |                      |             Disabled |
|   1  NVIDIA GeForce RTX 2080 ...    Off | 00000002:00:00.0  On |                  N/A |
|ERR!  ERR!    P8              ERR / ERR! |    211MiB /  8192MiB |     N/A      Default |
|                                         |                      |                  N/A |
+-----------------------------------------+----------------------+----------------------+

+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|=======================================================================================|
|    1   N/A  N/A      3033    C+G   /usr/bin/gnome shell                        111MiB |
+---------------------------------------------------------------------------------------+
"""


def test_table() -> None:
    found = nvidia_smi_table.parse(TABLE)
    assert (found.driver_version, found.cuda_version) == ("535.86.10", "12.2")
    first, second = found.gpus
    assert (first.number, first.address, first.name) == (0, "00000001:00:00.0", "NVIDIA A100-SXM4-80GB")
    assert (first.persistence, first.uncorrected_ecc, first.mig) == ("On", "3", "Disabled")
    assert (first.temperature, first.performance_state) == ("34", "0")
    assert (first.power, first.power_limit) == ("62", "400")
    assert (first.memory_used_mib, first.memory_total_mib) == ("4", "81920")
    assert (second.name, second.temperature, second.uncorrected_ecc) == (
        "NVIDIA GeForce RTX 2080 ...",
        "ERR!",
        "N/A",
    )
    assert [(p.gpu, p.pid, p.kind, p.name, p.memory) for p in found.processes] == [
        (1, 3033, "C+G", "/usr/bin/gnome shell", "111MiB")
    ]


def test_words_of_the_newest_table() -> None:
    head = "| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |"
    found = nvidia_smi_table.parse(head)
    assert (found.driver_version, found.cuda_version) == ("610.57.04", "13.3")


# -- the driver's log -----------------------------------------------------------------------


def test_xid_with_every_form_of_process() -> None:
    found = xid.parse(
        [
            "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception",
            "NVRM: Xid (PCI:0000:cb:00): 109, pid=4242, name=pt_main_thread, Ch 00000008, errorString X",
            "NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120",
            "NVRM: Xid (PCI:00000010:cb:00.0 GPU-I:05): 94, pid=7, name=a, Contained",
        ]
    )
    assert [(e.address, e.number, e.process) for e in found] == [
        ("0000:cb:00.0", 13, ""),
        ("0000:cb:00.0", 109, "pt_main_thread"),
        ("0000:01:00.0", 31, ""),
        ("0010:cb:00.0", 94, "a"),
    ]
    assert found[0].detail == "Graphics SM Warp Exception"


def test_xid_names_its_cause() -> None:
    (event,) = xid.parse(["NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=p, Ch 1 caused by previous Xid 149"])
    assert (event.number, event.caused_by) == (45, 149)


def test_loss_without_an_xid_is_told_in_three_lines() -> None:
    found = xid.parse(
        [
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
            "usb 1-1: something else",
            "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        ]
    )
    assert [(e.kind, e.address) for e in found] == [("lost", "0000:b3:00.0"), ("probe-failed", "")]
    assert "10de:26b5" in found[0].line


def test_loss_in_one_line() -> None:
    (event,) = xid.parse(["NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."])
    assert (event.kind, event.address) == ("lost", "0000:18:00.0")


def test_an_address_is_not_carried_over_to_another_message() -> None:
    found = xid.parse(
        ["NVRM: GPU at PCI:0000:9b:00: GPU-1", "NVRM: a", "NVRM: b", "NVRM: c", "x fallen off the bus"]
    )
    assert [(e.kind, e.address) for e in found] == [("lost", "")]


def test_other_complaints() -> None:
    found = xid.parse(
        [
            "NVRM: API mismatch: the client has the version 535.171.04, but",
            "NVRM: this kernel module has the version 535.161.07.  Please",
            "NVRM: GPU 0000:9a:00.0: RmInitAdapter failed! (0x22:0x40:894)",
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO",
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  525.125.06",
        ]
    )
    assert [(e.kind, e.address, e.number) for e in found] == [
        ("mismatch", "", None),
        ("init-failed", "0000:9a:00.0", None),
        ("sxid", "0000:c1:00.0", 28006),
    ]
    assert "535.161.07" in found[0].line
    assert found[2].detail == "non-fatal"


def test_meanings_say_who_has_to_act() -> None:
    assert xid.meaning(13).area == xid.PROGRAM
    assert xid.meaning(79).severity == "error"
    assert xid.meaning(149).area == xid.meaning(145).area == xid.meaning(74).area == xid.NVLINK
    assert xid.meaning(103).name == xid.meaning(39).name  # engines are alike
    assert "catalog" in xid.meaning(9999).step


# -- NCCL's variables -----------------------------------------------------------------------


def test_variables_in_every_form() -> None:
    text = (
        "# a comment\nNCCL_P2P_LEVEL=LOC\nexport NCCL_DEBUG='INFO'\nPASSWORD=secret\n"
        "CUDA_VISIBLE_DEVICES=0,1 # two\n"
    )
    assert nccl_env.parse(text) == [
        ("NCCL_P2P_LEVEL", "LOC"),
        ("NCCL_DEBUG", "INFO"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "off"),
    [
        ("NCCL_P2P_DISABLE", "1", True),
        ("NCCL_P2P_DISABLE", "0", False),
        ("NCCL_P2P_LEVEL", "LOC", True),
        ("NCCL_P2P_LEVEL", "0", True),
        ("NCCL_P2P_LEVEL", "NVL", False),
        ("NCCL_P2P_LEVEL", "5", False),
        ("NCCL_SHM_DISABLE", "1", False),
    ],
)
def test_what_turns_peer_access_off(name: str, value: str, off: bool) -> None:
    assert bool(nccl_env.p2p_disabled(name, value)) is off


# -- addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:07:00.0", "0000:07:00.0"),
        ("0000:B3:00.0", "0000:b3:00.0"),
        ("01:00.0", "0000:01:00.0"),
        ("00010000:e1:00.0", "10000:e1:00.0"),
        ("0000:07:00", None),
        ("", None),
    ],
)
def test_addresses_have_one_form(text: str, normal: str | None) -> None:
    assert pci_address.normal(text) == normal


# -- none of them falls over anything -------------------------------------------------------

_WORDS = st.sampled_from(
    [
        "GPU0",
        "GPU1",
        "NIC0",
        "X",
        "PIX",
        "NV18",
        "SYS",
        "N/A",
        "0-7",
        ":",
        "|",
        "=",
        "NVRM:",
        "Xid",
        "(PCI:0000:01:00):",
        "79,",
        "caused by previous",
        "Link 0:",
        "<inactive>",
        "25 GB/s",
        "GPU 0:",
        "(UUID:",
        "Process ID",
        "<gpu>",
        "</gpu>",
        "\n",
        "\t",
        "\x00",
        "é",
    ]
)


@given(st.lists(_WORDS, max_size=60).map(" ".join))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (nvidia_topo.parse_matrix, nvidia_topo.parse_peer_access, nvidia_smi_xml.parse):
        try:
            parse(text)
        except ValueError:
            continue
    nvidia_smi_q.parse(text)
    nvidia_smi_table.parse(text)
    nvlink_status.parse(text)
    nccl_env.parse(text)
    xid.parse(text.splitlines())
