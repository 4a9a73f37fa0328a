"""The guest's side: runs what the tests ask for, over a virtio-serial port.

One JSON object a line each way. A request: ``{"id", "op": "run"|"put"|"get", ...}``, its answer: ``{"id",
...}`` or ``{"id", "error"}``. The first line after a start is ``{"hello": boot id}``. Bytes are base64.
Only what Debian's python3 brings.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time

PORT = "/dev/virtio-ports/hwtune.agent"


def run(argv, timeout, stdin="", user="root", env=None, cwd="/"):
    """Run a command. status -1: it ran past its time (in seconds) and was killed with its children.

    It is over when the command itself is: what it left running may still hold its output open.
    """
    person = pwd.getpwnam(user)
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": person.pw_dir,
        "USER": user,
        "LANG": "C.UTF-8",
        **(env or {}),
    }
    who = {} if user == "root" else {"user": person.pw_uid, "group": person.pw_gid, "extra_groups": []}
    with unnamed() as given, unnamed() as out, unnamed() as err:
        given.write(base64.b64decode(stdin))
        given.seek(0)
        process = subprocess.Popen(
            argv,
            stdin=given,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=cwd,
            start_new_session=True,
            **who,
        )
        try:
            status = process.wait(timeout)
            status = status if status >= 0 else 128 - status
        except subprocess.TimeoutExpired:
            status = -1
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return {"status": status, "stdout": text(whole(out)), "stderr": text(whole(err))}


def unnamed():
    """A file in memory, without a name."""
    return tempfile.TemporaryFile(dir="/run")


def whole(file):
    file.seek(0)
    return file.read()


def put(path, data, mode, append):
    with open(path, "ab" if append else "wb") as file:
        file.write(base64.b64decode(data))
    os.chmod(path, mode)
    return {}


def get(path, offset, size):
    """Part of a file; ``end`` when nothing follows it."""
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(size)
        return {"data": text(data), "end": not file.read(1)}


def text(data):
    return base64.b64encode(data).decode()


OPERATIONS = {"run": run, "put": put, "get": get}


def answer(line):
    request = json.loads(line)
    number = request.pop("id")
    try:
        return {"id": number, **OPERATIONS[request.pop("op")](**request)}
    except (OSError, KeyError, TypeError, ValueError) as error:
        return {"id": number, "error": f"{type(error).__name__}: {error}"}


def send(port, message):
    data = memoryview(json.dumps(message).encode() + b"\n")
    while data:
        data = data[os.write(port, data) :]


def main():
    for _ in range(600):
        if os.path.exists(PORT):
            break
        time.sleep(0.1)
    port = os.open(PORT, os.O_RDWR)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        send(port, {"hello": file.read().strip()})
    pending = b""
    while True:
        data = os.read(port, 1 << 20)
        if not data:  # the tests' end is not connected
            time.sleep(0.1)
            continue
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            send(port, answer(line))


if __name__ == "__main__":
    sys.exit(main())
