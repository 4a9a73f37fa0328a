"""kill_apply.py LINES COMMAND...: start a command, and kill it once hwtune's journal has so many lines.

By SIGKILL. Prints how many lines the journal has then.
"""

from __future__ import annotations

import subprocess
import sys
import time

JOURNAL = "/var/lib/hwtune/journal"


def lines():
    try:
        with open(JOURNAL, "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


def main():
    wanted = int(sys.argv[1])
    process = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and lines() < wanted:
        time.sleep(0.001)
    process.kill()
    status = process.wait()
    print(lines())
    return 0 if status == -9 else 1


if __name__ == "__main__":
    sys.exit(main())
