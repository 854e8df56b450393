"""Lists of prices as users write them: names, files, fields, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.costmodel.prices import PRICES, Prices
from syncline.errors import SpecError
from syncline.specs.cluster.hardware import parse_prices


def test_a_name_a_file_fields_or_a_list(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("accelerator_hour: 2.5\negress_gb: 0.02\nsource: our contract, 2026-11-01\n")
    read = parse_prices(str(file))
    assert read == Prices(accelerator_hour=2.5, egress_gb=0.02, name="ours", source="our contract, 2026-11-01")
    assert parse_prices(file) == read == parse_prices(read)
    assert parse_prices({"accelerator_hour": 2.5}) == Prices(accelerator_hour=2.5)
    assert parse_prices("aws-p5-2026-11") is PRICES["aws-p5-2026-11"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            "aws-p5",
            r"prices: got 'aws-p5'; expected one of 'aws",
        ),
        ("nowhere.yaml", "prices: got 'nowhere.yaml'; expected a file that can be read"),
        (
            {"accelerator_hours": 2},
            "accelerator_hours: got 2; expected no such field here, but one",
        ),
        ({"accelerator_hour": "cheap"}, "accelerator_hour: got 'cheap'"),
        ({"pue": 0.5}, r"prices\.pue: got 0\.5; expected at least 1"),
        (7, "prices: got 7; expected prices, as in"),
    ],
)
def test_what_is_no_list_is_refused(given: object, line: str) -> None:
    with pytest.raises(SpecError, match=line):
        parse_prices(given)
