"""A machine in QEMU: started, talked to through the agent in its image, rebooted, and always killed at last.

Emulated (TCG) unless ``HWTUNE_MACHINE_KVM=1``. Time inside means nothing; states, files and orders of events
do.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.machine import hardware

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

# Seconds. A boot takes 60 to 90 with two cores to itself, and several times that on a busy machine.
BOOT_LIMIT = 600
COMMAND_LIMIT = 120
CHUNK = 256 * 1024


class MachineError(Exception):
    """The machine didn't do what it had to; the message ends with what its console said last."""


class Result(NamedTuple):
    status: int
    """Exit status; 128 + signal; -1 where it ran past its time."""
    stdout: str
    stderr: str


class Channel:
    """Lines of JSON over one end of a socket pair whose other end QEMU has."""

    def __init__(self, here: socket.socket) -> None:
        self._here = here
        self._pending = b""

    def send(self, message: Mapping[str, Any], deadline: float) -> None:
        self._here.settimeout(max(0.01, deadline - time.monotonic()))
        self._here.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next object. Raises TimeoutError, and ConnectionError when QEMU is gone."""
        while b"\n" not in self._pending:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._here.settimeout(remaining)
            data = self._here.recv(1 << 20)
            if not data:
                raise ConnectionError("QEMU closed the channel")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self._here.close()


class Machine:
    """One machine with its own disks in ``folder``; they outlive a stop, so that it can be started again.

    ``folder`` gets ``root.qcow2`` (what differs from ``base``, the image), the NVMe drives' files, and
    ``console.log``, which goes on over restarts.
    """

    def __init__(
        self,
        folder: Path,
        base: Path,
        *,
        share: Path | None = None,
        kernel: hardware.Kernel | None = None,
        base_is_mine: bool = False,
        ssh_port: int = 0,
    ) -> None:
        """``share``: a folder that the guest can mount read only (9p, tag "share"). ``ssh_port``: as in
        ``hardware.command``.
        ``kernel``: start this one directly, past the boot loader. ``base_is_mine``: write to ``base`` itself.
        """
        self.folder = folder
        self.console = folder / "console.log"
        self.boot_id = ""
        self._share = share
        self._kernel = kernel
        self._ssh_port = ssh_port
        self._qemu: subprocess.Popen[bytes] | None = None
        self._agent: Channel | None = None
        self._monitor: Channel | None = None
        self._number = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._disk = hardware.Disk(base, "raw")
        if not base_is_mine:
            self._disk = hardware.Disk(folder / "root.qcow2", "qcow2")
            _overlay(self._disk.path, base)
        hardware.make_drives(folder)

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    # -- power

    def start(self, timeout: float = BOOT_LIMIT) -> None:
        """Switch on, and wait until systemd has started everything."""
        if self._qemu is not None:
            raise MachineError("it is running already")
        ours, theirs = zip(socket.socketpair(), socket.socketpair(), strict=True)
        self._agent, self._monitor = (Channel(end) for end in ours)
        command = hardware.command(
            self.folder,
            self._disk,
            [end.fileno() for end in theirs],
            share=self._share,
            kernel=self._kernel,
            ssh_port=self._ssh_port,
        )
        # The kernel kills QEMU when this process dies, however it dies.
        with (self.folder / "qemu.log").open("ab") as log:
            log.write(f"{shlex.join(command)}\n".encode())
            log.flush()
            self._qemu = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[end.fileno() for end in theirs],
                start_new_session=True,
            )
        for end in theirs:
            end.close()
        deadline = time.monotonic() + timeout
        try:
            self._greet_monitor(deadline)
            self._wait_for_agent(deadline)
        except BaseException:
            self.kill()
            raise

    def reboot(self, timeout: float = BOOT_LIMIT) -> None:
        """Restart in good order, through the machine's own boot loader; wait until it is up.

        QEMU ends and is started anew: emulation keeps what it made of every page that ever held code, and
        a second boot would write to all of them, byte by byte, seconds a page.
        """
        deadline = time.monotonic() + timeout
        self._leave("reboot", timeout)
        self.start(max(1, deadline - time.monotonic()))

    def follow_reboot(self, timeout: float = BOOT_LIMIT) -> None:
        """Wait for someone else to reboot it, and start it again as ``reboot`` does."""
        deadline = time.monotonic() + timeout
        try:
            self._running().wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._error("nobody rebooted it") from None
        self.kill()
        self.start(max(1, deadline - time.monotonic()))

    def reset(self, timeout: float = BOOT_LIMIT) -> None:
        """Press the reset button: nothing is written back, nothing is shut down; wait until it is up."""
        self.kill()
        self.start(timeout)

    def power_off(self, timeout: float = 180) -> None:
        """Shut down in good order."""
        self._leave("poweroff", timeout)

    def kill(self) -> None:
        """Pull the plug."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
        for channel in (self._agent, self._monitor):
            if channel is not None:
                channel.close()
        self._qemu = self._agent = self._monitor = None

    # -- work

    def run(
        self,
        command: str | Sequence[str],
        timeout: float = COMMAND_LIMIT,
        *,
        user: str = "root",
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a command (a string goes to sh) and wait for it; it is killed after ``timeout`` seconds."""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        said = self._ask(
            {
                "op": "run",
                "argv": argv,
                "timeout": timeout,
                "user": user,
                "stdin": base64.b64encode(stdin).decode(),
                "env": dict(env or {}),
            },
            timeout + 60,
        )
        out, err = (base64.b64decode(said[key]).decode(errors="replace") for key in ("stdout", "stderr"))
        return Result(said["status"], out, err)

    def check(self, command: str | Sequence[str], timeout: float = COMMAND_LIMIT, **options: Any) -> str:
        """What a command that has to succeed printed."""
        result = self.run(command, timeout, **options)
        if result.status:
            raise MachineError(
                f"{command!r}: status {result.status}\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
            )
        return result.stdout

    def put(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file in the machine."""
        content = data.encode() if isinstance(data, str) else data
        for offset in range(0, max(len(content), 1), CHUNK):
            part = base64.b64encode(content[offset : offset + CHUNK]).decode()
            self._ask({"op": "put", "path": path, "data": part, "mode": mode, "append": offset > 0}, 60)

    def get(self, path: str) -> bytes:
        """A file of the machine."""
        parts: list[bytes] = []
        end = False
        while not end:
            offset = sum(map(len, parts))
            said = self._ask({"op": "get", "path": path, "offset": offset, "size": CHUNK}, 60)
            parts.append(base64.b64decode(said["data"]))
            end = said["end"]
        return b"".join(parts)

    def monitor(self, command: str, **arguments: Any) -> Any:
        """One command of QEMU's monitor protocol (QMP): unplug a device, slow a drive."""
        deadline = time.monotonic() + 30
        channel = self._open(self._monitor)
        channel.send({"execute": command, "arguments": arguments}, deadline)
        while True:
            said = channel.receive(deadline)
            if "return" in said:
                return said["return"]
            if "error" in said:
                raise MachineError(f"QEMU refused {command}: {said['error']}")

    # -- inside

    def _leave(self, how: str, timeout: float) -> None:
        qemu = self._running()
        self._send({"op": "run", "argv": ["systemctl", how], "timeout": 60}, 60)
        try:
            qemu.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._error(f"it did not {how}") from None
        finally:
            self.kill()

    def _greet_monitor(self, deadline: float) -> None:
        try:
            self._open(self._monitor).receive(deadline)
            self.monitor("qmp_capabilities")
        except (OSError, TimeoutError):
            raise self._error("QEMU did not start") from None

    def _wait_for_agent(self, deadline: float) -> None:
        before = self.boot_id
        while self.boot_id == before:
            said = self._receive(deadline, "it did not come up")
            self.boot_id = said.get("hello", self.boot_id)
        remaining = max(1, deadline - time.monotonic())
        state = self.run(["systemctl", "is-system-running", "--wait"], remaining).stdout.strip()
        if state not in ("running", "degraded"):
            raise self._error(f"systemd is {state or 'not done'}")

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        number = self._send(request, timeout)
        deadline = time.monotonic() + timeout
        while True:
            said = self._receive(deadline, f"no answer to {request['op']} {request.get('argv', '')}")
            if said.get("id") == number:
                break
        if "error" in said:
            raise MachineError(f"{request['op']}: {said['error']}")
        return said

    def _send(self, request: dict[str, Any], timeout: float) -> int:
        self._number += 1
        try:
            self._open(self._agent).send(request | {"id": self._number}, time.monotonic() + timeout)
        except (OSError, TimeoutError) as error:
            raise self._error(f"the agent takes no request: {error}") from None
        return self._number

    def _receive(self, deadline: float, what: str) -> dict[str, Any]:
        try:
            return self._open(self._agent).receive(deadline)
        except (OSError, TimeoutError) as error:
            raise self._error(f"{what}: {type(error).__name__}") from None

    def _open(self, channel: Channel | None) -> Channel:
        if channel is None:
            raise MachineError("the machine is off")
        return channel

    def _running(self) -> subprocess.Popen[bytes]:
        if self._qemu is None:
            raise MachineError("the machine is off")
        return self._qemu

    def _error(self, what: str) -> MachineError:
        tails = []
        for log in (self.folder / "qemu.log", self.console):
            with contextlib.suppress(FileNotFoundError):
                lines = log.read_text(errors="replace").splitlines()[-25:]
                tails.append(f"--- {log}\n" + "\n".join(lines))
        return MachineError("\n".join([what, *tails]))


def available() -> str:
    """Why no machine can be started here; empty when one can."""
    lacking = [tool for tool in ("qemu-system-x86_64", "qemu-img", "setpriv") if not shutil.which(tool)]
    return f"no {', '.join(lacking)} here" if lacking else ""


def _overlay(path: Path, base: Path) -> None:
    if path.exists():
        return
    subprocess.run(
        [
            "qemu-img",
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "-b",
            os.fspath(base.resolve()),
            os.fspath(path),
        ],
        check=True,
        timeout=60,
    )
