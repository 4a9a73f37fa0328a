import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text.cpulist import format_list, parse_list, parse_mask, show_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("", []),
        ("(null)", []),  # how the kernel prints an empty nohz_full
        (" \n", []),
        ("5", [5]),
        ("8,0-1", [0, 1, 8]),
        ("0-7:2/4", [0, 1, 4, 5]),  # two of each group of four
        ("1,2-7,9", [1, 2, 3, 4, 5, 6, 7, 9]),
    ],
)
def test_lists(text: str, cpus: list[int]) -> None:
    assert parse_list(text) == cpus


def test_n_is_the_last_cpu() -> None:
    assert parse_list("4-N", last=15) == list(range(4, 16))
    assert parse_list("N", last=7) == [7]
    assert parse_list("all", last=2) == [0, 1, 2]
    with pytest.raises(ValueError, match="last CPU"):
        parse_list("4-N")


@pytest.mark.parametrize(
    "text", ["3-1", "a", "1-", "-1", "0-3:0/2", "0-3:3/2", "1;2", "0-99999999999", "\x1b[4m0"]
)
def test_what_the_kernel_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="CPU list"):
        parse_list(text)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("f", [0, 1, 2, 3]),
        ("ffff,ffffffff,ffffffff", list(range(80))),
        ("00000001,00000000", [32]),
        ("000007e0", [5, 6, 7, 8, 9, 10]),
        ("0", []),
        ("0x10", [4]),
    ],
)
def test_masks(text: str, cpus: list[int]) -> None:
    assert parse_mask(text) == cpus


@pytest.mark.parametrize("text", ["", "xyz", "f" * 20000, "-1"])
def test_no_mask(text: str) -> None:
    with pytest.raises(ValueError, match="CPU mask"):
        parse_mask(text)


@given(st.sets(st.integers(0, 300)))
def test_a_formatted_list_reads_back(cpus: set[int]) -> None:
    assert parse_list(format_list(cpus)) == sorted(cpus)


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        assert parse_list(text) == sorted(set(parse_list(text)))
    except ValueError:
        assert text.strip() not in ("", "(null)")


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        (range(0, 80, 2), "0-78:2"),
        ([0, 2, 4, *range(12, 80, 2)], "0,2,4,12-78:2"),
        ([0, 1, 2, 3, 8], "0-3,8"),
        ([6, 7], "6-7"),
        ([5], "5"),
        ([], ""),
        ([0, 4, 5], "0,4-5"),
    ],
)
def test_lists_for_people_use_strides(cpus: list[int], text: str) -> None:
    assert show_list(list(cpus)) == text
