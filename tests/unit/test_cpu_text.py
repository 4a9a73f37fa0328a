"""Texts about CPUs: lscpu, cyclictest, rtla, /proc/cpuinfo, the kernel's log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import cyclictest, lscpu, proc_cpuinfo, throttle_log

# -- lscpu -----------------------------------------------------------------------------------

OLD = """\
Architecture:          x86_64
CPU(s):                8
On-line CPU(s) list:   0,2-4,
                       6
Thread(s) per core:    2
Socket(s):             1
Model name:            Some CPU @ 2.10GHz
NUMA node0 CPU(s):     0,2,
                                      4
NUMA node1 CPU(s):     3,6
Vulnerability L1tf:    Mitigation; PTE Inversion; VMX flush not necessary
"""

NEW = """\
Architecture:                x86_64
  CPU op-mode(s):            32-bit, 64-bit
CPU(s):                      4
  On-line CPU(s) list:       0-3
Vendor ID:                   GenuineIntel
  Model name:                Some CPU
    Flags:                   fpu vme d
                             e pse
                              tsc
NUMA:
  NUMA node(s):              1
  NUMA node0 CPU(s):         0-3
Vulnerabilities:
  Spec store bypass:         Vulnerable
  Srbds:                     Unknown: Dependent on hypervisor status
"""


def test_lscpu_joins_lines_that_a_terminal_broke() -> None:
    found = lscpu.fields(OLD)
    assert found["On-line CPU(s) list"] == "0,2-4,6"
    assert lscpu.node_cpus(found) == {0: [0, 2, 4], 1: [3, 6]}
    assert lscpu.vulnerabilities(found) == {"l1tf": "Mitigation: PTE Inversion; VMX flush not necessary"}


def test_lscpu_joins_lines_that_it_wrapped_itself() -> None:
    found = lscpu.fields(NEW)
    # cut at the value's column in the middle of a word; the blank between words stays
    assert found["Flags"] == "fpu vme de pse tsc"
    assert found["NUMA"] == ""
    assert lscpu.vulnerabilities(found) == {
        "spec_store_bypass": "Vulnerable",
        "srbds": "Unknown: Dependent on hypervisor status",
    }


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-6:2", [0, 2, 4, 6]), ("1-5:4,7", [1, 5, 7]), ("0x8001", [0, 15]), ("", []), ("3", [3])],
)
def test_lscpu_lists(text: str, cpus: list[int]) -> None:
    assert lscpu.cpus(text) == cpus


def test_lscpu_refuses_what_is_no_list() -> None:
    with pytest.raises(ValueError, match="CPU list"):
        lscpu.cpus("none")
    assert lscpu.node_cpus({"NUMA node0 CPU(s)": "?", "NUMA nodeX CPU(s)": "0"}) == {}


# -- cyclictest and rtla ---------------------------------------------------------------------

THREADS = """\
# /dev/cpu_dma_latency set to 0us
policy: fifo: loadavg: 0.00 0.01 0.05 1/200 900

T: 0 (  801) P:95 I:1000 C:   1000 Min:      2 Act:    3 Avg:    4 Max:      90
T: 1 (  802) P:95 I:1500 C:    667 Min:      1 Act:    2 Avg:    2 Max:       7
\x1b[2AT: 0 (  801) P:95 I:1000 C:   2000 Min:      2 Act:    3 Avg:    5 Max:      91
"""

HISTOGRAM = """\
# Histogram
000001 000010 000000
# Total: 000010 000010
# Min Latencies: 00001 00002
# Avg Latencies: 00002 00003
# Max Latencies: 00016 00250
"""


def test_cyclictest_threads() -> None:
    # of a thread that is printed again and again (the cursor goes up each time) the last line counts
    assert cyclictest.parse_cyclictest(THREADS) == [(0, "", 5.0, 91.0), (1, "", 2.0, 7.0)]


def test_cyclictest_histogram() -> None:
    assert cyclictest.parse_cyclictest(HISTOGRAM) == [(0, "", 2.0, 16.0), (1, "", 3.0, 250.0)]


TIMERLAT = """\
                                     Timer Latency
  0 00:01:00   |  IRQ Timer Latency (us)  | Thread Timer Latency (us) | User Timer Latency (us)
CPU COUNT      |  cur   min   avg     max |  cur   min   avg      max |  cur  min  avg  max
  0 #60000     |    1     0     1       9 |    5     2     6      120 |    7    3    8  130
 13 #60000     |    1     0     1       3 |    5     2     6       12 |    7    3    8   14
---------------|--------------------------|---------------------------|--------------------
ALL #120000    |          0     1       9 |          2     6      120 |         3    8  130
"""

TIMERLAT_HIST = """\
# RTLA timerlat histogram
# Time unit is microseconds (us)
# Duration:   0 00:00:10
Index   IRQ-000   Thr-000   IRQ-001   Thr-001
0          9000         0      9000         0
over:         0         0         0         0
count:    10000     10000     10000     10000
min:          0         2         0         2
avg:          0         4         0         5
max:         17        33         8       700
"""

OSNOISE = """\
                                          Operating System Noise
duration:   0 00:00:10 | time is in us
CPU Period       Runtime        Noise  % CPU Aval   Max Noise   Max Single          HW          NMI
  0 #10         10000000         1234    99.98766         250          180           0            0
  1 #10         10000000           10    99.99990           3            2           0            0
"""


def test_rtla_timerlat_top() -> None:
    tool, lines = cyclictest.parse_rtla(TIMERLAT)
    assert tool == "timerlat"
    assert {(line.number, line.kind): line.max_us for line in lines} == {
        (0, "irq"): 9.0, (0, "thread"): 120.0, (0, "user"): 130.0,
        (13, "irq"): 3.0, (13, "thread"): 12.0, (13, "user"): 14.0,
    }  # fmt: skip
    assert next(line.average_us for line in lines if line.kind == "thread") == 6.0


def test_rtla_timerlat_hist() -> None:
    tool, lines = cyclictest.parse_rtla(TIMERLAT_HIST)
    assert tool == "timerlat"
    assert [(n.number, n.kind, n.average_us, n.max_us) for n in lines] == [
        (0, "irq", 0.0, 17.0), (0, "thread", 4.0, 33.0), (1, "irq", 0.0, 8.0), (1, "thread", 5.0, 700.0),
    ]  # fmt: skip


def test_rtla_osnoise() -> None:
    tool, lines = cyclictest.parse_rtla(OSNOISE)
    assert tool == "osnoise"
    assert [(n.number, n.kind, n.max_us) for n in lines] == [
        (0, "total", 250.0), (0, "single", 180.0), (1, "total", 3.0), (1, "single", 2.0),
    ]  # fmt: skip


@given(st.text())
def test_any_text_is_borne(text: str) -> None:
    cyclictest.parse_cyclictest(text)
    assert cyclictest.parse_rtla(text)[0] in ("", "timerlat", "osnoise")
    lscpu.vulnerabilities(lscpu.fields(text))
    throttle_log.throttle(text)
    throttle_log.note(text)
    try:
        info = proc_cpuinfo.parse(text)
    except ValueError:
        return
    assert info.cpus == sorted(set(info.cpus))


# -- /proc/cpuinfo ---------------------------------------------------------------------------


def x86(cpu: int, package: int, core: int, siblings: int = 4, cores: int = 2) -> str:
    return (
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
        f"model name\t: Some  CPU @ 2.10GHz\nmicrocode\t: 0x5\ncpu MHz\t\t: {2000 + cpu}.5\n"
        f"physical id\t: {package}\nsiblings\t: {siblings}\ncore id\t\t: {core}\ncpu cores\t: {cores}\n"
        "flags\t\t: fpu lm aperfmperf\npower management:\n\n"
    )


def test_cpuinfo_x86() -> None:
    # two cores of two threads each: 0 and 2 are siblings, 1 and 3
    info = proc_cpuinfo.parse("".join(x86(cpu, 0, cpu % 2) for cpu in range(4)))
    assert info.cpus == [0, 1, 2, 3]
    assert (info.model_name, info.vendor, info.architecture) == (
        "Some CPU @ 2.10GHz",
        "GenuineIntel",
        "x86_64",
    )
    assert info.flags == ["fpu", "lm", "aperfmperf"]
    assert info.siblings == [[0, 2], [1, 3]]
    assert info.mhz == {0: 2000.5, 1: 2001.5, 2: 2002.5, 3: 2003.5}
    assert info.microcodes == ["0x5"]


def test_cpuinfo_claims_no_siblings_where_core_numbers_repeat() -> None:
    # package 0 has two dies, each of which counts its cores from 0: four CPUs with core id 0,
    # though "siblings" over "cpu cores" says one thread a core
    info = proc_cpuinfo.parse("".join(x86(cpu, 0, cpu % 2, siblings=4, cores=4) for cpu in range(4)))
    assert info.siblings is None


@pytest.mark.parametrize(
    ("text", "model", "vendor", "architecture", "cpus"),
    [
        (
            "processor\t: 3\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
            "CPU part\t: 0xd0c\n\n",
            "Neoverse-N1", "ARM", "aarch64", [3],
        ),
        (
            "Processor\t: ARMv7 rev 4\nprocessor\t: 0\n\nprocessor\t: 1\n\nFeatures\t: swp\n"
            "CPU implementer : 0x41\nCPU architecture: 7\nCPU part\t: 0xc0f\n",
            "Cortex-A15", "ARM", "armv7l", [0, 1],
        ),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec\nrevision\t: 2.1\n", "POWER9, altivec", None, None, [0]),
        (
            "vendor_id       : IBM/S390\n# processors    : 2\nfeatures\t: esan3 zarch\n"
            "processor 0: version = FF,  identification = 1,  machine = 2964\n"
            "processor 1: version = FF,  identification = 2,  machine = 2964\n",
            "machine type 2964", "IBM/S390", "s390x", [0, 1],
        ),
        ("processor\t: 0\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74\n", "sifive,u74", None, "riscv64", [0]),
        (
            "system type\t: x\n\nprocessor\t\t: 0\nModel Name\t\t: Loongson-3A5000\n"
            "ISA\t\t: loongarch32 loongarch64\n",
            "Loongson-3A5000", None, "loongarch64", [0],
        ),
        ("processor  : 1\nvendor     : GenuineIntel\narch       : IA-64\nfamily     : Itanium 2\n",
         "Itanium 2", "GenuineIntel", "ia64", [1]),
        ("cpu\t\t: UltraSparc II\ntype\t\t: sun4u\nState:\nCPU6:\t\tonline\nCPU14:\t\tonline\n",
         "UltraSparc II", None, "sparc64", [6, 14]),
    ],
)  # fmt: skip
def test_cpuinfo_of_other_architectures(
    text: str, model: str, vendor: str | None, architecture: str | None, cpus: list[int]
) -> None:
    info = proc_cpuinfo.parse(text)
    assert (info.model_name, info.vendor, info.architecture, info.cpus) == (model, vendor, architecture, cpus)


def test_cpuinfo_of_two_kinds_names_both() -> None:
    core = "processor\t: {}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {}\n\n"
    info = proc_cpuinfo.parse(core.format(0, "0xd05") + core.format(1, "0xd0b"))
    assert info.model_name == "Cortex-A55 + Cortex-A76"


def test_cpuinfo_refuses_what_is_none() -> None:
    with pytest.raises(ValueError, match="cpuinfo"):
        proc_cpuinfo.parse("nothing here\n")


# -- the kernel's log ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 7)",
            (3, False, 7),
        ),
        (
            "CPU12: Package temperature above threshold, cpu clock throttled (total events = 91)",
            (12, True, 91),
        ),
        (
            "CPU1: Core temperature is above threshold, cpu clock is throttled (total events = 2)",
            (1, False, 2),
        ),
        ("CPU0: Temperature above threshold, cpu clock throttled", (0, False, 1)),
    ],
)
def test_throttle_lines(line: str, event: tuple[int, bool, int]) -> None:
    assert throttle_log.throttle(line) == event


@pytest.mark.parametrize(
    "line", ["CPU3: Core temperature/speed normal", "nvidia: GPU clocks throttled", "net: tx queue throttled"]
)
def test_lines_that_tell_of_no_throttling(line: str) -> None:
    assert throttle_log.throttle(line) is None
    assert throttle_log.note(line) is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("CPU4: Package power limit notification (total events = 12)", "power-limit"),
        ("powernv-cpufreq: OCC: Chip 0 Pmax reduced due to Power Cap", "firmware"),
        ("CPU 8 on Chip 0 has Pmax reduced below nominal frequency (-5 < 0)", "firmware"),
        ("platform: PROCHOT# asserted by VRM", "prochot"),
        ("coretemp: PROCHOT offset 10", None),
    ],
)
def test_clock_notes(line: str, kind: str | None) -> None:
    assert throttle_log.note(line) == kind
