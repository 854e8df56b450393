"""A replication of milliseconds that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from replication.replications.spec import ReplicationSpec, load_replication
from syncline.specs.load import with_overrides

TINY = """
kind: replication
name: tiny
training:
  problem: {kind: quadratic, spectrum: [1.0, 0.1], noise_std: 0.1}
  workers: 2
  steps: 8
  eval_every: 4
  compute: {seconds: 1e-3}
methods:
  - {method: {kind: ddp, label: together, rule: sgdm, lr: 0.1}, tune: {lr: 1e-3..1.0}}
  - {method: {kind: local, label: apart, rule: sgdm, period: 2, lr: 0.1}, tune: {lr: 1e-3..1.0}}
search: {trials: 3, seeds: [101]}
rerun: {top_trials: 2, seeds: [102]}
finals: {seeds: 5}
extras:
  - {name: K4, methods: [apart], seeds: 2, set: {method.period: 4}}
claims:
  - {claim: apart is better, comparisons: [{lower: apart, higher: together}], settled_by: another problem}
  - {claim: rare is worse, comparisons: [{lower: apart, higher: apart @ K4}], settled_by: more seeds}
scales:
  gpu: {training.steps: 12}
"""
TRAININGS = 2 * 3 + 2 * 2 + 2 * 5 + 2


def tiny_file(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    """The replication as a file, with other values for some fields."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(with_overrides(yaml.safe_load(TINY.replace("1e-3}", "0.001}")), changes or {})))
    return path


def tiny(folder: Path, changes: dict[str, Any] | None = None) -> ReplicationSpec:
    """The replication."""
    return load_replication(tiny_file(folder, changes))
