"""The functions of ``import syncline as sl`` that answer questions, each made from its question's declaration."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from syncline.api.arguments import function_of
from syncline.questions import question_of

ANSWERS = {
    "advise": "clock", "calibrate": "trainings", "collectives": "clock", "compare": "trainings",
    "goodput": "clock", "launch": "trainings", "loss": "clock", "pipeline": "trainings", "project": "projection",
    "replicate": "trainings", "report": "folders", "reproduce": "trainings", "run": "trainings", "solve": "clock",
    "sweep": "trainings", "trace": "trainings", "whatif": "trainings",
}  # fmt: skip
"""The module of this room with ``answer_NAME``, the function that answers the question NAME."""


def answer(question: Any, *progress: Any) -> Any:
    """Return the result that answers a question; the answers of trainings take an object that shows their progress."""
    module = import_module(f"syncline.api.{ANSWERS[question.command]}")
    return getattr(module, f"answer_{question.command}")(question, *progress)


def __getattr__(name: str) -> Any:
    """Return the function of a question.

    Raises:
        AttributeError: there is no such question.
    """
    if name not in ANSWERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = function = function_of(question_of(name), answer)
    return function
