"""The sysctls of which rows ask the live value, whether or not a file sets them."""

from __future__ import annotations

KEYS: tuple[str, ...] = (
    "kernel.nmi_watchdog",
    "kernel.watchdog",
    "kernel.soft_watchdog",
    "kernel.watchdog_cpumask",
    "kernel.numa_balancing",
    "kernel.sched_rt_runtime_us",
    "kernel.sched_rt_period_us",
    "kernel.timer_migration",
    "kernel.hung_task_timeout_secs",
    "kernel.sched_energy_aware",
    "kernel.perf_cpu_time_max_percent",
    "vm.stat_interval",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
    "vm.dirty_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_background_bytes",
    "vm.compaction_proactiveness",
    "vm.compact_unevictable_allowed",
    "vm.numa_stat",
    "kernel.printk",
    "net.core.busy_read",
    "net.core.busy_poll",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
)
