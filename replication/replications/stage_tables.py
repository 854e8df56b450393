"""Tables of completed stages, with the spec and the code version that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from syncline import SpecError
from syncline.files import atomic_path, refuse_changed_files
from syncline.runs.folders.result_files import json_value, read_parquet

IDENTITY, ABOUT = b"stage", b"about"
"""Keys of a table's metadata: a digest of the stage's spec; and commit, versions, day, trainings, seconds."""

StageRows = list[dict[str, Any]]


@dataclass(frozen=True)
class CompletedStage:
    """A stage's rows, and facts about how they were made."""

    rows: StageRows
    about: Mapping[str, Any]


def stage_table(folder: Path, stage: str) -> Path:
    """Return the path of a stage's table.

    >>> stage_table(Path("mt-dao"), "extra K8").as_posix()
    'mt-dao/extra-K8.parquet'
    """
    return folder / f"{stage.replace(' ', '-')}.parquet"


def read_stage(path: Path, identity: str) -> CompletedStage | None:
    """Return a completed stage; None if it is not complete.

    Raises:
        SpecError: the file belongs to another spec, for example with another number of seeds.
    """
    if not path.is_file():
        return None
    digest, stage = stage_in(path)
    if digest != identity:
        raise SpecError("--out", str(path.parent), f"a folder without results of another spec: {path.name} is of one")
    return stage


def stage_in(path: Path) -> tuple[str, CompletedStage]:
    """Return the digest of the spec, and the stage, from an existing table.

    Raises:
        SynclineError: the table was changed after it was written.
    """
    with refuse_changed_files(path.parent):
        table = read_parquet(path, {})
        metadata = table.schema.metadata or {}
        rows: StageRows = table.to_pylist()
        return metadata[IDENTITY].decode(), CompletedStage(rows, json.loads(metadata[ABOUT]))


def keep_stage(
    path: Path, rows: Sequence[Mapping[str, Any]], identity: str, about: Mapping[str, Any]
) -> CompletedStage:
    """Write the table of a completed stage."""
    table = pa.Table.from_pylist([dict(row) for row in rows])
    about_json = json.dumps(json_value(about), sort_keys=True)
    with atomic_path(path) as working:
        pq.write_table(
            table.replace_schema_metadata({IDENTITY: identity.encode(), ABOUT: about_json.encode()}),
            working,
            compression="zstd",
        )
    return CompletedStage([dict(row) for row in rows], json.loads(about_json))
