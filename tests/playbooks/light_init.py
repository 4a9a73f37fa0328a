"""Process 1 of a light host: makes the host's world around itself, then runs sshd until it is told to stop.

    light_init.py HOST.json        (in fresh mount, PID, network, UTS and IPC namespaces, as root)

The world is a folder of this machine's (HOST.json: ``root``), with this machine's /usr below an overlay (and
/opt above one that several hosts may share).
The kernel is this machine's own, so what the host may change of it is not the kernel's: over each attribute
that is named in ``kernel`` lies a plain file of the host's, which a boot sets to what ``kernel`` says. All of
/sys, /proc/sys and /proc/irq besides is read only, and what could reach the machine otherwise (modules, time,
reboot(2), mounts) is taken from every process that the host starts.

Only the standard library, and this machine's own Python.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid

# mount(2), linux/prctl.h, linux/capability.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PR_CAPBSET_DROP = 24
# SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_BOOT, SYS_TIME, MKNOD, AUDIT_CONTROL, MAC_OVERRIDE,
# MAC_ADMIN, SYSLOG, WAKE_ALARM, PERFMON, BPF, CHECKPOINT_RESTORE
DROPPED = (16, 17, 19, 21, 22, 25, 27, 30, 32, 33, 34, 35, 38, 39, 40)
REBOOT = 88  # the exit status that asks for another boot
BOOT_ID = "/proc/sys/kernel/random/boot_id"
NODES = ("null", "zero", "full", "random", "urandom", "tty")
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    with open(sys.argv[1]) as file:
        host = json.load(file)
    socket.sethostname(host["name"])
    make_world(host)
    settle_attributes(host)
    wait_for_network(host["address"])
    for capability in DROPPED:
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.makedirs("/run/sshd", 0o755)
    os.makedirs("/run/systemd", 0o755)
    with open("/run/systemd/container", "w") as file:
        file.write("none\n")  # it plays a machine, and hwtune leaves a container's kernel to its host
    sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    wait_for_door()
    print("up", flush=True)
    while sshd.poll() is None:
        if os.path.exists("/run/reboot"):
            # connections are closed in good order, as by any shutdown: nobody waits for a peer that is gone
            os.kill(-1, signal.SIGTERM)
            time.sleep(0.3)
            return REBOOT  # the kernel ends all that are left with process 1
        reap(sshd.pid)
        time.sleep(0.05)
    return 1


def reap(but: int) -> None:
    """Orphans become children of process 1."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == but:
            return
        os.waitpid(found.si_pid, 0)


# -- the world -----------------------------------------------------------------------------------


def make_world(host: dict) -> None:
    root = host["root"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount(root, root, None, MS_BIND)
    for path, below in host["overlays"].items():
        own = f"{host['uppers']}/{path}"
        mount(
            "overlay",
            f"{root}/{path}",
            "overlay",
            0,
            f"lowerdir={below},upperdir={own}/upper,workdir={own}/work",
        )
    for path in host["hidden"]:
        if os.path.isdir(root + path):
            mount("none", root + path, "tmpfs", MS_RDONLY)
    for path, mode in (("run", "755"), ("tmp", "1777")):
        mount("none", f"{root}/{path}", "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")
    make_devices(f"{root}/dev")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", f"{root}/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    for path in ("sys", "irq", "sysrq-trigger"):
        if os.path.exists(f"{root}/proc/{path}"):
            read_only(f"{root}/proc/{path}")
    for path, content in [*host["kernel"].items(), (BOOT_ID, f"{uuid.uuid4()}\n")]:
        own = f"{root}/.kernel/{path.strip('/').replace('/', '+')}"
        with open(own, "w") as file:
            file.write(content)
        mount(own, root + path, None, MS_BIND)
        if path in host["refused"]:
            mount("none", root + path, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    if host["boot_menu"]:
        with open(f"{root}/boot/grub/grub.cfg") as menu, open(f"{root}/.kernel/cmdline", "w") as file:
            (line,) = (line for line in menu if line.lstrip().startswith("linux "))
            file.write("BOOT_IMAGE=" + line.split(maxsplit=1)[1])
        mount(f"{root}/.kernel/cmdline", f"{root}/proc/cmdline", None, MS_BIND)
    os.chdir(root)
    os.makedirs(".old", exist_ok=True)
    subprocess.run(["/usr/sbin/pivot_root", ".", ".old"], check=True)
    os.chdir("/")
    if LIBC.umount2(b"/.old", MNT_DETACH):
        raise OSError(ctypes.get_errno(), "umount")
    os.rmdir("/.old")


def make_devices(dev: str) -> None:
    mount("none", dev, "tmpfs", MS_NOSUID, "mode=755")
    for name in NODES:
        open(f"{dev}/{name}", "w").close()
        mount(f"/dev/{name}", f"{dev}/{name}", None, MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}")
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")
    mount("none", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name, leads_to in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ):
        os.symlink(leads_to, f"{dev}/{name}")


def settle_attributes(host: dict) -> None:
    """What systemd does at boot with what is kept for it."""
    if host["boots"] == 0:
        return
    subprocess.run(
        ["/usr/sbin/sysctl", "--system"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )


def read_only(path: str) -> None:
    mount(path, path, None, MS_BIND)
    mount("none", path, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind and kind.encode(), flags, options.encode())
    if LIBC.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[4]):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def wait_for_door() -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", 22), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def wait_for_network(address: str) -> None:
    """The other end of the cable is plugged in from outside."""
    deadline = time.monotonic() + 20
    while not os.path.exists("/sys/class/net/eth0"):
        if time.monotonic() > deadline:
            raise TimeoutError("nobody plugged eth0 in")
        time.sleep(0.02)
    for command in ("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *command.split()], check=True)


if __name__ == "__main__":
    sys.exit(main())
