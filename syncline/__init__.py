"""Syncline: what talking less often, in fewer bits, or later does to the loss and to the clock.

``import syncline as sl``: the commands as functions (`sl.compare`, `sl.run`, `sl.project`, ...), which return a
`sl.Result`; see docs/python.md. A name is imported when it is first asked for, so importing the package loads neither
torch nor NumPy; its rooms (``syncline.comm``, ``syncline.optim``, ``syncline.sim``, ...) are imported where they are
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syncline.version import __version__

if TYPE_CHECKING:  # the same names for editors and type checkers; a test holds the two lists equal
    from syncline.api.clocks import collectives, pipeline, project
    from syncline.api.folders import load
    from syncline.api.networks import Link
    from syncline.api.processes import calibrate, launch
    from syncline.api.result import Result
    from syncline.api.sweeps import sweep
    from syncline.api.trainings import compare, run
    from syncline.errors import SpecError, SynclineError

_WHERE = {
    "Link": "syncline.api.networks",
    "Result": "syncline.api.result",
    "SpecError": "syncline.errors",
    "SynclineError": "syncline.errors",
    "calibrate": "syncline.api.processes",
    "collectives": "syncline.api.clocks",
    "compare": "syncline.api.trainings",
    "launch": "syncline.api.processes",
    "load": "syncline.api.folders",
    "pipeline": "syncline.api.clocks",
    "project": "syncline.api.clocks",
    "run": "syncline.api.trainings",
    "sweep": "syncline.api.sweeps",
}
"""In which module each name is."""

__all__ = [
    "Link",
    "Result",
    "SpecError",
    "SynclineError",
    "__version__",
    "calibrate",
    "collectives",
    "compare",
    "launch",
    "load",
    "pipeline",
    "project",
    "run",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
