from pathlib import Path

import msgspec
import pytest

from hwtune.errors import UsageError
from hwtune.profile import builtin, load


def test_the_built_in_profiles_load_whole_and_the_default_is_first() -> None:
    assert builtin() == ["low-latency", "gpu-inference", "gpu-training"]
    for name in builtin():
        assert load(name).name == name


def test_a_profile_inherits_what_it_does_not_say() -> None:
    inference, training = load("gpu-inference"), load("gpu-training")
    assert (inference.pcie.p2p, training.pcie.p2p) == (True, True)  # training extends inference
    assert training.memory.swappiness_max == 60
    assert inference.memory.swappiness_max == load().memory.swappiness_max == 10


def test_a_site_profile_extends_a_built_in_one(tmp_path: Path) -> None:
    path = tmp_path / "desk7.toml"
    path.write_text('extends = "gpu-inference"\n[cpu]\nmax_idle_latency_us = 2\n')
    profile = load(str(path))
    assert (profile.name, profile.cpu.max_idle_latency_us, profile.pcie.p2p) == ("desk7", 2, True)


def test_a_site_profile_may_extend_another_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[memory]\nswappiness_max = 1\n")
    (tmp_path / "leaf.toml").write_text('extends = "base.toml"\n[cpu]\nmax_idle_latency_us = 3\n')
    profile = load(str(tmp_path / "leaf.toml"))
    assert (profile.memory.swappiness_max, profile.cpu.max_idle_latency_us) == (1, 3)


def test_settings_win_and_take_the_type_of_the_key() -> None:
    profile = load(settings=["memory.swappiness_max=1", "pcie.aspm=on", "memory.thp_defrag=never,madvise"])
    assert profile.memory.swappiness_max == 1
    assert profile.pcie.aspm is True
    assert profile.memory.thp_defrag == ["never", "madvise"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["memory.swapiness_max=1"], "did you mean memory.swappiness_max"),
        (["memory.swappiness_max"], "KEY=VALUE"),
        (["memory.swappiness_max=low"], "is a number"),
        (["pcie.aspm=perhaps"], "true or false"),
        (["cpu.turbo=maybe"], "cpu.turbo: Invalid enum value 'maybe'"),
        (["isolation.method=cpuset"], "isolation.method: Invalid enum value 'cpuset'"),
    ],
)
def test_a_bad_setting_is_one_sentence(settings: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(settings=settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[memory]\nswapiness = 1\n", "unknown key memory.swapiness; did you mean memory.swappiness_max"),
        ("[memory\n", "not valid TOML"),
        ('memory = "all"\n', "memory must be a table"),
        ('[memory]\nswappiness_max = "ten"\n', "memory.swappiness_max"),
        ('extends = "no-such"\n', "there is no profile"),
        ("extends = 7\n", "must name one profile"),
        ("\x00", "not valid TOML"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load(str(path))


def test_a_profile_that_extends_itself_ends(tmp_path: Path) -> None:
    path = tmp_path / "loop.toml"
    path.write_text(f'extends = "{path}"\n')
    with pytest.raises(UsageError, match="extends itself"):
        load(str(path))


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean low-latency"):
        load("low-latncy")


def test_what_profiles_prints_is_a_profile(tmp_path: Path) -> None:
    from hwtune.cli.profiles import _toml

    path = tmp_path / "copy.toml"
    path.write_text(_toml(msgspec.to_builtins(load("gpu-training"))))
    assert msgspec.to_builtins(load(str(path))) == msgspec.to_builtins(load("gpu-training"))
