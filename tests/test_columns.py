"""Columns are declared once: names, headings, units, formats and types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from syncline.columns import FORMATS, UNITS, column_of, columns, described, records
from syncline.runs.folders.result_files import TYPES

CONVERTED = {"peak_flops": "FLOP/s", "flops_per_s": "FLOP/s"}
"""Units that the ends of names do not have."""


@pytest.mark.parametrize("column", columns().values(), ids=lambda column: column.name)
def test_a_declaration_is_known_to_those_who_read_it(column):
    assert not column.type or column.type in TYPES or column.type in ("number?", "bool?", "list?", "object?")
    if column.format not in FORMATS and column.format:
        assert format(0.5, column.format)
    ends = [unit for end, unit in UNITS.items() if column.name.endswith(end)]
    assert column.unit in (ends[0] if ends else column.unit, CONVERTED.get(column.name), "")
    assert column.header and column.meaning == column.meaning.strip()


def test_no_column_is_declared_for_nothing():
    used = {name for names in records().values() for name in names}
    assert used <= {*columns()}
    assert all(meaning for names in records().values() for meaning in names.values())


def test_a_parquet_field_has_its_unit_and_its_meaning():
    loss = pa.field("loss", pa.float64(), metadata={"unit": "nats"})
    fields = [("seconds", pa.float64()), loss, ("own_wait_s", pa.float64()), ("note", pa.string())]
    schema = described(pa.schema(fields), "curves.parquet")
    assert schema.field("seconds").metadata == {b"unit": b"s", b"meaning": b"when the last worker finishes the step"}
    assert schema.field("loss").metadata[b"unit"] == b"nats"
    assert schema.field("own_wait_s").metadata == {b"unit": b"s"} and schema.field("note").metadata is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_time_s", 0.0951, "95.1 ms"), ("bandwidth_bytes_per_s", 1.25e9, "10 Gbit/s"), ("speedup", 31.25, "31.2x"),
        ("utilisation", 0.4321, "43.2%"), ("tokens", 26e9, "26 B"),
        ("loss", 2.5, "2.500"), ("energy_j", 3.6e9, "1 MWh"),
        ("not_declared", 1234, "1,234"), ("not_declared", np.int64(1234), "1,234"), ("loss", float("nan"), "-"),
        ("not_declared", {"a": [1, 2]}, "a=[1, 2]"), ("not_declared", None, "-"),
    ],
)  # fmt: skip
def test_a_name_has_one_format(name, value, text):
    assert column_of(name).text(value) == text
