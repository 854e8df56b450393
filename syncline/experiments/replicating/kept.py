"""What is kept of a stage that is whole: a table, with what it was made of and by which code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from syncline.errors import SpecError
from syncline.experiments.plain import plain
from syncline.experiments.result_files import read_parquet
from syncline.files import as_written, whole_file

IDENTITY, ABOUT = b"stage", b"about"
"""Of a table's metadata: a digest of all that was asked for; and commit, versions, day, trainings, seconds."""

StageRows = list[dict[str, Any]]


@dataclass(frozen=True)
class KeptStage:
    """A stage's rows, and what is to be said of how they were made."""

    rows: StageRows
    about: Mapping[str, Any]


def stage_table(folder: Path, stage: str) -> Path:
    """Where a stage's table is.

    >>> stage_table(Path("mt-dao"), "extra K8").as_posix()
    'mt-dao/extra-K8.parquet'
    """
    return folder / f"{stage.replace(' ', '-')}.parquet"


def read_stage(path: Path, identity: str) -> KeptStage | None:
    """A stage that is whole; None if it is not.

    Raises:
        SpecError: the file is of another spec, as another number of seeds.
    """
    if not path.is_file():
        return None
    found, kept = stage_in(path)
    if found != identity:
        raise SpecError("--out", str(path.parent), f"a folder without results of another spec: {path.name} is of one")
    return kept


def stage_in(path: Path) -> tuple[str, KeptStage]:
    """The digest of what was asked for, and the stage, of a table that is there.

    Raises:
        SynclineError: it is not as it was written.
    """
    with as_written(path.parent):
        table = read_parquet(path, {})
        metadata = table.schema.metadata or {}
        rows: StageRows = table.to_pylist()
        return metadata[IDENTITY].decode(), KeptStage(rows, json.loads(metadata[ABOUT]))


def keep_stage(path: Path, rows: Sequence[Mapping[str, Any]], identity: str, about: Mapping[str, Any]) -> KeptStage:
    """Write the table of a stage that is whole."""
    table = pa.Table.from_pylist([dict(row) for row in rows])
    told = json.dumps(plain(about), sort_keys=True)
    with whole_file(path) as working:
        pq.write_table(
            table.replace_schema_metadata({IDENTITY: identity.encode(), ABOUT: told.encode()}),
            working,
            compression="zstd",
        )
    return KeptStage([dict(row) for row in rows], json.loads(told))
