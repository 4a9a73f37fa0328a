"""The stores, one module each."""

from hwtune.changes.persist import sysctl_d

STORES = (sysctl_d.STORE,)
