"""The state of Syncline on this machine, and the commands that do not work on it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group
from rich.text import Text

from syncline.errors import error_text
from syncline.files import temporary_folder
from syncline.planner.tables.table import table
from syncline.runs.folders.folder import PACKAGES, installed_version
from syncline.runs.folders.path_lock import PathLock
from syncline.runs.training.limits import memory_bytes
from syncline.units import format_bytes
from syncline.version import version_line

EXTRAS = {
    "chakra": ("protobuf",), "dask": ("distributed",),
    "docs": ("furo", "latex2mathml", "myst-nb", "sphinx", "sphinx-copybutton"), "explore": ("nicegui",),
    "notebooks": ("ipykernel", "jupyterlab", "jupytext"), "optuna": ("optuna",),
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

CONSEQUENCES = {
    "chakra": "'syncline chakra' is refused", "dask": "'syncline sweep --dask' is refused",
    "docs": "the documentation's site is not built", "explore": "'syncline explore' is refused",
    "notebooks": "'make notebooks' has no JupyterLab", "optuna": "'syncline sweep --search optuna' is refused",
    "test": "the tests do not run", "dev": "the linters do not run",
}  # fmt: skip
"""What does not work without an extra."""

ENTRY_POINTS = ("methods", "problems", "networks", "hardware", "models", "schedules", "studies")
"""Groups of entry points, ``syncline.NAME``, by which other packages add names."""


class Finding(NamedTuple):
    """The result of one check of this machine.

    Attributes:
        found: version or description of the part; "none" if it is missing.
        ok: whether everything that needs the part works.
        without: what does not work without the part, and the remedy; empty if all works or this is unknown.
    """

    found: str
    ok: bool = True
    without: str = ""


def _not_working(consequence: str, state: str = "none") -> Finding:
    """Return the result of a check that failed, with its consequence and remedy."""
    return Finding(state, ok=False, without=consequence)


def findings() -> list[dict[str, Any]]:
    """Return a row with the group, the name and the result of each check; an exception in a check is a result, too."""
    rows = []
    for group, checks in CHECKS.items():
        for name, check in checks.items():
            try:
                finding = check()
            except Exception as error:  # any error of another package or of the system
                finding = _not_working(consequence="", state=f"is unknown ({error_text(error)})")
            if finding is not None:
                rows.append({"group": group, "name": name} | finding._asdict())
    return rows


def finding_tables(rows: Sequence[dict[str, Any]]) -> list[Group]:
    """Return a table for each group of checks, and a line with the number of missing parts."""
    tables = [table(group, "name found without", list(checks)) for group, checks in groupby(rows, itemgetter("group"))]
    num_missing = sum(not row["ok"] for row in rows)
    verdict = f"missing: {num_missing}, as listed above; everything else works" if num_missing else "nothing is missing"
    return [*tables, Group(Text(verdict))]


def _package(name: str) -> Finding:
    """Check whether a Python package is installed, and which version."""
    version = installed_version(name)
    return _not_working(f"pip install {name}") if version is None else Finding(version)


def _cores() -> Finding:
    """Check the number of cores that this process may use."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    text = str(usable) if usable == cores else f"{usable} of {cores}"
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads:
        text += f", OMP_NUM_THREADS={threads}"
    if usable == 1:
        return _not_working("trainings run one after another, and launched processes take turns", state=text)
    return Finding(text)


def _memory() -> Finding:
    """Check the memory that this process can have."""
    nbytes = memory_bytes()
    return Finding(format_bytes(nbytes) if nbytes is not None else "unknown on this system")


def _folder() -> Finding:
    """Check whether results can be written in this folder, and whether two runs would notice each other."""
    try:
        with temporary_folder(Path.cwd()) as folder:
            lock = PathLock.acquire(folder / "lock")
            has_locks = lock is not None and lock.excludes_others
            if lock is not None:
                lock.release()
    except OSError as error:
        return _not_working(f"this folder is not writable ({error.strerror}); --out names another folder")
    if has_locks:
        return Finding("can be written to, has locks")
    return _not_working(
        "no file locks: two commands must not write the same name at the same time", state="can be written to"
    )


def _gpus() -> Finding:
    """Check the GPUs that torch can use."""
    import torch

    if not torch.cuda.is_available():
        reason = "torch is built without CUDA" if torch.version.cuda is None else "torch finds none"
        return _not_working(f"device: cuda is refused, auto means cpu ({reason})")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Finding(f"{', '.join(names)} (CUDA {torch.version.cuda})")


def _gloo() -> Finding:
    """Check whether torch has the backend gloo, for processes on CPUs."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_gloo_available():
        return Finding("there")
    return _not_working("no processes on CPUs: launch, calibrate, validate (this torch is built without it)")


def _nccl() -> Finding:
    """Check whether torch has the backend nccl, for processes on GPUs."""
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_nccl_available():
        return _not_working("--backend nccl is refused (this torch is built without it)")
    if not torch.cuda.is_available():
        return _not_working("--backend nccl is refused (no GPU)", state="built in")
    return Finding("there")


def _torchrun() -> Finding:
    """Check whether the command ``torchrun`` is beside Python's interpreter or on the shell's path."""
    beside_python = Path(sys.executable).with_name("torchrun")
    path = str(beside_python) if beside_python.is_file() else shutil.which("torchrun")
    return Finding(path) if path else _not_working("start processes by 'python -m torch.distributed.run' instead")


def _namespaces() -> Finding:
    """Check whether a benchmark can shape traffic between network namespaces of Linux."""
    requirements = {
        "Linux": sys.platform == "linux",
        "root": os.geteuid() == 0,
        "the command ip": shutil.which("ip"),
        "/dev/net/tun": Path("/dev/net/tun").exists(),
        "a C compiler": os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
    }
    missing = [requirement for requirement, is_present in requirements.items() if not is_present]
    if missing:
        return _not_working(f"'python -m benchmarks.shaped' is skipped (it lacks {', '.join(missing)})")
    return Finding("there")


def _extra(name: str) -> Finding:
    """Check whether the packages of an extra are installed."""
    packages = EXTRAS[name]
    missing = [package for package in packages if installed_version(package) is None]
    if missing:
        missing_packages = f" (lacks {', '.join(missing)})" if len(missing) < len(packages) else ""
        return _not_working(f"{CONSEQUENCES[name]}: pip install 'syncline[{name}]'{missing_packages}")
    if len(packages) == 1:
        return Finding(f"{packages[0]} {installed_version(packages[0])}")
    return Finding(f"{len(packages)} packages")


def _browser() -> Finding:
    """Check whether there is a browser for traces and figures."""
    for command in ("xdg-open", "open", "firefox", "chromium", "google-chrome"):
        path = shutil.which(command)
        if path is not None:
            return Finding(path)
    return _not_working("open trace.json in ui.perfetto.dev, and figures, on another machine")


def _names_of_others(kind: str) -> Finding | None:
    """Return the names of a kind, such as methods, that other packages add; None without any."""
    names = sorted(entry_point.name for entry_point in metadata.entry_points(group=f"syncline.{kind}"))
    return Finding(", ".join(names)) if names else None


CHECKS: dict[str, dict[str, Callable[[], Finding | None]]] = {
    "versions": {
        "syncline": lambda: Finding(version_line()),
        "python": lambda: Finding(f"{platform.python_version()} ({sys.executable})"),
        **{name: partial(_package, name) for name in (*PACKAGES, "pandas", "scipy")},
    },
    "machine": {
        "system": lambda: Finding(f"{platform.system()} {platform.release()}, {platform.machine()}"),
        "cores": _cores,
        "memory": _memory,
        "GPU": _gpus,
        "disk": lambda: Finding(f"{format_bytes(shutil.disk_usage(Path.cwd()).free)} free here"),
        "this folder": _folder,
    },
    "processes": {"gloo": _gloo, "nccl": _nccl, "torchrun": _torchrun, "network namespaces": _namespaces},
    "extras": {
        **{name: partial(_extra, name) for name in EXTRAS},
        "browser": _browser,
        **{f"{kind} of others": partial(_names_of_others, kind) for kind in ENTRY_POINTS},
    },
}
"""Checks, in the order of the output; a check without an answer has no row."""
