"""Questions: the arguments of a function of ``syncline`` and the options of its command, declared once.

``declare`` has the base class and the fields, ``shared`` the fields that several questions have. The other modules load
nothing heavy, because ``syncline --help`` reads all of them.
"""

from __future__ import annotations

from importlib import import_module

from syncline.questions.declare import Question

MODULES = {
    "compare": "trainings", "run": "trainings", "sweep": "trainings", "best": "trainings", "replicate": "trainings",
    "launch": "processes", "torchrun": "processes", "calibrate": "processes", "validate": "processes",
    "project": "projections", "solve": "projections", "advise": "projections", "collectives": "clock",
    "pipeline": "clock", "goodput": "clock", "loss": "clock", "explore": "explore", "runs": "results",
    "show": "results", "verify": "results", "rm": "results", "same": "results", "report": "results",
    "list": "catalogue", "reproduce": "catalogue", "doctor": "catalogue", "trace": "scripts", "whatif": "scripts",
    "chakra": "scripts",
}  # fmt: skip
"""The module of this package that declares the question of each command."""


def question_of(command: str) -> type[Question]:
    """Return the class of a command's question: ``Advise`` for ``advise``."""
    module = import_module(f"syncline.questions.{MODULES[command]}")
    question: type[Question] = getattr(module, command.capitalize())
    return question
