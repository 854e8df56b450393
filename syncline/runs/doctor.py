"""The state of Syncline on this machine, and the commands that do not work on it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from syncline.errors import error_text
from syncline.files import temporary_folder
from syncline.runs.folders.folder import PACKAGES
from syncline.runs.folders.path_lock import PathLock
from syncline.runs.training.limits import memory_bytes
from syncline.units import format_bytes
from syncline.version import version_line

EXTRAS = {
    "chakra": ("protobuf",),
    "dask": ("distributed",),
    "docs": ("furo", "latex2mathml", "myst-nb", "sphinx", "sphinx-copybutton"),
    "explore": ("nicegui",),
    "notebooks": ("ipykernel", "jupyterlab", "jupytext"),
    "optuna": ("optuna",),
    "test": (
        "axe-playwright-python", "beartype", "distributed", "hypothesis", "ipykernel", "jupytext", "nbmake", "networkx",
        "nicegui", "optuna", "playwright", "protobuf", "psutil", "pytest", "pytest-benchmark", "pytest-xdist",
    ),
    "dev": (
        "build", "cyclonedx-bom", "import-linter", "mypy", "pre-commit", "ruff", "setuptools", "setuptools-scm",
        "types-PyYAML",
    ),
}  # fmt: skip
"""Packages of each extra in pyproject.toml that show whether it is installed."""

FOR = {
    "chakra": "'syncline chakra' is refused",
    "dask": "'syncline sweep --dask' is refused",
    "docs": "the documentation's site is not built",
    "explore": "'syncline explore' is refused",
    "notebooks": "'make notebooks' has no JupyterLab",
    "optuna": "'syncline sweep --search optuna' is refused",
    "test": "the tests do not run",
    "dev": "the linters do not run",
}
"""Consequence of a missing extra."""

OFFERS = ("methods", "problems", "networks", "hardware", "models", "schedules", "studies")
"""Entry points of other packages, as ``syncline.NAME``."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        group: ``versions``, ``machine``, ``processes``, ``extras``.
        name: name of the thing that was checked.
        found: what exists; "none" if nothing does.
        ok: whether everything that needs it works.
        without: what is skipped or refused, and the remedy; empty if nothing is.
    """

    group: str
    name: str
    found: str
    ok: bool = True
    without: str = ""


def findings() -> list[Finding]:
    """Return the results of all checks; a check that fails is a result too, and never an error."""
    results: list[Finding] = []
    for group, checks in GROUPS.items():
        for name, check in checks.items():
            try:
                result = check()
            except Exception as error:  # any error of another package or of the system
                result = Finding(group, name, f"cannot be told ({error_text(error)})", ok=False)
            results += [result] if isinstance(result, Finding) else result
    return results


def records(results: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the rows of ``--json``."""
    return [asdict(finding) for finding in results]


def finding_tables(results: Iterable[Finding]) -> list[Group]:
    """Return a table for each group, with the consequences of a missing part; and a line about all of them."""
    groups: dict[str, Table] = {}
    lacking = 0
    for finding in results:
        if finding.group not in groups:
            groups[finding.group] = rows = Table.grid(padding=(0, 2))
            rows.add_column(min_width=20, no_wrap=True)
            rows.add_column(overflow="fold")
        description = finding.found + (f"; {finding.without}" if finding.without else "")
        groups[finding.group].add_row(f"  {finding.name}", Text(description))
        lacking += not finding.ok
    summary = f"not here: {lacking}, as told above; all else works" if lacking else "all that can be used is here"
    return [*(Group(Text(group, style="bold"), rows, Text()) for group, rows in groups.items()), Group(Text(summary))]


def _syncline() -> Finding:
    return Finding("versions", "syncline", version_line())


def _python() -> Finding:
    return Finding("versions", "python", f"{platform.python_version()} ({sys.executable})")


def _package(name: str) -> Finding:
    version = _version(name)
    return Finding("versions", name, version or "none", version is not None, "" if version else f"pip install {name}")


def _system() -> Finding:
    return Finding("machine", "system", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    threads = os.environ.get("OMP_NUM_THREADS")
    text = f"{mine}" + (f" of {cores}" if mine != cores else "") + (f", OMP_NUM_THREADS={threads}" if threads else "")
    consequence = "trainings run one after another, and launched processes take turns" if mine == 1 else ""
    return Finding("machine", "cores", text, mine > 1, consequence)


def _memory() -> Finding:
    has = memory_bytes()
    return Finding("machine", "memory", format_bytes(has) if has is not None else "not told by this system")


def _disk() -> Finding:
    return Finding("machine", "disk", f"{format_bytes(shutil.disk_usage(Path.cwd()).free)} free here")


def _folder() -> Finding:
    """Check whether results can be written in this folder, and whether two runs would notice each other."""

    try:
        with temporary_folder(Path.cwd()) as place:
            claim = PathLock.acquire(place / "it")
            sure = claim is not None and claim.is_sure
            if claim is not None:
                claim.release()
    except OSError as error:
        without = f"nothing can be written here ({error.strerror}); --out names another folder"
        return Finding("machine", "this folder", "none", False, without)
    without = "" if sure else "no locks here: two commands must not write one name at a time"
    return Finding("machine", "this folder", "can be written to" + (", has locks" if sure else ""), sure, without)


def _gpus() -> Finding:
    import torch

    if not torch.cuda.is_available():
        built = "torch is built without CUDA" if torch.version.cuda is None else "torch finds none"
        return Finding("machine", "GPU", "none", False, f"device: cuda is refused, auto means cpu ({built})")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Finding("machine", "GPU", f"{', '.join(names)} (CUDA {torch.version.cuda})")


def _gloo() -> Finding:
    import torch.distributed as dist

    is_available = dist.is_available() and dist.is_gloo_available()
    without = (
        "" if is_available else "no processes on CPUs: launch, calibrate, validate (this torch is built without it)"
    )
    return Finding("processes", "gloo", "there" if is_available else "none", is_available, without)


def _nccl() -> Finding:
    import torch
    import torch.distributed as dist

    built = dist.is_available() and dist.is_nccl_available()
    usable = built and torch.cuda.is_available()
    why = "no GPU" if built else "this torch is built without it"
    state = "there" if usable else "built in" if built else "none"
    return Finding("processes", "nccl", state, usable, "" if usable else f"--backend nccl is refused ({why})")


def _torchrun() -> Finding:
    neighbour = Path(sys.executable).with_name("torchrun")
    where = str(neighbour) if neighbour.is_file() else shutil.which("torchrun")
    without = "" if where else "start processes by 'python -m torch.distributed.run' instead"
    return Finding("processes", "torchrun", where or "none", where is not None, without)


def _namespaces() -> Finding:
    lacks = [
        requirement
        for requirement, is_present in (
            ("Linux", sys.platform == "linux"),
            ("root", os.geteuid() == 0),
            ("the command ip", shutil.which("ip")),
            ("/dev/net/tun", Path("/dev/net/tun").exists()),
            ("a C compiler", os.environ.get("CC") or any(map(shutil.which, ("cc", "gcc", "clang")))),
        )
        if not is_present
    ]
    without = f"'python -m benchmarks.shaped' is skipped (it lacks {', '.join(lacks)})" if lacks else ""
    return Finding("processes", "network namespaces", "none" if lacks else "there", not lacks, without)


def _extra(name: str) -> Finding:
    lacks = [package for package in EXTRAS[name] if _version(package) is None]
    installed = [f"{package} {_version(package)}" for package in EXTRAS[name] if package not in lacks]
    if not lacks:
        return Finding("extras", name, ", ".join(installed) if len(installed) == 1 else f"{len(installed)} packages")
    without = f"{FOR[name]}: pip install 'syncline[{name}]'" + (f" (lacks {', '.join(lacks)})" if installed else "")
    return Finding("extras", name, "none", False, without)


def _offered() -> list[Finding]:
    """Return the names that other packages add."""
    return [Finding("extras", f"{kind} of others", ", ".join(names)) for kind in OFFERS if (names := _names(kind))]


def _names(kind: str) -> list[str]:
    return sorted(point.name for point in metadata.entry_points(group=f"syncline.{kind}"))


def _browser() -> Finding:
    names = ("xdg-open", "open", "firefox", "chromium", "google-chrome")
    where = next(filter(None, map(shutil.which, names)), None)
    without = "" if where else "open trace.json in ui.perfetto.dev, and figures, on another machine"
    return Finding("extras", "browser", where or "none", where is not None, without)


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


Check = Callable[[], "Finding | list[Finding]"]


def _versions() -> Iterator[tuple[str, Check]]:
    yield "syncline", _syncline
    yield "python", _python
    for name in (*PACKAGES, "pandas", "scipy"):
        yield name, partial(_package, name)


GROUPS: dict[str, dict[str, Check]] = {
    "versions": dict(_versions()),
    "machine": {
        "system": _system, "cores": _cores, "memory": _memory, "GPU": _gpus, "disk": _disk, "this folder": _folder,
    },
    "processes": {"gloo": _gloo, "nccl": _nccl, "torchrun": _torchrun, "network namespaces": _namespaces},
    "extras": {**{name: partial(_extra, name) for name in EXTRAS}, "browser": _browser, "others": _offered},
}  # fmt: skip
"""Checks, in the order of the output."""
