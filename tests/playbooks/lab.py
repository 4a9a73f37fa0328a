"""Light hosts: real sshd, real Python, real hwtune, in namespaces of this machine, on a network of their own.

Nothing of this machine changes: the network is a namespace of the lab's (Ansible is run inside it too), and
of the kernel a host sees what ``light_init.py`` lays over it. All processes end with this one, however it
ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.playbooks.light_init import REBOOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
PROGRAMS = ("ssh", "ssh-keygen", "ip", "unshare", "nsenter", "setpriv", "pivot_root", "sysctl")
NETWORK = "192.0.2"  # TEST-NET-1, RFC 5737
UP_LIMIT = 30.0
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child")

# A box that nobody tuned; tuning it touches nothing but these.
SICK = {
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/vm/compact_unevictable_allowed": "1\n",
    "/proc/sys/vm/compaction_proactiveness": "20\n",
    "/proc/sys/vm/dirty_ratio": "20\n",
    "/proc/sys/vm/dirty_background_ratio": "10\n",
}
# One that has all that the profile low-latency asks of these.
SOUND = {
    "/proc/sys/vm/swappiness": "1\n",
    "/proc/sys/vm/compact_unevictable_allowed": "0\n",
    "/proc/sys/vm/compaction_proactiveness": "0\n",
    "/proc/sys/vm/dirty_ratio": "10\n",
    "/proc/sys/vm/dirty_background_ratio": "5\n",
}
# The rows that these attributes decide.
ROWS = ["memory.compact-unevictable", "memory.compaction", "memory.dirty-limits"]

SSHD = """\
HostKey /etc/ssh/host_key
AuthorizedKeysFile /root/.ssh/authorized_keys
PasswordAuthentication no
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Subsystem sftp internal-sftp
MaxStartups 50:30:100
"""
# Ansible's own, and what says which run had hwtune's lock last.
NO_STATE = ("/root/.ansible", "/var/lib/hwtune/lock")
FOLDERS = (
    "boot", "dev", "etc/ssh", "etc/sysctl.d", "home", "media", "mnt", "opt", "proc", "root/.ssh", "run",
    "srv", "sys", "tmp", "usr", "var/lib", "var/log", "var/tmp", ".kernel",
)  # fmt: skip
MENU = """\
set default="0"
menuentry 'Debian' --id 'd' {{
	linux /vmlinuz {}
}}
"""
# As Debian's does it: the defaults, then the drop-ins by name, and a menu of what they say.
GRUB = """\
#!/bin/sh
set -e
. /etc/default/grub
for x in /etc/default/grub.d/*.cfg ; do
    if [ -e "$x" ]; then . "$x"; fi
done
[ "$1" = -o ]
printf 'set default="0"\\nmenuentry '"'Debian' --id 'd'"' {\\n\\tlinux /vmlinuz %s\\n}\\n' \\
    "$GRUB_CMDLINE_LINUX_DEFAULT" >"$2"
"""
SHUTDOWN = "#!/bin/sh\n# A light host's: what runs as process 1 looks for this file.\ntouch /run/reboot\n"


def lacking() -> str:
    """Why there can be no lab here; "" when there can."""
    if os.geteuid() != 0:
        return "light hosts need root, as they mount"
    if sshd_tree() is None and not os.path.exists("/usr/sbin/sshd"):
        return "light hosts need sshd, which scripts/test-playbooks fetches"
    sbin = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=sbin)]
    if missing:
        return f"light hosts need {', '.join(missing)}"
    try:
        done = subprocess.run(
            [PYTHON, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"], check=False
        )
        if done.returncode:
            return f"light hosts need a {PYTHON} of 3.10 or newer with venv"
        probe = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, check=False, timeout=20)
    except OSError as error:
        return f"light hosts need {PYTHON}: {error.strerror}"
    if probe.returncode:
        return f"no namespaces here: {probe.stderr.decode(errors='replace').strip()}"
    return ""


def _state(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    return path.read_bytes().hex() if path.is_file() else "folder"


def sshd_tree() -> Path | None:
    """sshd as it comes out of Debian's package, where it is not installed here."""
    tree = HERE.parents[1] / "build" / "playbooks" / "sshd"
    return tree if (tree / "usr/sbin/sshd").exists() else None


class Lab:
    """The network and the keys. ``hosts`` are those that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, LightHost] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("user_key", "host_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(folder / name)]
            subprocess.run(command, check=True)
        self._network = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]
        )
        self._wait_for_network()
        self.ip("link", "set", "lo", "up")
        self.ip("link", "add", "switch", "type", "bridge")
        self.ip("addr", "add", f"{NETWORK}.254/24", "dev", "switch")
        self.ip("link", "set", "switch", "up")

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *nothing: object) -> None:
        for host in self.hosts.values():
            host.stop()
        self._network.kill()
        self._network.wait()

    def host(self, name: str, **options: Any) -> LightHost:
        """A new host, started."""
        assert name not in self.hosts
        host = LightHost(self, name, f"{NETWORK}.{len(self.hosts) + 1}", **options)
        self.hosts[name] = host
        host.start()
        return host

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command as it is run on the lab's network."""
        return ["nsenter", "-t", str(self._network.pid), "-n", *command]

    def ip(self, *arguments: str) -> None:
        subprocess.run(self.inside(["ip", *arguments]), check=True, capture_output=True, timeout=20)

    def _wait_for_network(self) -> None:
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{self._network.pid}/comm").read_text().strip()
                if command == "sleep" and os.readlink(f"/proc/{self._network.pid}/ns/net") != own:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError("the lab has no network")
            time.sleep(0.02)


class LightHost:
    """One host. ``root`` is its root folder, to look at from outside; ``boots`` counts its boots.

    ``kernel``: attribute -> what a boot sets it to. ``refused``: those of them that no write changes.
    ``hidden``: folders that are empty here. ``opt``: what /opt holds at first, which the host may change
    without changing it for others. ``arguments``: what its kernel is started with, by a GRUB of its own.
    ``release``: /etc/os-release.
    """

    def __init__(
        self,
        lab: Lab,
        name: str,
        address: str,
        *,
        kernel: Mapping[str, str],
        refused: Sequence[str] = (),
        hidden: Sequence[str] = (),
        opt: Path | None = None,
        arguments: str = "",
        release: str = "",
    ) -> None:
        self.name, self.address, self.port = name, address, 22
        self.folder = lab.folder / name
        self.root = self.folder / "root"
        self.boots = 0
        self.log = self.folder / "console.log"
        self._lab, self._kernel = lab, dict(kernel)
        self._opt, self._boot_menu = opt, bool(arguments)
        self._refused, self._hidden = list(refused), list(hidden)
        self._first = ""  # its process 1, as this machine numbers it
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._up = threading.Event()
        self._keeper: threading.Thread | None = None
        self._lay_out(release)
        if arguments:
            self._lay_out_grub(arguments)

    # -- power

    def start(self) -> None:
        self._wanted = True
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        if not self._up.wait(UP_LIMIT):
            tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
            self.stop()
            raise TimeoutError(f"{self.name} did not come up\n{tail}")

    def stop(self) -> None:
        """Pull the plug."""
        self._wanted = False
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
        if self._keeper is not None:
            self._keeper.join(20)

    def unplug(self) -> None:
        """Pull its cable: it runs on, and nobody reaches it."""
        self._lab.ip("link", "set", self._cable, "down")

    def plug(self) -> None:
        self._lab.ip("link", "set", self._cable, "up")

    # -- looking

    def read(self, path: str) -> str:
        """A file of the host's, or an attribute of its kernel."""
        return self._place(path).read_text()

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in self._place(folder).iterdir())

    def write(self, path: str, content: str, mode: int = 0o644) -> None:
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(mode)

    def link(self, path: str, leads_to: str) -> None:
        self._place(path).symlink_to(leads_to)

    def write_attribute(self, path: str, content: str) -> None:
        """As somebody else would, on the host."""
        with self._place(path).open("r+") as file:
            file.write(content)
            file.truncate()

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._place(path))

    def attributes(self) -> dict[str, str]:
        """What it may change of its kernel, as it stands."""
        return {path: self.read(path).strip() for path in self._kernel}

    def world(self) -> dict[str, str]:
        """Its configuration, its state and its kernel: all that hwtune may change. Of programs, that they are
        there."""
        found = dict(self.attributes())
        root = self._place("/")
        for folder in ("etc", "var/lib", "root", "boot"):
            for path in sorted((root / folder).rglob("*")):
                found["/" + str(path.relative_to(root))] = _state(path)
        for folder in ("opt", "opt/hwtune", "usr/local/bin", "usr/local/sbin", "usr/local/lib"):
            if (root / folder).is_dir():
                found |= {f"/{folder}/{path.name}": "there" for path in (root / folder).iterdir()}
        return {path: state for path, state in found.items() if not path.startswith(NO_STATE)}

    def _place(self, path: str) -> Path:
        """Where a path of its world is in this one: what lies over a folder is seen from inside only."""
        if path in self._kernel:
            return self.root / ".kernel" / path.strip("/").replace("/", "+")
        if self._first:
            return Path(f"/proc/{self._first}/root{path}")
        if path.startswith("/usr/"):
            return self.folder / "usr/upper" / path.removeprefix("/usr/")
        return self.root / path.lstrip("/")

    # -- inside

    @property
    def _cable(self) -> str:
        return f"to-{self.address.rpartition('.')[2]}"

    def _lay_out(self, release: str) -> None:
        root = self.root
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for link in ("bin", "sbin", "lib", "lib64", "lib32", "libx32"):
            if os.path.islink(f"/{link}"):
                (root / link).symlink_to(os.readlink(f"/{link}"))
        (root / "root").chmod(0o700)
        for folder in ("usr/upper", "usr/work", "opt/upper", "opt/work"):
            (self.folder / folder).mkdir(parents=True)
        tree = sshd_tree()
        for part in ("usr", "lib") if tree is not None else ():
            if (tree / part).exists():
                upper = self.folder / "usr/upper" / part.removeprefix("usr")
                shutil.copytree(tree / part, upper, symlinks=True, dirs_exist_ok=True)
        shutil.copyfile("/etc/ld.so.cache", root / "etc/ld.so.cache")
        files = {
            "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
            "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
            "/etc/shadow": "root:*:19000:0:99999:7:::\n",
            "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
            "/etc/hosts": f"127.0.0.1 localhost\n{self.address} {self.name}\n",
            "/etc/hostname": f"{self.name}\n",
            "/etc/os-release": release or Path("/etc/os-release").read_text(),
            "/etc/sysctl.conf": "# empty\n",
            "/etc/ssh/sshd_config": SSHD,
            "/root/.ssh/authorized_keys": (self._lab.folder / "user_key.pub").read_text(),
        }
        for path, content in files.items():
            self.write(path, content)
        self.write("/etc/ssh/host_key", (self._lab.folder / "host_key").read_text(), 0o600)
        self.write("/usr/sbin/shutdown", SHUTDOWN, 0o755)

    def _lay_out_grub(self, arguments: str) -> None:
        self.write("/etc/default/grub", f'GRUB_CMDLINE_LINUX_DEFAULT="{arguments}"\n')
        (self.root / "etc/default/grub.d").mkdir()
        self.write("/usr/sbin/grub-mkconfig", GRUB, 0o755)
        self.write("/usr/sbin/update-grub", "#!/bin/sh\nexec grub-mkconfig -o /boot/grub/grub.cfg\n", 0o755)
        self.write("/boot/grub/grub.cfg", MENU.format(arguments))

    def _keep(self) -> None:
        """Boot, and boot again whenever it asks for that."""
        while self._wanted:
            self._up.clear()
            status = self._boot()
            self.boots += 1
            if status != REBOOT:
                return

    def _boot(self) -> int:
        described = self.folder / "host.json"
        description = {
            "name": self.name,
            "address": self.address,
            "root": str(self.root),
            "overlays": {"usr": "/usr", **({"opt": str(self._opt)} if self._opt is not None else {})},
            "uppers": str(self.folder),
            "hidden": self._hidden,
            "kernel": self._kernel,
            "refused": self._refused,
            "boot_menu": self._boot_menu,
            "boots": self.boots,
        }
        described.write_text(json.dumps(description))
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES]
        command += [PYTHON, "-I", str(HERE / "light_init.py"), str(described)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
            self._process = process
            assert process.stdout is not None
            try:
                self._first = self._plug_in(process.pid)
                if process.stdout.readline() == b"up\n":
                    self._up.set()
                return process.wait()
            finally:
                self._first = ""
                process.kill()
                process.wait()
                process.stdout.close()

    def _plug_in(self, parent: int) -> str:
        """Run a cable from the switch to the host's process 1, and say which that is."""
        children = Path(f"/proc/{parent}/task/{parent}/children")
        deadline = time.monotonic() + 20
        while not (found := children.read_text().split()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} has no process 1")
            time.sleep(0.02)
        cable = self._cable
        with contextlib.suppress(subprocess.CalledProcessError):
            self._lab.ip("link", "delete", cable)  # of the boot before
        self._lab.ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", found[0])
        self._lab.ip("link", "set", cable, "master", "switch", "up")
        return found[0]
