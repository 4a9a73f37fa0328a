"""A machine to try things in: ``python -m tests.machine`` runs each line that it reads as a command in it.

Lines that begin with "!" are for the machine itself: !reboot, !reset, !get PATH (to the folder that is
printed), !reinstall (hwtune as the checkout is now). Nothing is kept when it ends.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.machine.image import image
from tests.machine.install import ENVIRONMENT, install, pack
from tests.machine.machine import Machine, MachineError


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="hwtune-machine-"))
    try:
        with Machine(folder, image().disk, share=pack(folder / "share")) as machine:
            machine.start()
            install(machine)
            print(f"ready; {folder}", flush=True)
            for line in sys.stdin:
                if line.strip():
                    _serve(machine, line.strip())
    finally:
        shutil.rmtree(folder)


def _serve(machine: Machine, line: str) -> None:
    begun = time.monotonic()
    try:
        _obey(machine, line)
    except MachineError as error:
        print(error)
    print(f"[{time.monotonic() - begun:.1f} s]", flush=True)


def _obey(machine: Machine, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "!reboot":
        machine.reboot()
    elif word == "!reset":
        machine.reset()
    elif word == "!get":
        (machine.folder / Path(rest).name).write_bytes(machine.get(rest))
    elif word == "!reinstall":
        pack(machine.folder / "share")
        machine.check(f"rm -rf {ENVIRONMENT}")
        install(machine)
    else:
        result = machine.run(line, 600)
        print(f"{result.stdout}{result.stderr}status {result.status}")


if __name__ == "__main__":
    main()
