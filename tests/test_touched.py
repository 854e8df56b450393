"""Which tests `make check` runs, and which slow ones a commit does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.tenth import PARTS, part_of_test, pytest_collection_modifyitems
from tests.touched import files_in, touched


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("syncline/units.py", {"syncline/units.py", "tests/test_units.py"}),
        ("syncline/methods/ddp.py", files_in("tests/methods")),
        ("replication/theory/demo.py", {"replication/theory/demo.py", "tests/replication/theory/test_demo.py"}),
        ("benchmarks/headline/finals.py", {"tests/benchmarks/test_headline.py"}),
        ("tests/test_units.py", {"tests/test_units.py"}),
        ("examples/README.md", {"tests/test_examples.py"}),
        ("LICENSE", set()),
    ],
)
def test_a_file_touches_its_own_tests(path: str, expected: set[str]) -> None:
    assert set(touched([path])) == expected


def test_ten_commits_run_each_slow_test_once() -> None:
    """Tests that share a fixture of their module run together."""
    alone = {"tmp_path": [SimpleNamespace(scope="function")], "tmp_path_factory": [SimpleNamespace(scope="session")]}
    shared = alone | {"trained": [SimpleNamespace(scope="module")]}
    items = [
        SimpleNamespace(
            nodeid=f"tests/test_{'other' if number % 3 else 'some'}.py::test_it[{number}]",
            _fixtureinfo=SimpleNamespace(name2fixturedefs=shared if number >= 200 else alone),
        )
        for number in range(300)
    ]
    seen = []
    for part in range(PARTS):
        config = SimpleNamespace(getoption=lambda _, part=part: part, hook=SimpleNamespace(pytest_deselected=dict))
        kept = list(items)
        pytest_collection_modifyitems(config, kept)  # type: ignore[arg-type]
        assert all(part_of_test(item.nodeid) == part for item in kept if item in items[:200])
        for file in ("some", "other"):
            together = {item.nodeid for item in items[200:] if file in item.nodeid}
            assert together & {item.nodeid for item in kept} in (set(), together)
        seen += kept
    assert len(seen) == len(items) and {item.nodeid for item in seen} == {item.nodeid for item in items}
