"""The folder of a run's results, written under a temporary name and renamed when complete."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import BaseModel

from syncline.columns import described
from syncline.errors import SpecError, SynclineError
from syncline.files import atomic_path
from syncline.runs.folders import streams
from syncline.runs.folders.path_lock import free_path, lock_path
from syncline.runs.folders.result_files import json_text, write_manifest
from syncline.version import __version__, git_commit

PACKAGES = ("numpy", "torch", "simpy", "pydantic", "pyarrow", "matplotlib")
"""Packages whose version can change a result, or its format."""

CODE_PATH_SETTINGS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
"""Environment variables that limit or fix the instructions that torch and MKL use."""

INSTRUCTION_SETS = ("avx512f", "avx2", "avx", "sse4_2")
"""Processor flags of Linux, the widest instructions first."""


class RunFolder:
    """A folder of results that gets its final name only when all files are in it.

    The process locks the final name first. While it writes, the folder's name is ``.NAME.partial-PID``. The end of the
    ``with`` block renames the folder. After a crash the folder keeps its temporary name and its finished files, but an
    error before the first finished file removes the folder. If a killed process left such a folder, the next run of
    this name renames it to ``NAME-killed``.

    Args:
        path: the final path. If it exists, or another process writes it, a number is added to the name, so that results
            are never overwritten.
        exact: raise an error if the path is taken, instead of adding a number.

    Raises:
        SpecError: the path must not be used, or its parent cannot be written.
    """

    def __init__(self, path: Path, exact: bool = False) -> None:
        """Lock the folder's name, and rename or remove the folders that dead processes left under it."""
        self._lock = lock_path(path, exact=exact, kind="folder")
        self.path, self.working = self._lock.path, self._lock.partial_path()
        self._lock.on_abandon = self._abandon
        try:
            for leftover in self._lock.leftovers():
                _rename_or_remove(leftover, self.path)
            self.working.mkdir()
            (self.working / "figures").mkdir()
        except OSError as error:
            self._lock.release()
            raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Give the finished folder its final name; after an error it stays under its temporary name."""
        try:
            if error is None:
                shutil.rmtree(self.working / streams.FOLDER, ignore_errors=True)  # the tables replace the streams
                write_manifest(self.working)
                self.path = free_path(self.path)  # a program without locks may have taken the name
                self.working.rename(self.path)
            elif isinstance(error, SynclineError | KeyboardInterrupt):
                note_about_results = self._abandon()
                if note_about_results is not None:
                    error.add_note(note_about_results)
            else:  # a defect of the program: even files without results may help to find it
                error.add_note(self._unfinished_note())
        except OSError as failure:  # the manifest or the renaming failed
            failure.add_note(self._unfinished_note())
            raise
        finally:
            self._lock.release()

    def _unfinished_note(self) -> str:
        """Return the line that tells users where unfinished results are."""
        return f"what was finished until then is in {self.working}"

    def _abandon(self) -> str | None:
        """Remove the folder if it has no finished file; otherwise return a line that names its path."""
        if has_results(self.working):
            return self._unfinished_note()
        shutil.rmtree(self.working, ignore_errors=True)  # a parallel training may still write
        return None

    def table(self, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Write columns of equal length to ``NAME.parquet``; the same columns give the same bytes.

        The metadata of a column has its unit and meaning.
        """
        with atomic_path(self.working / f"{name}.parquet") as target:
            table = pa.table(dict(columns))
            pq.write_table(table.cast(described(table.schema, f"{name}.parquet")), target)

    def long_table(self, name: str, parts: Iterable[pa.Table]) -> None:
        """Write ``NAME.parquet`` from parts with one schema, one after another; no file if there are no parts."""
        remaining_parts = iter(parts)
        first = next(remaining_parts, None)
        if first is None:
            return
        with (
            atomic_path(self.working / f"{name}.parquet") as target,
            pq.ParquetWriter(target, described(first.schema, f"{name}.parquet", "run"), compression="zstd") as writer,
        ):
            writer.write_table(first)
            for part in remaining_parts:
                writer.write_table(part)

    def json(self, name: str, value: Any) -> None:
        """Write ``NAME.json``; numbers that JSON does not have become null."""
        self._text(f"{name}.json", json_text(value))

    def trace(self, trace: Mapping[str, Any]) -> None:
        """Write a trace in Chrome's format to ``trace.json``, without spaces, because it can be large."""
        self._text("trace.json", json.dumps(trace, separators=(",", ":")) + "\n")

    def spec(self, spec: BaseModel) -> None:
        """Write ``spec.yaml`` with the value of every field, so that the spec can be run again."""
        text = yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
        self._text("spec.yaml", text)

    def _text(self, name: str, text: str) -> None:
        """Write a text file into the folder."""
        with atomic_path(self.working / name) as target:
            target.write_text(text, encoding="utf-8")

    def figure(self, name: str) -> Path:
        """Return the path ``figures/NAME.png`` in the folder, for a figure to be written."""
        return self.working / "figures" / f"{name}.png"


def environment() -> dict[str, Any]:
    """Return the facts besides a spec that decide a result: versions, the commit of a checkout, and the processor."""
    return {
        "syncline": __version__, "git_commit": git_commit(), "python": platform.python_version(),
        "machine": platform.machine(), "processor": processor_record(),
        "packages": {name: installed_version(name) for name in PACKAGES},
    }  # fmt: skip


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def processor_record() -> dict[str, Any]:
    """Return the processor and the instructions that torch and MKL use on it; the last bits of a sum depend on them.

    Returns:
        ``model`` and ``instructions`` (the widest set) of the processor, ``aten`` (the set that torch has chosen),
        ``mkl`` (version of MKL, which does not report its set), and ``settings`` (environment variables that limit the
        sets). ``aten`` and ``mkl`` are None if torch is not loaded, because a command without torch must not load it.
    """
    cpuinfo = ""
    with suppress(OSError):
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    instruction_sets = []
    if flags is not None:
        instruction_sets = [name for name in INSTRUCTION_SETS if name in flags[1].split()]
    aten = mkl = None
    torch = sys.modules.get("torch")
    if torch is not None:
        aten = torch.backends.cpu.get_cpu_capability()
        mkl = re.search(r"Math Kernel Library Version (\S+)", torch.__config__.show())
    return {
        "model": model[1] if model else platform.processor() or None,  # empty if Python does not know it
        "instructions": instruction_sets[0] if instruction_sets else None,
        "aten": aten, "mkl": mkl[1] if mkl else None,
        "settings": {name: os.environ[name] for name in CODE_PATH_SETTINGS if name in os.environ},
    }  # fmt: skip


def has_results(working: Path) -> bool:
    """Return whether an unfinished folder has results: a table, recorded steps, or lines of launched processes."""
    for pattern in ("*.parquet", "streams/*", "ranks/*.jsonl", "processes/**/*.jsonl"):
        if any(path.stat().st_size for path in working.glob(pattern)):
            return True
    return False


def _rename_or_remove(leftover: Path, path: Path) -> None:
    """Rename the unfinished folder of a dead process to ``NAME-killed``, or remove it if it has no results."""
    if not leftover.is_dir():
        leftover.unlink()
    elif not has_results(leftover):
        shutil.rmtree(leftover)
    else:
        streams.merge(leftover)
        target = free_path(path.with_name(f"{path.name}-killed"))
        leftover.rename(target)
        print(f"warning: a run that was killed left its results: they are in {target}", file=sys.stderr)
