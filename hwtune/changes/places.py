"""Places of hwtune's own that rows know of, so that what it did on purpose is no finding."""

from __future__ import annotations

# 99-hwtune.conf would come before 99-sysctl.conf, Debian's link to /etc/sysctl.conf
SYSCTL = "/etc/sysctl.d/99-zz-hwtune.conf"
