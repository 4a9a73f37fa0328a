"""The stores, one module each."""

from hwtune.changes.persist import grub_d, sysctl_d

STORES = (sysctl_d.STORE, grub_d.STORE)
