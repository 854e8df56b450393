"""What predictions of others' measurements rest on: the file that ships, and how many measurements are within."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from syncline.costmodel.bases import PIPELINES_ON_LINES, nvlink_basis
from syncline.costmodel.numerics.uncertainty import uncertainties
from syncline.measure.validation.published import has_usual_network
from syncline.measure.validation.residuals import (
    ANOTHER_SHAPE,
    bases_of,
    covered_by_others,
    is_within,
    with_uncertainty,
)
from tests.measure.validation.priced import bundled_rows
from tests.measure.validation.uncertainties import (
    NO_TENSOR,
    Residuals,
    measured_uncertainties,
    residuals_by_source,
    shape_uncertainty,
    sources_left_out,
)


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [with_uncertainty(row) for row in bundled_rows()]


@pytest.fixture(scope="module")
def by_source() -> Residuals:
    return residuals_by_source()


def test_what_ships_is_what_the_measurements_say(by_source: Residuals) -> None:
    told, shipped = measured_uncertainties(by_source), dict(uncertainties())
    del shipped[NO_TENSOR + ANOTHER_SHAPE], shipped[PIPELINES_ON_LINES]
    assert set(told) == set(shipped)
    for basis, one in told.items():
        of = shipped[basis]
        assert (of.low, of.high, of.points) == (
            pytest.approx(one.low, abs=2e-4),
            pytest.approx(one.high, abs=2e-4),
            one.points,
        )
        assert of.scope.columns() == one.scope.columns() and of.sources == one.sources


def test_intervals_hold_for_sources_left_out(by_source: Residuals) -> None:
    """Nine of ten rows of each source are within the bounds of the others: 80 to 97 % of all of them.

    A basis of few sources has wide bounds, so that it may cover all; no basis covers less than 80 %.
    """
    rows, hits, sources = 0, 0.0, set()
    for basis, residuals in by_source.items():
        left_out = sources_left_out(residuals)
        count = sum(count for count, _, _ in left_out.values())
        covered = sum(count * part for count, part, _ in left_out.values())
        assert count == 0 or covered / count >= 0.8, basis
        rows, hits, sources = rows + count, hits + covered, sources | {*left_out}
    assert 0.8 <= hits / rows <= 0.97
    assert rows > 500 and len(sources) > 12


@pytest.mark.slow
def test_shapes_that_nobody_measured_are_told_from_cells_left_out() -> None:
    told, shipped = shape_uncertainty(), uncertainties()[NO_TENSOR + ANOTHER_SHAPE]
    assert (told.low, told.high) == pytest.approx((shipped.low, shipped.high), abs=2e-3)
    assert told.half_width > 2 * uncertainties()[NO_TENSOR].half_width


def test_most_measurements_are_within_what_the_others_say(rows: list[dict]) -> None:
    """Of each regime with 20 rows and more 80 to 97 %, with intervals that tell something."""
    hits, widths, errors = defaultdict(list), defaultdict(list), defaultdict(list)
    for row, hit in zip(rows, covered_by_others(rows), strict=True):
        if hit is not None:
            hits[row["regime"]].append(hit)
            widths[row["regime"]].append((row["high_ms"] - row["low_ms"]) / 2 / row["predicted_ms"])
            errors[row["regime"]].append(abs(row["error"]))
    large = [regime for regime, of in hits.items() if len(of) >= 20]
    by_machine = [regime for regime in large if "NVLink, one node" in regime]  # bounds from machines left out
    trainings = [row["regime"] for row in rows if "global_batch" in row]  # bounds from sources left out, below
    large = [regime for regime in large if regime not in trainings]
    assert len(large) == 4 + len(by_machine)
    assert all(np.mean(hits[regime]) >= 0.8 and np.median(errors[regime]) < 0.13 for regime in by_machine)
    for regime in set(large) - set(by_machine):
        assert 0.8 <= np.mean(hits[regime]) <= 0.97, regime
        assert np.median(errors[regime]) < 0.05 and np.median(widths[regime]) < 0.15, regime
    assert 0.85 < np.mean([hit for of in hits.values() for hit in of]) < 0.97
    dense = [hit for regime in dict.fromkeys(trainings) if "experts" not in regime for hit in hits[regime]]
    assert 0.8 <= np.mean(dense) <= 0.97


def test_every_row_says_what_it_rests_on(rows: list[dict]) -> None:
    for row in rows:
        assert 0 < row["low_ms"] <= row["predicted_ms"] <= row["high_ms"]
        if "micro_batch" not in row or has_usual_network(row):  # others have the bounds of their projection
            assert any(row["basis"].endswith(f"residuals of {basis}") for basis in bases_of(row))
        if "predicted_mean_ms" in row:
            assert row["low_mean_ms"] <= row["predicted_mean_ms"] <= row["high_mean_ms"]


def test_numbers_of_gpus_between_and_beyond_those_that_were_measured() -> None:
    names = [nvlink_basis("a100", gpus, 2.0**20) for gpus in (2, 3, 7, 8, 9, 16)]
    assert names[0] == names[3] and names[1] == names[2] and names[4] == names[5]
    assert uncertainties()[names[0]].half_width < uncertainties()[names[1]].half_width
    assert nvlink_basis("a100", 3, 2.0**30) != names[1]


def test_what_is_within() -> None:
    of = uncertainties()["nccl, shaped"]
    assert is_within(0.0, of) and not is_within(1.0, of) and not is_within(-0.5, of)


def test_rows_nobody_measured_the_like_of_fall_back(rows: list[dict]) -> None:
    def rebased(row: dict, **changes: str) -> dict:
        return with_uncertainty({name: value for name, value in row.items() if name != "basis"} | changes)

    gpt = next(row for row in rows if row["regime"] == NO_TENSOR)
    other = rebased(gpt, **{"hidden size": "4096"})
    assert other["basis"].endswith(ANOTHER_SHAPE) and other["high_ms"] > gpt["high_ms"]
    fast = next(row for row in rows if row.get("bw") == "unshaped")
    assert rebased(fast, bw="5g")["basis"] == fast["basis"] != rebased(fast, bw="1g")["basis"]
