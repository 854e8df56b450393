from __future__ import annotations

import itertools

import pytest

from syncline.files import parse_yaml


def test_numbers_with_an_exponent_are_numbers() -> None:
    assert parse_yaml("[1e-3, 2E5, -1.e+2, 1.5e3, .5e3, 1e, 3]") == [1e-3, 2e5, -100.0, 1500.0, 500.0, "1e", 3]


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x: {a: 1, a: 2}", "[{a: 1, a: 1}]"])
def test_a_key_that_is_there_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'a' is given twice") as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t", "!!python/object:os.system x", "2020-13-45", "[" * 5000])
def test_what_is_no_yaml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


def test_aliases_that_would_fill_the_memory_are_refused():
    """Ten lines of ten aliases each of the line before: ten billion values."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join(['*' + old] * 10)}]" for old, new in itertools.pairwise("abcdefghij")]
    with pytest.raises(ValueError, match=r"^aliases that unfold to more than 1,000,000 values$"):
        parse_yaml("\n".join(lines))
    with pytest.raises(ValueError, match="aliases that unfold"):
        parse_yaml("a: &a [*a]")
    assert parse_yaml("a: &a [1, 2]\nb: [*a, *a]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}


def test_a_text_that_would_take_minutes_is_refused():
    with pytest.raises(ValueError, match=r"^20,000,002 characters, and at most 1,000,000 are read$"):
        parse_yaml(f"[{'1,' * 10**7}]")


def test_an_empty_text_holds_nothing():
    assert parse_yaml("") is None
