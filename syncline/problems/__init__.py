"""What is optimised: landscapes, a small classifier, a teacher and its student, a small GPT, and their data."""

from __future__ import annotations

from syncline.problems.base import Problem, Rows, Task
from syncline.problems.delayed import DelayedTask
from syncline.problems.digits import Digits
from syncline.problems.partition import coordinate_delays, cut, parameter_stages
from syncline.problems.quadratic import Quadratic
from syncline.problems.rosenbrock import Rosenbrock
from syncline.problems.spiral import Spiral
from syncline.problems.teacher_student import TeacherStudent
from syncline.problems.text_gpt import TextGPT

PROBLEMS: dict[str, type[Problem]] = {
    problem.name: problem for problem in (Rosenbrock, Quadratic, Spiral, Digits, TeacherStudent, TextGPT)
}
"""Every problem by the name that a spec calls it."""

__all__ = [
    "PROBLEMS",
    "DelayedTask",
    "Digits",
    "Problem",
    "Quadratic",
    "Rosenbrock",
    "Rows",
    "Spiral",
    "Task",
    "TeacherStudent",
    "TextGPT",
    "coordinate_delays",
    "cut",
    "parameter_stages",
]
