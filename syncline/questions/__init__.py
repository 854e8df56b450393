"""Questions, one file each: the arguments of a function of ``syncline`` and the options of its command, declared once.

``declare`` has the base class and the fields, ``shared`` the fields that several questions have. The files load nothing
heavy, because ``syncline --help`` reads all of them.
"""

from __future__ import annotations

from importlib import import_module

from syncline.questions.declare import Question


def question_of(command: str) -> type[Question]:
    """Return the question of a command: ``Advise`` of ``syncline.questions.advise``."""
    question: type[Question] = getattr(import_module(f"syncline.questions.{command}"), command.capitalize())
    return question
