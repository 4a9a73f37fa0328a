"""What the kernel's log says of PCI functions, in the words of several kernels."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.model.kernel import LogLine
from hwtune.probes._pci_log import read


def _lines(text: str) -> list[LogLine]:
    return [
        LogLine(text=line, source="dmesg.txt", seconds=float(n))
        for n, line in enumerate(text.strip("\n").splitlines())
    ]


def test_corrected_errors_of_a_new_kernel() -> None:
    events, _ = read(
        _lines("""
pcieport 0000:00:1c.0: AER: Correctable error message received from 0000:03:00.0
nvme 0000:03:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)
nvme 0000:03:00.0:   device [144d:a808] error status/mask=00001040/0000e000
nvme 0000:03:00.0:    [ 6] BadTLP
nvme 0000:03:00.0:    [12] Timeout
""")
    )
    (event,) = events
    assert (event.kind, event.address, event.detail) == ("aer-correctable", "0000:03:00.0", "BadTLP, Timeout")
    assert (event.driver, event.ids, event.partner) == ("nvme", "144d:a808", "0000:00:1c.0")


def test_corrected_errors_of_an_old_kernel() -> None:
    line = (
        "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)"
    )
    events, _ = read(
        _lines(f"""
pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5
{line}
pcieport 0000:00:1c.5:   device [8086:9d15] error status/mask=00000001/00002000
pcieport 0000:00:1c.5:    [ 0] Receiver Error         (First)
{line}
pcieport 0000:00:1c.5:   device [8086:9d15] error status/mask=00000001/00002000
""")
    )
    (event,) = events
    assert (event.detail, event.count) == ("RxErr", 2)
    assert (event.first_s, event.last_s) == (1.0, 4.0)


def test_masked_bits_are_no_errors() -> None:
    events, _ = read(
        _lines("""
pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
pcieport 0000:00:01.0:   device [8086:1901] error status/mask=00104000/00100000
""")
    )
    assert [(e.kind, e.detail) for e in events] == [("aer-fatal", "CmpltTO")]


def test_firmware_that_passes_errors_on() -> None:
    events, _ = read(
        _lines("""
{7}[Hardware Error]: event severity: corrected
{7}[Hardware Error]:   section_type: PCIe error
{7}[Hardware Error]:   device_id: 0000:5e:00.0
{7}[Hardware Error]:   slot: 9
{8}[Hardware Error]: event severity: fatal
{8}[Hardware Error]:   section_type: memory error
{8}[Hardware Error]:   device_id: 0000:00:00.0
""")
    )
    (event,) = events
    assert (event.kind, event.address) == ("aer-correctable", "0000:5e:00.0")
    assert "slot: 9" in event.line


def test_links_power_and_lost_devices() -> None:
    events, _ = read(
        _lines("""
pcieport 0000:40:01.1: pciehp: Slot(3-1): Link Down
pci 0000:02:00.0: broken device, retraining non-functional downstream link at 2.5GT/s
nvme 0000:05:00.0: Unable to change power state from D3cold to D0, device inaccessible
mlx5_core 0000:81:00.0: mlx5_pcie_event:301:(pid 12): Detected insufficient power on the PCIe slot (27W).
NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.
""")
    )
    assert [(e.kind, e.address) for e in events] == [
        ("link-down", "0000:40:01.1"),
        ("retrained", "0000:02:00.0"),
        ("inaccessible", "0000:05:00.0"),
        ("slot-power", "0000:81:00.0"),
        ("off-the-bus", "0000:3b:00.0"),
    ]


def test_bandwidth_limits_of_any_kernel() -> None:
    available = "Gb/s available PCIe bandwidth"
    _, limits = read(
        _lines(
            f"mlx5_core 0000:31:00.0: 63.008 {available} (8.0 GT/s PCIe x8 link)\n"
            f"ixgbe 0000:01:00.0: 16.000 {available}, limited by 5 GT/s x4 link at 0000:00:02.0 "
            "(capable of 32.000 Gb/s with 5 GT/s x8 link)\n"
            f"pci 0000:05:00.0: 8.000 {available}, limited by Unknown x4 link at 0000:00:03.0 "
            "(capable of 63.012 Gb/s with 16.0 GT/s PCIe x4 link)"
        )
    )
    assert [(x.address, x.driver, x.limit_gts, x.limit_width, x.capable_gbps) for x in limits] == [
        ("0000:01:00.0", "ixgbe", 5.0, 4, 32.0),
        ("0000:05:00.0", "pci", None, 4, 63.012),
    ]


def test_harmless_lines_are_passed_over() -> None:
    assert read(
        _lines("""
pci 0000:00:1c.0: PCI bridge to [bus 01]
pcieport 0000:00:1c.0: AER: enabled with IRQ 122
pcieport 0000:00:1c.0: pciehp: Slot #1 AttnBtn- PwrCtrl-
nvme nvme0: 8/0/0 default/read/poll queues
[drm] [ 5] something in brackets
""")
    ) == ([], [])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=120), max_size=20))
def test_any_log_is_read(texts: list[str]) -> None:
    words = [
        "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=",
        "{1}[Hardware Error]: ",
        "NVRM: ",
    ]
    read([LogLine(text=words[n % 3] + text, source="x") for n, text in enumerate(texts)])


def test_a_storm_of_errors_takes_time_in_line_with_its_length() -> None:
    line = "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
    status = "pcieport 0000:00:1c.5:   device [8086:9d15] error status/mask=00000001/00002000"
    events, _ = read(_lines("\n".join([line, status] * 20_000)))
    assert [(e.count, e.detail) for e in events] == [(20_000, "RxErr")]
