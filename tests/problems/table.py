"""The shared table of problems: every shared property is tested on every row.

A new problem is one file in ``syncline/problems``, its line in ``PROBLEMS``, and one row here: small, with
whatever of it is random.
"""

from __future__ import annotations

from syncline.problems import Digits, Problem, Quadratic, Rosenbrock, Spiral, TeacherStudent, TextGPT
from syncline.problems.landscapes import Landscape

ROWS: dict[str, Problem] = {
    "rosenbrock": Rosenbrock(noise_std=0.5, shift_std=0.1),
    "quadratic": Quadratic(spectrum=(1.0, 3.0, 9.0), rotation_seed=1, noise_std=0.5, shift_std=0.1),
    "spiral": Spiral(radius=1.0, angle_deg=45.0, noise_std=0.5),
    "digits": Digits(hidden=8, batch_size=4, skew=0.5),
    "teacher-student": TeacherStudent(inputs=4, hidden=8, outputs=2, batch_size=4),
    "text-gpt": TextGPT(width=8, layers=1, heads=2, context=8, batch_size=2),
}
LANDSCAPES = {name: type(one) for name, one in ROWS.items() if isinstance(one, Landscape)}
NETWORKS = [name for name in ROWS if name not in LANDSCAPES]
