"""Optimisation problems: landscapes, small networks, a small GPT, any torch module, and their data."""

from __future__ import annotations

from syncline.problems.base import Problem, Rows, Task
from syncline.problems.digits import Digits
from syncline.problems.landscapes import Quadratic, Rosenbrock, Spiral
from syncline.problems.stages import DelayedTask, coordinate_delays, parameter_stages, split_into_stages
from syncline.problems.teacher_student import TeacherStudent
from syncline.problems.text_gpt import TextGPT
from syncline.problems.torch_problem import TorchProblem
from syncline.registry import Registry

PROBLEMS: Registry[type[Problem]] = Registry(
    "problems",
    "syncline.problems",
    {
        "rosenbrock": Rosenbrock,
        "quadratic": Quadratic,
        "spiral": Spiral,
        "digits": Digits,
        "teacher-student": TeacherStudent,
        "text-gpt": TextGPT,
    },
)
"""Every problem by the name that a spec calls it: a frozen dataclass whose fields a spec sets, as `Problem` says."""

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
    "TorchProblem",
    "coordinate_delays",
    "parameter_stages",
    "split_into_stages",
]
