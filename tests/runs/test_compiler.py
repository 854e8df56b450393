"""Torch's compiler takes a second to load: who asks for none of it waits for none."""

from __future__ import annotations

import subprocess
import sys

TRAINING = """
import sys
from syncline.runs.training.train_and_time import train_method
from syncline.specs import load_spec
method = {"kind": "ddp", "rule": "adam", "lr": 0.001}
problem = {"kind": "text-gpt", "width": 8, "layers": 1, "heads": 1, "context": 8}
spec = load_spec("compare-text", {"problem": problem, "steps": 2, "schedule": {}, "methods": [method]})
train_method(spec, spec.methods[0])
print("torch._dynamo" in sys.modules)
"""


def test_a_training_loads_no_compiler() -> None:
    assert subprocess.check_output([sys.executable, "-c", TRAINING], text=True).split() == ["False"]
