"""The manifest of a result folder: a SHA-256 hash of each file, written last.

A folder inside that has its own manifest (a run of a sweep) is listed by that manifest alone, so a change anywhere
below changes a hash above. The manifest shows damage; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncline.errors import SpecError
from syncline.files import read_json, refuse_changed_files

MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Write the hashes of all files in a folder, as the last file of it."""
    working = folder / f".{MANIFEST}.partial"  # a fixed name: one process writes a folder, a kill leaves one file
    working.unlink(missing_ok=True)
    files = {name: _entry(folder / name) for name in _names(folder)}
    working.write_text(json.dumps({"hash": "sha256", "files": files}, indent=1) + "\n", encoding="utf-8")
    working.replace(folder / MANIFEST)


def remove_manifest(folder: Path) -> None:
    """Remove the manifest, because files of the folder will change; `write_manifest` follows."""
    (folder / MANIFEST).unlink(missing_ok=True)


def verify(folder: Path) -> list[dict[str, str]]:
    """Compare a folder with its manifest, and the folders inside with theirs.

    Returns:
        A row for each file that differs: its ``state``, which is ``missing``, ``changed`` or ``added``, and ``file``.

    Raises:
        SpecError: the folder has no manifest.
        SynclineError: the manifest cannot be read.
    """
    if not (folder / MANIFEST).is_file():
        expected = f"a folder with a {MANIFEST}, which the command that fills the folder writes last"
        raise SpecError("run", str(folder), expected)
    with refuse_changed_files(folder):
        listed: dict[str, Any] = dict(read_json(folder / MANIFEST)["files"])
    names = list(_names(folder))
    rows = [{"state": "missing", "file": name} for name in listed if name not in names]
    for name in names:
        if name not in listed:
            rows.append({"state": "added", "file": name})
        elif not stat.S_ISREG((folder / name).lstat().st_mode) or _entry(folder / name) != listed[name]:
            rows.append({"state": "changed", "file": name})
        if "/" in name and name.endswith(f"/{MANIFEST}"):
            inside = name.removesuffix(MANIFEST)
            rows += [row | {"file": inside + row["file"]} for row in verify(folder / inside)]
    return sorted(rows, key=lambda row: row["file"])


def num_files(folder: Path) -> int:
    """Return the number of files that the manifest of a folder and those of the folders inside list."""
    inside = [folder / name.removesuffix(MANIFEST) for name in _names(folder) if name.endswith(f"/{MANIFEST}")]
    return len(read_json(folder / MANIFEST)["files"]) + sum(map(num_files, inside))


def _names(folder: Path, inside: str = "") -> Iterator[str]:
    """Yield the files of a folder by their paths in it; of a folder inside with a manifest, the manifest alone."""
    for path in sorted((folder / inside).iterdir()):
        name = f"{inside}{path.name}"
        if not path.is_dir() or path.is_symlink():
            if name != MANIFEST:
                yield name
        elif (path / MANIFEST).is_file():
            yield f"{name}/{MANIFEST}"
        else:
            yield from _names(folder, f"{name}/")


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
