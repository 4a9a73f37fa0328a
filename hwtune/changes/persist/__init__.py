"""The stores, one module each."""

from hwtune.changes.persist import (
    boot_unit,
    cpu_latency,
    grub_d,
    irqbalance,
    modprobe_d,
    sysctl_d,
    udev_rules,
)

STORES = (
    sysctl_d.STORE,
    udev_rules.STORE,
    modprobe_d.STORE,
    grub_d.STORE,
    irqbalance.STORE,
    cpu_latency.STORE,
    boot_unit.STORE,
)
