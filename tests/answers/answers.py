"""The answers of many commands, to hold against those of another version of the code: ``python -m tests.answers``."""

from __future__ import annotations

import json
import lzma
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from math import isclose
from pathlib import Path
from typing import Any

import yaml

COMMANDS = Path(__file__).with_name("commands.yaml")
KEPT = Path(__file__).with_name("answers.json.xz")

DIGEST = re.compile(r"[0-9a-f]{20}")
"""The name of a sweep's run, which changes with every version of the code."""

ROUNDING = 1e-12
"""What rounding may leave of a difference of equal numbers, where numbers have a tolerance at all."""

Command = Callable[..., tuple[int, str, str]]
"""``command("project", "--json")``: the exit code, standard output and standard error."""


def commands() -> list[str]:
    """Return the commands, without ``syncline`` and ``--json``."""
    lines = yaml.safe_load(COMMANDS.read_text())["commands"].splitlines()
    return [line for line in lines if not line.startswith("#")]


def write_files(folder: Path) -> None:
    """Write the files that the commands read into their working directory."""
    for name, fields in yaml.safe_load(COMMANDS.read_text())["files"].items():
        (folder / name).write_text(yaml.safe_dump(fields, sort_keys=False))


def answers(command: Command) -> Iterator[tuple[str, Any]]:
    """Yield each command and its answer: the JSON that it prints, without the digests in it.

    Raises:
        AssertionError: a command fails.
    """
    for line in commands():
        code, out, err = command(*shlex.split(line), "--json")
        assert code == 0 or (code == 1 and line.startswith("same ")), f"{line}: {err}"  # 1: the folders differ
        yield line, _answer(json.loads(out))


def _answer(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _answer(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_answer(inner) for inner in value]
    return "digest" if isinstance(value, str) and DIGEST.fullmatch(value) else value


def read_answers(path: Path = KEPT) -> dict[str, Any]:
    """Return the answers that are kept, by command."""
    return dict(json.loads(lzma.decompress(path.read_bytes())))


def write_answers(path: Path, by_command: Mapping[str, Any]) -> None:
    """Keep answers."""
    path.write_bytes(lzma.compress(json.dumps(by_command, indent=0).encode(), preset=9))


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return an answer in which keys and words of texts have other names."""
    if isinstance(value, dict):
        return {renamed(name, names): renamed(inner, names) for name, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, names) for inner in value]
    if isinstance(value, str) and names:
        pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        return re.sub(rf"(?<![\w-])({pattern})(?![\w-])", lambda match: names[match.group()], value)
    return value


Tolerance = Callable[[str], float]
"""The relative difference that the numbers of a field may have, by the field's name."""


def exactly(field: str) -> float:
    """Return no tolerance for any field."""
    return 0.0


def differences(before: Any, after: Any, rel: Tolerance = exactly, place: str = "") -> Iterator[str]:
    """Yield where two answers differ: numbers by more than the tolerance of their field, all else at all."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            if name in before and name in after:
                yield from differences(before[name], after[name], rel, f"{place}.{name}")
            else:
                yield f"{place}.{name}: {'gone' if name in before else 'new'}"
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{place}: {len(before)} items before, {len(after)} after"
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from differences(old, new, rel, f"{place}.{number}")
    elif before != after and not _is_close(before, after, rel(place.rpartition(".")[2])):
        yield f"{place}: {before!r} before, {after!r} after"


def _is_close(before: Any, after: Any, rel: float) -> bool:
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (before, after))
    return are_numbers and isclose(before, after, rel_tol=rel, abs_tol=ROUNDING if rel else 0.0)
