"""Folders of results of every kind, and what can happen to their files between two commands.

The folders are made once on the machine that runs the tests; no process is started for them.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import syncline as sl
from replication.replications.replicate import replicate
from syncline.measure.recording.ranks import ForeignScript
from syncline.measure.replaying.scenario import Changes, ReplayedOn
from syncline.measure.replaying.trace import trace, whatif
from syncline.runs.folders.result_files import json_value
from syncline.runs.sweep.sweep import sweep
from tests.measure.replaying.records import LINK, SLOW, both
from tests.replication.replications.small import tiny, tiny_file
from tests.robustness.mutations import changed
from tests.robustness.test_writes import WRITERS

BOWL = {"kind": "quadratic", "spectrum": [1, 10], "noise_std": 0.1}
SMALL: dict[str, Any] = {"problem": BOWL, "workers": 2, "steps": 3, "seeds": [0, 1], "compute": {"seconds": "1 ms"}}
METHODS = ["ddp-adam", {"kind": "local", "lr": 0.01, "period": 2}]
RUN = {"kind": "run", "name": "bowl", "method": METHODS[1], "network": "wan", "timeline_steps": 1, **SMALL}


def _trace(out: Path) -> None:
    question = ReplayedOn([LINK], SLOW, "ring")
    program = ForeignScript("train.py", function=both)
    trace([program], 2, question, out, exact=True, run=lambda *_: both(3))


def _whatif(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _trace(Path(folder) / "trace")
        whatif([Path(folder) / "trace"], ReplayedOn([LINK], SLOW, "ring", changes=Changes(0.5)), out, exact=True)


def _replication(out: Path) -> None:
    out.mkdir()
    spec = tiny(out)
    replicate(spec, out, jobs=1, command=f"syncline replicate {tiny_file(out)}")


KINDS: dict[str, Callable[[Path], object]] = {
    "run": lambda out: sl.run(RUN).save(out),
    "compare": lambda out: sl.compare(methods=METHODS, networks=["10gbe", "wan"], jobs=1, **SMALL).save(out),
    "pipeline": lambda out: sl.pipeline(schedules=["gpipe", "1f1b"], stages=2, microbatches=2).save(out),
    "collectives": lambda out: sl.collectives(4, "1 MB", ["10gbe"], collectives=["all_reduce"]).save(out),
    "project": lambda out: sl.project("project-gpt-160m", workers=[2]).save(out),
    "study": lambda out: sl.run("lion-cub-ties", votes=100).save(out),
    "sweep": lambda out: sweep(RUN, {"method.lr": [0.1, 0.2], "network": ["10gbe", "wan"]}, seeds=2, out=out, jobs=1),
    "launch": WRITERS["launch"].write,
    "validate": WRITERS["validate"].write,
    "trainings": WRITERS["validate trainings"].write,
    "trace": _trace,
    "whatif": _whatif,
    "replication": _replication,
}
"""What makes a folder of each kind."""

Files = dict[str, bytes]
"""The files of a folder, by their path in it."""


@cache
def folder_files(kind: str) -> Files:
    """The files of a folder of this kind."""
    with tempfile.TemporaryDirectory(prefix="syncline-kinds-") as somewhere:
        out = Path(somewhere) / kind
        KINDS[kind](out)
        return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def damaged(files: Files, draw: random.Random) -> str:
    """Change one file of a folder, and say how.

    A value of None stands for a folder in the place of the file.
    """
    if not files:
        return "nothing is left"
    at_top = [path for path in files if "/" not in path]
    path = draw.choice(at_top if at_top and draw.random() < 0.75 else list(files))
    ways: dict[str, list[Callable[[bytes, random.Random], bytes]]] = {
        ".json": [_fields, _fields, _fields], ".yaml": [_fields, _fields], ".parquet": [_table, _table, _table],
    }  # fmt: skip
    way = draw.choice(["removed", "replaced", _cut, _garbled, *ways.get(Path(path).suffix, [])])
    if way == "removed":
        del files[path]
    elif way == "replaced":
        files[path] = None
    else:
        try:
            files[path] = way(files[path], draw)
        except (  # it was damaged before
            ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, yaml.YAMLError,
            pa.ArrowException,
        ):  # fmt: skip
            files[path] = b""
    return f"{path} {getattr(way, '__name__', way)}"


def _cut(data: bytes, draw: random.Random) -> bytes:
    return draw.choice([b"", data[: draw.randrange(len(data) + 1)], data + data[:10]])


def _garbled(data: bytes, draw: random.Random) -> bytes:
    bad = [b"null", b"[]", b"{}", b"[" * 5000, b'"x"', b"\x00", b'{"rows": [1]}', b'{"rows": {}}', b"\xff\xfe"]
    if not data or draw.random() < 0.3:
        return draw.choice(bad)
    flipped = bytearray(data)
    for _ in range(draw.choice([1, 3, 30])):
        flipped[draw.randrange(len(flipped))] = draw.randrange(256)
    return bytes(flipped)


def _fields(data: bytes, draw: random.Random) -> bytes:
    """Change fields of a JSON or a YAML file: half of the time, of what is printed."""
    text = data.decode()
    is_json = text.startswith(("{", "["))
    fields = json.loads(text) if is_json else yaml.safe_load(text)
    rows = fields.get("rows") if isinstance(fields, dict) else None
    inner = {"rows": rows} if rows and draw.random() < 0.5 else fields
    changed(inner, draw, draw.choice([1, 1, 2]))
    fields |= inner
    return (json.dumps(json_value(fields)) if is_json else yaml.safe_dump(fields, sort_keys=False)).encode()


def _table(data: bytes, draw: random.Random) -> bytes:
    """Change a table: its rows, a column, a type, what its metadata tells."""
    table = pq.read_table(pa.BufferReader(data))
    name = draw.choice(table.column_names)
    at = table.column_names.index(name)
    how = draw.randrange(9)
    if how == 0:
        table = table.drop_columns([name])
    elif how == 1:
        texts = [None if value is None else str(value) for value in table[name].to_pylist()]
        table = table.set_column(at, name, pa.array(texts, pa.string()))
    elif how == 2:
        table = table.set_column(at, name, pa.nulls(len(table), table.schema.field(at).type))
    elif how == 3:
        table = table.slice(0, draw.randrange(len(table) + 1))
    elif how == 4:
        table = table.take(draw.sample(range(len(table)), len(table)))
    elif how == 5:
        table = table.replace_schema_metadata(draw.choice([None, {"syncline": "{}"}, {"stage": "x", "about": "[1]"}]))
    elif how == 6:
        value = draw.choice([float("nan"), float("inf"), -1.0, 0.0, 1e300, 2.0**62])
        table = table.set_column(at, name, pa.array([value] * len(table)))
    elif how == 7:
        table = table.rename_columns([f"{one}s" if one == name else one for one in table.column_names])
    else:
        table = pa.concat_tables([table, table])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def write_files(files: Files, folder: Path) -> None:
    """Put the files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if data is None else path.write_bytes(data)
