"""Text to learn from: the source of Python's standard library or of PyTorch, or a file of the user's."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sysconfig
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

from syncline.errors import SpecError

HELD_OUT_ONE_IN = 10
# Installed packages and caches are not the standard library, and its tests would be 60 % of the bytes.
SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
# Written when Python is built or installed: they differ between machines with the same version.
SKIPPED_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize")


@dataclass(frozen=True)
class Corpus:
    """Bytes to train on and bytes to validate on.

    Args:
        name: source of the text.
        train: ``(n,)`` uint8.
        validation: ``(m,)`` uint8.
        sha256: checksum of the training bytes followed by the validation bytes; for a user's file, of the file.
    """

    name: str
    train: Tensor
    validation: Tensor
    sha256: str


@cache
def standard_library() -> Corpus:
    """Return about 12 MB of Python: the standard library of the running interpreter, without its tests.

    Files come in the order of their paths; see ``held_out`` for which of them are for validation.

    Raises:
        SpecError: this interpreter comes without the source of its library.
    """
    root = Path(sysconfig.get_path("stdlib"))
    return _of_files(f"standard library of Python {platform.python_version()}", root, SKIPPED_FOLDERS)


@cache
def torch_source() -> Corpus:
    """Return about 41 MB of Python: the source of the installed PyTorch, without its tests.

    Raises:
        SpecError: it was installed without its source.
    """
    module_spec = importlib.util.find_spec("torch")
    root = Path(module_spec.origin or ".").parent if module_spec else Path()
    return _of_files(f"source of PyTorch {metadata.version('torch')}", root, SKIPPED_FOLDERS | {"testing"})


TEXTS: Mapping[str, Callable[[], Corpus]] = {"standard-library": standard_library, "torch": torch_source}
"""Texts that are wherever Syncline is."""


def _of_files(name: str, root: Path, skipped: Set[str]) -> Corpus:
    train, validation = bytearray(), bytearray()
    for path in library_files(root, skipped):
        (validation if is_held_out(path) else train).extend((root / path).read_bytes())
    if not train:
        raise SpecError("problem.path", None, f"the path of a text file, as {root} holds no Python source")
    return _corpus(name, train, validation)


def library_files(root: Path, skipped: Set[str] = SKIPPED_FOLDERS) -> list[str]:
    """Return the sorted paths, relative to ``root`` and with forward slashes, of the Python files in the corpus.

    Args:
        root: folder of the library.
        skipped: names of folders that are left out.
    """
    paths = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in skipped and _portable(name)]
        files = (Path(folder, name) for name in names if name.endswith(".py") and _portable(name))
        paths += [file.relative_to(root).as_posix() for file in files]
    return sorted(paths)


def _portable(name: str) -> bool:
    return not name.startswith(SKIPPED_PREFIXES)


def is_held_out(path: str) -> bool:
    """Return whether the file is for validation: one in ten, by the SHA-256 of its relative path.

    A file is on the same side on every machine and in every version of Python.
    """
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") % HELD_OUT_ONE_IN == 0


def text_file(path: str | Path) -> Corpus:
    """Return the bytes of a file, whatever they encode: the last tenth is for validation.

    Raises:
        SpecError: the file cannot be read, or is empty.
    """
    try:
        text = bytearray(Path(path).expanduser().read_bytes())
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SpecError("problem.path", str(path), f"a text file that can be read ({reason})") from None
    if not text:
        raise SpecError("problem.path", str(path), "a text file that is not empty")
    cut = len(text) - len(text) // HELD_OUT_ONE_IN
    return _corpus(Path(path).name, text[:cut], text[cut:])


def _corpus(name: str, train: bytearray, validation: bytearray) -> Corpus:
    digest = hashlib.sha256(train)
    digest.update(validation)
    return Corpus(name, _tensor(train), _tensor(validation), digest.hexdigest())


def _tensor(text: bytearray) -> Tensor:
    # torch.frombuffer takes no empty buffer, which the validation part of a very short file is.
    return torch.frombuffer(text, dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)
