"""The one door to the machine: a live host, a snapshot, or a recorder around the live one."""
