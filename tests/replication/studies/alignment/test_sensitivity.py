"""Every field of the alignment and swings specs moves a number; a new field without an entry here fails."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from replication.studies.alignment import AlignmentSpec
from replication.studies.alignment.spec import RandomQuadraticsSpec, TrapSpec
from replication.studies.swings import SwingsSpec
from syncline.specs import load_spec, study_of

FOR_PEOPLE = {"kind", "name", "description", "source"}

QUADRATIC = {
    "seeds": "[0]",
    "angles_deg": "[0, 30]",
    "methods": "[adam]",
    "steps": "200",
    "random_quadratics": "{problems: 3, draws: 2}",
}
SPIRAL = {
    "angles_deg": "[0, 40]",
    "methods": "[rotated-ema]",
    "rates": "[0.01]",
    "steps": "200",
    "trap": "{rates: [0.1], radii: [0.8, 1.5], steps: 200}",
}
SWINGS = {
    "problem": "{kind: text-gpt, layers: 2, width: 4, heads: 1, context: 8, batch_size: 2, tied: false}",
    "stages": "[2]",
    "methods": "[ddp-adam]",
    "at_step": "3",
    "window": "4",
    "iterations": "2",
    "draws": "2",
    "batches": "2",
    "seeds": "[0]",
}

ON_QUADRATIC = {
    "problem": "{kind: quadratic, spectrum: [9, 1], start: [-20, 30]}",
    "angles_deg": "[0, 20]",
    "methods": "[ada-sgd]",
    "rates": "[0.5]",
    "beta2": "0.5",
    "delay": "1",
    "steps": "30",
    "target_loss": "40",
    "seeds": "[1]",
    "random_quadratics": "null",
    "random_quadratics.problems": "4",
    "random_quadratics.seed": "1",
    "random_quadratics.draws": "3",
    "random_quadratics.condition": "[5, 6]",
    "random_quadratics.radius": "[20, 21]",
    "random_quadratics.beta2": "[0.3]",
    "random_quadratics.delay": "[7]",
}
ON_SPIRAL = {
    "target_turn_deg": "2",
    "trap": "null",
    "trap.rates": "[0.05]",
    "trap.radii": "[0.9, 1.5]",
    "trap.steps": "300",
    "trap.escape_distance": "0.01",
}
ON_SWINGS = {
    "problem": "{kind: text-gpt, layers: 2, width: 8, heads: 1, context: 8, batch_size: 2, tied: false}",
    "stages": "[1]",
    "methods": "[basis-rotation]",
    "at_step": "4",
    "window": "5",
    "iterations": "1",
    "draws": "3",
    "batches": "1",
    "schedule": "{warmup_steps: 2}",
    "seeds": "[1]",
}


def numbers(spec: Any) -> tuple[list[Any], list[Any]]:
    study = study_of(spec)
    records = study.records(spec)
    return records, study.rows(spec, records)


def overrides(own: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in own.items()]


@cache
def base(name: str) -> tuple[list[Any], list[Any]]:
    return moved(name, "", "")


def moved(name: str, field: str, value: str) -> tuple[list[Any], list[Any]]:
    bundled, own, kind = {
        "plain": ("basis-rotation-fig3", QUADRATIC | {"random_quadratics": "null"}, AlignmentSpec),
        "quadratic": ("basis-rotation-fig3", QUADRATIC, AlignmentSpec),
        "spiral": ("basis-rotation-fig4", SPIRAL, AlignmentSpec),
        "swings": ("basis-rotation-fig12", SWINGS, SwingsSpec),
    }[name]
    return numbers(load_spec(bundled, [*overrides(own), *([f"{field}={value}"] if field else [])], kind))


CASES = [
    *(("quadratic" if item[0].startswith("random_quadratics") else "plain", *item) for item in ON_QUADRATIC.items()),
    *(("spiral", *item) for item in ON_SPIRAL.items()),
    *(("swings", *item) for item in ON_SWINGS.items()),
]


@pytest.mark.parametrize(("name", "field", "value"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_field_moves_a_number(name: str, field: str, value: str) -> None:
    assert moved(name, field, value) != base(name)


def test_every_field_has_an_entry() -> None:
    told = set(ON_QUADRATIC) | set(ON_SPIRAL)
    fields = set(AlignmentSpec.model_fields) - FOR_PEOPLE
    fields |= {f"random_quadratics.{name}" for name in RandomQuadraticsSpec.model_fields}
    fields |= {f"trap.{name}" for name in TrapSpec.model_fields}
    assert told == fields
    assert set(ON_SWINGS) == set(SwingsSpec.model_fields) - FOR_PEOPLE
