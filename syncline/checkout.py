"""The papers' evidence, which stands beside the package in a checkout of the repository and is in no wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from syncline.errors import SynclineError

ROOT = Path(__file__).resolve().parents[1]
"""Folder of the package's folder: of a checkout, its root."""

NOT_HERE = "the papers' studies and replications are in a checkout of the repository: pip install --editable CHECKOUT"


def has_replication() -> bool:
    """Return whether the package is in a checkout, with the package ``replication`` beside it."""
    return (ROOT / "replication").is_dir() and (ROOT / "pyproject.toml").is_file()


def replication_hint() -> str:
    """Return the end of an error line about an unknown name: what a wheel lacks; empty text in a checkout."""
    return "" if has_replication() else f"; {NOT_HERE}"


def import_replication(module: str) -> Any:
    """Return the module ``replication.MODULE`` of the checkout, and add the checkout to Python's search path.

    An editable install makes only ``syncline`` importable; processes that are started later inherit the search path.

    Raises:
        SynclineError: the package is installed without its checkout.
    """
    if not has_replication():
        raise SynclineError(f"replication: not installed; {NOT_HERE}")
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return import_module(f"replication.{module}")
