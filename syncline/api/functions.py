"""The functions of ``import syncline as sl`` that answer questions, each made from its question's declaration."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from syncline.api.arguments import function_of
from syncline.questions import question_of

ANSWERS = {
    "advise": "advice", "calibrate": "trainings", "collectives": "collectives", "compare": "trainings",
    "goodput": "goodput", "launch": "trainings", "loss": "losses", "pipeline": "trainings", "project": "projection",
    "replicate": "trainings", "report": "folders", "reproduce": "trainings", "run": "trainings", "solve": "solving",
    "sweep": "trainings", "trace": "trainings", "whatif": "trainings",
}  # fmt: skip
"""The module of ``syncline.api`` that has the function ``answer_NAME`` of each question."""


def answer(question: Any, *progress: Any) -> Any:
    """Return the answer to a question, usually a `Result`; a training also takes an object that shows its progress."""
    module = import_module(f"syncline.api.{ANSWERS[question.command]}")
    return getattr(module, f"answer_{question.command}")(question, *progress)


def __getattr__(name: str) -> Any:
    """Return the public function of a question, made when it is first used."""
    if name not in ANSWERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = function = function_of(question_of(name), answer)
    return function
