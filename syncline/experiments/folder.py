"""The folder of a run: written under a temporary name, renamed when it is whole."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import BaseModel

from syncline import __version__
from syncline.errors import SpecError, SynclineError
from syncline.experiments.plain import plain

PACKAGES = ("numpy", "torch", "simpy", "pydantic", "pyarrow", "matplotlib", "scikit-learn")
"""Packages whose version can change a result, or how it reads."""


class RunFolder:
    """A folder that appears under its own name only when everything is in it.

    While it is written it is called ``.NAME.partial-PID`` beside its final place. Leaving the ``with`` block without an
    exception renames it. A crash leaves it as it is, with whatever was finished; a mistake in the input, found
    before anything was, leaves nothing.

    Args:
        path: the final path. If it exists, a number is added: results are never overwritten.
        exact: refuse an existing path instead.

    Raises:
        SpecError: if the path exists and must not, or its parent cannot be written.
    """

    def __init__(self, path: Path, exact: bool = False) -> None:
        if exact and path.exists():
            raise SpecError("--out", str(path), "a folder that does not exist yet")
        self._asked, self.path = path, free_path(path)
        # Free as well: in containers, a crashed run and the next one can have the same process id.
        self.working = free_path(path.with_name(f".{path.name}.partial-{os.getpid()}"))
        try:
            self.working.mkdir(parents=True)
            (self.working / "figures").mkdir()
        except OSError as error:
            raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.path = free_path(self._asked)  # another run may have taken the name meanwhile
            self.working.rename(self.path)
        elif issubclass(kind, SynclineError) and not any(self.working.glob("*.parquet")):
            shutil.rmtree(self.working)

    def table(self, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Write ``NAME.parquet``; the same columns give the same content."""
        target = self.working / f"{name}.parquet"
        pq.write_table(pa.table(dict(columns)), target.with_suffix(".tmp"))
        target.with_suffix(".tmp").replace(target)

    def json(self, name: str, value: Any) -> None:
        """Write ``NAME.json``; numbers that JSON does not have become null."""
        (self.working / f"{name}.json").write_text(json.dumps(plain(value), indent=1) + "\n", encoding="utf-8")

    def trace(self, trace: Mapping[str, Any]) -> None:
        """Write ``trace.json``, compactly: it can be large."""
        text = json.dumps(trace, separators=(",", ":"))
        (self.working / "trace.json").write_text(text + "\n", encoding="utf-8")

    def spec(self, spec: BaseModel) -> None:
        """Write ``spec.yaml``, with every default resolved; it can be run again as it is."""
        text = yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
        (self.working / "spec.yaml").write_text(text, encoding="utf-8")

    def figure(self, name: str) -> Path:
        """Where ``figures/NAME.png`` goes."""
        return self.working / "figures" / f"{name}.png"


def environment() -> dict[str, Any]:
    """What a result depends on beside its spec: versions, the commit of a checkout, the machine's kind."""
    return {
        "syncline": __version__,
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def free_path(path: Path, suffix: str = "") -> Path:
    """The path, or the first of ``path-2``, ``path-3``, ... that does not exist; the number is before the suffix."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name.removesuffix(suffix)}-{number}{suffix}")
    return free


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the checkout that the package lies in, with ``+`` if files differ from it; None elsewhere."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # an installed copy inside somebody else's repository
    commit = git("rev-parse", "HEAD")
    return commit and commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
