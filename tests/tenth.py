"""A plugin for pytest: of the collected tests, the tenth that is a commit's; ten commits in a row run them all."""

from __future__ import annotations

import subprocess
import zlib

import pytest

PARTS = 10


def part_of_commit() -> int:
    """Return a commit's number modulo 10, or where the history is cut off that of its hash."""
    shallow = asked("--is-shallow-repository") == "true"
    return (int(asked("HEAD"), 16) if shallow else int(git("rev-list", "--count", "HEAD"))) % PARTS


def part_of_test(name: str) -> int:
    """Return the part that a test is in, the same on every machine.

    >>> part_of_test("tests/test_units.py::test_bits")
    2
    """
    return zlib.crc32(name.encode()) % PARTS


def name_of(item: pytest.Item) -> str:
    """Return what decides on a test's part: its name, or that of the module's fixtures that it shares with others.

    Each part would else compute such a fixture, and they take longer than the tests.
    """
    definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    shared = sorted(name for name, found in definitions.items() if found[-1].scope == "module")
    return f"{item.nodeid.partition('::')[0]}::{'+'.join(shared)}" if shared else item.nodeid


def asked(of: str) -> str:
    return git("rev-parse", of)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tenth", type=int, help="of the tests, this tenth: 0 to 9; by default the commit's")


@pytest.hookimpl(trylast=True)  # of what -m and -k leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    given: int | None = config.getoption("--tenth")
    part = part_of_commit() if given is None else given % PARTS
    kept = [item for item in items if part_of_test(name_of(item)) == part]
    config.hook.pytest_deselected(items=[item for item in items if part_of_test(name_of(item)) != part])
    items[:] = kept
