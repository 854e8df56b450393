"""Fields of questions that train: what is trained, with what, how often."""

from __future__ import annotations

from functools import partial

from syncline.questions.declare import PYTHON, option

problem = partial(option, help="The problem to train.", place=PYTHON)
method = partial(option, help="The method.", place=PYTHON)
workers = partial(option, help="M, the number of workers.", place=PYTHON)
steps = partial(option, help="T, the number of steps.", place=PYTHON)
compute = partial(option, help="Computing time of a worker in a step.", place=PYTHON)
on_progress = partial(option, help="Function called now and then with the number of completed steps.", place=PYTHON)
