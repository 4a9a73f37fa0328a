"""The plays and the role against hosts, over SSH. Each test has hosts of its own; what is installed on them
was installed by the role."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.playbooks.lab import ROWS, SICK, SOUND
from tests.playbooks.made import ROLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.playbooks.controller import Controller
    from tests.playbooks.lab import Lab, LightHost

HERE = Path(__file__).parent
RATIO = "/proc/sys/vm/dirty_ratio"
KEPT = "/etc/sysctl.d/99-zz-hwtune.conf"
TUNED = {
    "/proc/sys/vm/swappiness": "60",  # nothing is swapped here, so that no row asks for another
    "/proc/sys/vm/compact_unevictable_allowed": "0",
    "/proc/sys/vm/compaction_proactiveness": "0",
    "/proc/sys/vm/dirty_ratio": "10",
    "/proc/sys/vm/dirty_background_ratio": "5",
}


@pytest.fixture(scope="module")
def newest_controller(controllers: dict[str, Controller]) -> Controller:
    return controllers["newest"]


@pytest.fixture(scope="module")
def source(wheel: Path, wheelhouse: Path) -> dict[str, Any]:
    """What the role installs from, and the rows that these hosts decide."""
    return {"hwtune_wheel": str(wheel), "hwtune_wheelhouse": str(wheelhouse), "hwtune_only": ROWS}


@pytest.fixture(scope="module")
def seed(lab: Lab, newest_controller: Controller, source: dict[str, Any]) -> Path:
    """/opt of a host without compiler, headers or network on which the role installed hwtune."""
    hidden = ["/usr/include", "/usr/lib/gcc"]
    host = lab.host("seed", kernel=SICK, hidden=hidden)
    run = newest_controller.play(ROLE, [host], variables=source)
    assert run.status == 0, run.why
    assert run.recap["seed"]["changed"] > 0
    assert host.attributes() == {path: value.strip() for path, value in SICK.items()}
    again = newest_controller.play(ROLE, [host], variables=source)
    assert (again.status, again.changed()) == (0, {"seed": 0}), again.why
    host.stop()
    return host.root / "opt"


@pytest.fixture
def new_host(lab: Lab, seed: Path) -> Callable[..., LightHost]:
    """A host that has hwtune; ``p99``: what it measures untuned and tuned."""

    def make(name: str, p99: tuple[float, float] = (900.0, 300.0), **options: Any) -> LightHost:
        options = {"kernel": SICK, "opt": seed, **options}
        host = lab.host(f"{name}-{len(lab.hosts)}", **options)
        host.write("/usr/local/bin/measured", (HERE / "measured.py").read_text(), 0o755)
        host.link("/usr/local/bin/hwtune", "/opt/hwtune/bin/hwtune")
        host.write("/etc/measured.json", json.dumps({"untuned": p99[0], "tuned": p99[1]}))
        return host

    return make


@pytest.fixture(params=["2.15", "newest"])
def controller(request: pytest.FixtureRequest, controllers: dict[str, Controller]) -> Controller:
    if request.param not in controllers:
        pytest.skip(f"no Ansible {request.param} here")
    return controllers[request.param]


@pytest.fixture
def provisioning(source: dict[str, Any]) -> dict[str, Any]:
    return {**source, "hwtune_executable": "/usr/local/bin/measured", "hwtune_duration": "1s"}


def measurements(host: LightHost) -> list[str]:
    return host.read("/var/log/measured").splitlines() if host.exists("/var/log/measured") else []


# -- doctor --------------------------------------------------------------------------------------


def test_doctor_tells_of_every_host(
    controller: Controller, new_host: Callable[..., LightHost], lab: Lab, tmp_path: Path
) -> None:
    sick, sound, other = new_host("sick"), new_host("sound", kernel=SOUND), new_host("other", kernel=SOUND)
    bare = lab.host(f"bare-{len(lab.hosts)}", kernel=SICK, hidden=["/usr/include"])
    gone = new_host("gone")
    gone.unplug()
    before = {host.name: host.world() for host in (sick, sound, bare)}
    variables = {"hwtune_only": ROWS, "hwtune_reports": str(tmp_path / "reports")}
    run = controller.play("hwtune.hwtune.doctor", [sick, sound, other, bare, gone], variables=variables)
    assert run.status != 0
    assert run.hosts("Ask the doctor", "ok") == {sick.name, sound.name, other.name}
    (table,) = [n.result["msg"] for n in run.noted if n.task == "Show the table" and n.outcome == "ok"]
    words = [line.split() for line in table]
    assert [(line[0], line[1]) for line in words] == [
        ("host", "worst"), (gone.name, "no"), (bare.name, "failed"), (sick.name, "info"),
        (other.name, "none"), (sound.name, "none"),
    ]  # fmt: skip
    assert "the role hwtune.hwtune.hwtune installs it" in table[2]
    assert "3 info; memory.compact-unevictable, memory.compaction, memory.dirty-limits" in table[3]
    saved = {path.name: json.loads(path.read_text()) for path in (tmp_path / "reports").iterdir()}
    assert saved.keys() == {f"{host.name}.json" for host in (sick, sound, other)}
    assert saved[f"{sick.name}.json"]["host"]["hostname"] == sick.name
    assert len(saved[f"{sick.name}.json"]["machine"]["cpus"]["online"]) > 0
    result = run.of("Ask the doctor", sick.name).result
    assert (result["worst"], result["summary"]["finding"], result["changed"]) == ("info", 3, False)
    assert {found["row"] for found in result["findings"]} == set(ROWS)
    assert "report" not in result
    assert run.changed() == dict.fromkeys(run.recap, 0)
    # what it could not ask ends badly for the host that it is about, and for no other
    assert {host for host, counts in run.recap.items() if counts["failures"]} == {bare.name, gone.name}
    assert before == {host.name: host.world() for host in (sick, sound, bare)}


def test_doctor_fails_at_what_it_is_told_to_fail_at(
    newest_controller: Controller, new_host: Callable[..., LightHost], tmp_path: Path
) -> None:
    sick, sound = new_host("sick"), new_host("sound", kernel=SOUND)
    variables = {"hwtune_only": ROWS, "hwtune_reports": str(tmp_path), "hwtune_fail_on": "info"}
    run = newest_controller.play("hwtune.hwtune.doctor", [sick, sound], variables=variables)
    assert run.status != 0
    assert {host for host, counts in run.recap.items() if counts["failures"]} == {sick.name}
    assert (
        "3 findings at or above info: memory.compact-unevictable"
        in run.of("End badly where the doctor did", sick.name).result["msg"]
    )
    # a report is a report, whatever is thought of it
    assert (tmp_path / f"{sick.name}.json").exists()
    variables["hwtune_fail_on"] = "error"
    assert newest_controller.play("hwtune.hwtune.doctor", [sick, sound], variables=variables).status == 0


# -- one host, the role --------------------------------------------------------------------------


def test_role_tunes_verifies_and_leaves_nothing_behind(
    controller: Controller, new_host: Callable[..., LightHost], source: dict[str, Any]
) -> None:
    host = new_host("whole")
    pristine = host.world()
    profile = 'extends = "low-latency"\nname = "site"\n[memory]\ndirty_ratio_max_pct = 8\n'
    variables = {**source, "hwtune_site_profile": profile, "hwtune_states": ["applied", "verified"]}
    foreseen = controller.play(ROLE, [host], "--check", "--diff", variables=variables)
    assert (foreseen.status, host.world()) == (0, pristine), foreseen.why
    run = controller.play(ROLE, [host], variables=variables)
    assert run.status == 0, run.why
    assert host.attributes() == TUNED | {RATIO: "8"}  # as the site's profile has it
    assert host.read("/etc/hwtune/site.toml") == profile
    tuned = host.world()
    again = controller.play(ROLE, [host], variables=variables)
    assert (again.status, again.changed(), host.world()) == (0, {host.name: 0}, tuned), again.why
    absent = controller.play("hwtune.hwtune.revert", [host], variables={**source, "hwtune_state": "absent"})
    assert absent.status == 0, absent.why
    left = host.world()
    assert left == {path: state for path, state in pristine.items() if "hwtune" not in path}
    assert not list((host.root / "var/tmp").iterdir())
    gone = controller.play(ROLE, [host], variables={**source, "hwtune_state": "absent"})
    assert (gone.status, gone.changed()) == (0, {host.name: 0}), gone.why


def test_role_empties_no_folder_that_is_not_its_own(
    newest_controller: Controller, lab: Lab, source: dict[str, Any]
) -> None:
    host = lab.host(f"folder-{len(lab.hosts)}", kernel=SICK)
    host.write("/opt/data/precious", "x\n")
    variables = {**source, "hwtune_venv": "/opt/data"}
    run = newest_controller.play(ROLE, [host], variables=variables)
    assert run.status != 0
    assert "holds something else" in run.of("Empty nothing but an environment").result["msg"]
    absent = newest_controller.play(ROLE, [host], variables={**variables, "hwtune_state": "absent"})
    assert absent.status == 0, absent.why
    assert host.read("/opt/data/precious") == "x\n"


def test_provision_foresees_what_it_can_on_a_bare_host(
    newest_controller: Controller, lab: Lab, source: dict[str, Any]
) -> None:
    host = lab.host(f"bare-{len(lab.hosts)}", kernel=SICK)
    pristine = host.world()
    run = newest_controller.play("hwtune.hwtune.provision", [host], "--check", variables=source)
    assert (run.status, host.world()) == (0, pristine), run.why
    told = run.of("Say that it would be installed").result["msg"]
    assert told == "hwtune would be installed into /opt/hwtune"


def test_profile_that_hwtune_refuses_does_not_replace_the_one_that_is_there(
    newest_controller: Controller, new_host: Callable[..., LightHost], source: dict[str, Any]
) -> None:
    host = new_host("profile")
    good = 'extends = "low-latency"\n'
    variables = {**source, "hwtune_site_profile": good}
    assert newest_controller.play(ROLE, [host], variables=variables).status == 0
    variables["hwtune_site_profile"] = 'extends = "low-latency"\n[memory]\nswapiness_max = 1\n'
    run = newest_controller.play(ROLE, [host], variables=variables)
    assert run.status != 0
    assert "swappiness_max" in run.of("Write it").result["stderr"]  # hwtune names the nearest key
    assert host.read("/etc/hwtune/site.toml") == good


def test_role_does_not_throw_away_the_journal_of_a_host_that_it_cannot_put_back(
    newest_controller: Controller, lab: Lab, source: dict[str, Any]
) -> None:
    host = lab.host(f"journal-{len(lab.hosts)}", kernel=SICK)
    host.write("/var/lib/hwtune/journal", "{}\n")
    run = newest_controller.play(ROLE, [host], variables={**source, "hwtune_state": "absent"})
    assert run.status != 0
    assert (
        "run the role with hwtune_state=present"
        in run.of("Do not throw the journal away unread").result["msg"]
    )
    assert host.exists("/var/lib/hwtune/journal")


def test_role_knows_the_red_hat_family(
    newest_controller: Controller, lab: Lab, source: dict[str, Any]
) -> None:
    release = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
    host = lab.host(f"rocky-{len(lab.hosts)}", kernel=SICK, release=release)
    host.write("/etc/redhat-release", "Rocky Linux release 9.4 (Blue Onyx)\n")
    tell = '    - ansible.builtin.debug:\n        msg: "{{ hwtune_family_packages }}"\n'
    run = newest_controller.play(ROLE + tell, [host], "--check", variables=source)
    assert run.status == 0, run.why
    assert run.of("debug").result["msg"] == ["python3.11"]
    assert run.of("Say that it would be installed").outcome == "ok"


def test_installation_that_fails_names_what_to_do_and_no_password(
    newest_controller: Controller, lab: Lab
) -> None:
    host = lab.host(f"index-{len(lab.hosts)}", kernel=SICK)
    variables = {
        "hwtune_index_url": "http://someone:secret@127.0.0.1:9/simple",
        "hwtune_pip_arguments": ["--retries=0", "--timeout=2"],
    }
    run = newest_controller.play(ROLE, [host], "-vvv", variables=variables)
    assert run.status != 0
    message = run.of("See that it is installed").result["msg"]
    assert "pip could not install hwtune" in message and "hwtune_wheelhouse" in message
    assert "secret" not in run.text
    assert not [name for name in host.names("/tmp") if name.endswith(".hwtune")]


# -- verified, reverted --------------------------------------------------------------------------


def test_drift_is_told_and_ends_badly(
    newest_controller: Controller, new_host: Callable[..., LightHost]
) -> None:
    drifting, steady = new_host("drifting"), new_host("steady")
    hosts = [drifting, steady]
    apply = ROLE.replace("ansible.builtin.include_role:\n        name: hwtune.hwtune.hwtune", MODULE)
    assert newest_controller.play(apply, hosts, variables={"rows": ROWS}).status == 0
    assert newest_controller.play("hwtune.hwtune.drift", hosts).status == 0
    drifting.write_attribute(RATIO, "40\n")
    run = newest_controller.play("hwtune.hwtune.drift", hosts)
    assert run.status != 0
    assert {host for host, counts in run.recap.items() if counts["failures"]} == {drifting.name}
    message = run.of("End badly where something drifted", drifting.name).result["msg"]
    assert "vm.dirty_ratio = 40 and should be vm.dirty_ratio = 10" in message
    (table,) = [n.result["msg"] for n in run.noted if n.task == "Show the table" and n.outcome == "ok"]
    assert table[1].split()[:2] == [drifting.name, "drift"]
    assert table[2].split()[:3] == [steady.name, "in", "force"]


def test_revert_puts_everything_back(
    newest_controller: Controller, new_host: Callable[..., LightHost]
) -> None:
    host = new_host("reverted")
    pristine = host.world()
    apply = ROLE.replace("ansible.builtin.include_role:\n        name: hwtune.hwtune.hwtune", MODULE)
    assert newest_controller.play(apply, [host], variables={"rows": ROWS}).status == 0
    tuned = host.world()
    assert tuned != pristine
    foreseen = newest_controller.play("hwtune.hwtune.revert", [host], "--check", "--diff")
    assert (foreseen.status, foreseen.changed(), host.world()) == (0, {host.name: 1}, tuned)
    assert "--- " + KEPT in foreseen.text
    run = newest_controller.play("hwtune.hwtune.revert", [host])
    assert run.status == 0, run.why
    left = {path: state for path, state in host.world().items() if not path.startswith("/var/lib/hwtune")}
    assert left == pristine
    again = newest_controller.play("hwtune.hwtune.revert", [host])
    assert (again.status, again.changed()) == (0, {host.name: 0})


MODULE = """\
hwtune.hwtune.hwtune:
        state: applied
        only: "{{ rows }}"
"""


# -- provision -----------------------------------------------------------------------------------


def test_provision_in_batches_and_once_only(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    hosts = [new_host("box") for _ in range(3)] + [new_host("sound", kernel=SOUND)]
    untouched = {host.name: host.world() for host in hosts}
    variables = {**provisioning, "hwtune_serial": [1, 3]}
    for _ in range(2):
        run = newest_controller.play(
            "hwtune.hwtune.provision", hosts, "--check", "--diff", variables=variables
        )
        assert run.status == 0, run.why
        assert run.hosts("Be applied", "ok") == {host.name for host in hosts}
        assert {host.name: host.world() for host in hosts} == untouched
        assert run.changed()[hosts[3].name] == 0
        assert run.changed()[hosts[0].name] == 1
    assert "+vm.dirty_ratio = 10" in run.text
    run = newest_controller.play("hwtune.hwtune.provision", hosts, variables=variables)
    assert run.status == 0, run.why
    for host in hosts[:3]:
        assert host.attributes() == TUNED
        assert [line.split()[0:5] for line in measurements(host)] == [
            ["validate", "--format", "json", "--duration", "1s"]
        ] * 2
        assert (
            "--baseline /var/lib/hwtune/before-provisioning.json --max-regression 10%"
            in measurements(host)[1]
        )
        assert not host.exists("/var/lib/hwtune/before-provisioning.json")
    # where nothing was to do, nothing was measured
    assert measurements(hosts[3]) == []
    order = [n.host for n in run.noted if n.task == "Say that this host is well"]
    assert order[0] == hosts[0].name
    assert set(order[1:]) == {host.name for host in hosts[1:]}
    told = run.of("Say what came of it", hosts[0].name).result["msg"]
    assert told == (
        "4 changes made, P99 300 us end to end over 100000 ticks, "
        "66.7 % less than the 900 us before (limit 10 %)"
    )
    tuned = {host.name: host.world() for host in hosts}
    again = newest_controller.play("hwtune.hwtune.provision", hosts, variables=variables)
    assert (again.status, set(again.changed().values())) == (0, {0}), again.why
    assert {host.name: host.world() for host in hosts} == tuned
    assert len(measurements(hosts[0])) == 2


def test_canary_that_gets_worse_stops_the_roll_out_and_is_put_back(
    controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    canary = new_host("canary", p99=(300.0, 360.0))
    others = [new_host("other") for _ in range(2)]
    untouched = {host.name: host.world() for host in [canary, *others]}
    run = controller.play("hwtune.hwtune.provision", [canary, *others], variables=provisioning)
    assert run.status != 0
    message = run.of("Stop", canary.name).result["msg"]
    assert "no further host is touched" in message
    assert "the baseline was missed: P99 360 us end to end" in message
    assert run.of("Put back what this run changed", canary.name).outcome == "ok"
    assert len(measurements(canary)) == 2
    assert canary.attributes() == {path: value.strip() for path, value in SICK.items()}
    assert not canary.exists(KEPT)
    assert {other.name for other in others}.isdisjoint(run.recap)
    assert all(other.world() == untouched[other.name] for other in others)


def test_slower_within_the_limit_is_no_reason_to_stop(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    host = new_host("slower", p99=(300.0, 360.0))
    variables = {**provisioning, "hwtune_max_regression": "25%"}
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert (run.status, host.attributes()) == (0, TUNED), run.why


def test_missed_sla_stops_only_where_that_is_wanted(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    host = new_host("late", p99=(9000.0, 8000.0))
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=provisioning)
    assert (run.status, host.attributes()) == (0, TUNED), run.why
    host = new_host("late", p99=(9000.0, 8000.0))
    variables = {**provisioning, "hwtune_require": ["baseline", "sla"]}
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert run.status != 0
    assert "the SLA of 3200 us was missed" in run.of("Stop").result["msg"]
    assert host.attributes()[RATIO] == "20"


def test_host_that_fails_in_the_middle_takes_its_batch_back(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    first, good, bad, never = (
        new_host("first"),
        new_host("good"),
        new_host("bad", refused=[RATIO]),
        new_host("never"),
    )
    variables = {**provisioning, "hwtune_serial": [1, 2, 1]}
    run = newest_controller.play("hwtune.hwtune.provision", [first, good, bad, never], variables=variables)
    assert run.status != 0
    assert first.attributes() == TUNED  # its batch was well, and stays
    for host in (good, bad):
        assert host.attributes() == {path: value.strip() for path, value in SICK.items()}
        assert not host.exists(KEPT)
    assert "nothing was wrong" in run.of("Stop", good.name).result["msg"]
    message = run.of("Stop", bad.name).result["msg"]
    assert (
        "(row memory.dirty-limits): cannot write /proc/sys/vm/dirty_ratio: Read-only file system" in message
    )
    assert never.name not in run.recap
    assert measurements(never) == []


def test_host_that_stops_answering_takes_its_batch_back(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    good, gone, never = new_host("good"), new_host("gone"), new_host("never")
    gone.unplug()
    variables = {**provisioning, "hwtune_serial": [2, 1]}
    run = newest_controller.play("hwtune.hwtune.provision", [good, gone, never], variables=variables)
    assert run.status != 0
    assert good.attributes() == {path: value.strip() for path, value in SICK.items()}
    assert f"Not well: {gone.name}" in run.of("Stop", good.name).result["msg"]
    assert never.name not in run.recap


# -- what takes a boot ---------------------------------------------------------------------------

ARGUMENTS = "root=/dev/vda1 quiet elevator=noop"
BOOT_ROWS = ["kernel.args-ignored", "memory.compaction"]


def test_provision_reboots_where_it_is_needed_and_allowed(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    host = new_host("booting", arguments=ARGUMENTS)
    variables = {**provisioning, "hwtune_only": BOOT_ROWS}
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert (run.status, host.boots) == (0, 0), run.why
    # not allowed: the rest was done, and this is told
    assert "elevator=noop" in host.read("/proc/cmdline")
    assert "name in `allow`" in run.text
    assert host.attributes()["/proc/sys/vm/compaction_proactiveness"] == "0"

    variables["hwtune_allow"] = ["boot"]
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert (run.status, host.boots) == (0, 0), run.why
    assert "elevator=noop" in host.read("/proc/cmdline")
    drift = newest_controller.play("hwtune.hwtune.drift", [host])
    assert "reboot this host" in drift.of("End badly where something drifted").result["msg"]
    assert (
        newest_controller.play("hwtune.hwtune.drift", [host], variables={"hwtune_pending_ok": True}).status
        == 0
    )

    variables["hwtune_reboot"] = True
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert (run.status, host.boots) == (0, 1), run.why
    assert host.read("/proc/cmdline") == "BOOT_IMAGE=/vmlinuz root=/dev/vda1 quiet\n"
    assert host.attributes()["/proc/sys/vm/compaction_proactiveness"] == "0"  # kept across the boot
    again = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert (again.status, again.changed(), host.boots) == (0, {host.name: 0}, 1), again.why

    back = newest_controller.play("hwtune.hwtune.revert", [host], variables={"hwtune_reboot": True})
    assert (back.status, host.boots) == (0, 2), back.why
    assert host.read("/proc/cmdline") == f"BOOT_IMAGE=/vmlinuz {ARGUMENTS}\n"
    assert host.attributes() == {path: value.strip() for path, value in SICK.items()}


def test_canary_that_is_worse_after_its_boot_is_put_back_and_booted_again(
    newest_controller: Controller, new_host: Callable[..., LightHost], provisioning: dict[str, Any]
) -> None:
    host = new_host("worse-boot", p99=(300.0, 900.0), arguments=ARGUMENTS)
    variables = {**provisioning, "hwtune_only": BOOT_ROWS, "hwtune_allow": ["boot"], "hwtune_reboot": True}
    run = newest_controller.play("hwtune.hwtune.provision", [host], variables=variables)
    assert (run.status, host.boots) == (2, 2), run.why
    assert "200 % more than the 300 us before" in run.of("Stop").result["msg"]
    assert host.read("/proc/cmdline") == f"BOOT_IMAGE=/vmlinuz {ARGUMENTS}\n"
    assert host.attributes() == {path: value.strip() for path, value in SICK.items()}
