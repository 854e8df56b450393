"""Syncline: the effect of less frequent, compressed or delayed communication on a training's loss and time.

``import syncline as sl`` offers the commands as functions (`sl.compare`, `sl.run`, `sl.project`, ...), which return a
`sl.Result`; see docs/python.md. A name is imported when it is first used, so that importing the package loads neither
torch nor NumPy. Import the subpackages (``syncline.comm``, ``syncline.optim``, ``syncline.sim``, ...) explicitly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names for editors and type checkers; a test checks that the two lists are equal
    from syncline.api.folders import load
    from syncline.api.functions import (
        advise,
        calibrate,
        collectives,
        compare,
        goodput,
        launch,
        loss,
        pipeline,
        project,
        replicate,
        report,
        reproduce,
        run,
        solve,
        sweep,
        trace,
        whatif,
    )
    from syncline.api.networks import Link
    from syncline.api.result import Result
    from syncline.errors import SpecError, SynclineError
    from syncline.methods.functions import (
        basis_rotation,
        curvadion,
        ddp,
        demo,
        des_loc,
        diloco,
        dion,
        eshampoo,
        galore,
        ldadam,
        lion_cub,
        local,
        mt_dao,
        one_bit_adam,
        placed_dion,
        powersgd,
        selsync,
        selsync_dion,
        sign_sgd,
        soap,
        streaming_diloco,
        streaming_mt_dao,
        zero_one_adam,
    )
    from syncline.problems import TorchProblem
    from syncline.version import __version__

_WHERE = {
    "__version__": "syncline.version",
    "Link": "syncline.api.networks",
    "Result": "syncline.api.result",
    "SpecError": "syncline.errors",
    "SynclineError": "syncline.errors",
    "TorchProblem": "syncline.problems",
    "advise": "syncline.api.functions",
    "basis_rotation": "syncline.methods.functions",
    "calibrate": "syncline.api.functions",
    "collectives": "syncline.api.functions",
    "compare": "syncline.api.functions",
    "curvadion": "syncline.methods.functions",
    "ddp": "syncline.methods.functions",
    "demo": "syncline.methods.functions",
    "des_loc": "syncline.methods.functions",
    "diloco": "syncline.methods.functions",
    "dion": "syncline.methods.functions",
    "eshampoo": "syncline.methods.functions",
    "galore": "syncline.methods.functions",
    "goodput": "syncline.api.functions",
    "launch": "syncline.api.functions",
    "ldadam": "syncline.methods.functions",
    "lion_cub": "syncline.methods.functions",
    "load": "syncline.api.folders",
    "local": "syncline.methods.functions",
    "loss": "syncline.api.functions",
    "mt_dao": "syncline.methods.functions",
    "one_bit_adam": "syncline.methods.functions",
    "pipeline": "syncline.api.functions",
    "placed_dion": "syncline.methods.functions",
    "powersgd": "syncline.methods.functions",
    "project": "syncline.api.functions",
    "replicate": "syncline.api.functions",
    "report": "syncline.api.functions",
    "reproduce": "syncline.api.functions",
    "run": "syncline.api.functions",
    "selsync": "syncline.methods.functions",
    "selsync_dion": "syncline.methods.functions",
    "sign_sgd": "syncline.methods.functions",
    "soap": "syncline.methods.functions",
    "solve": "syncline.api.functions",
    "streaming_diloco": "syncline.methods.functions",
    "streaming_mt_dao": "syncline.methods.functions",
    "sweep": "syncline.api.functions",
    "trace": "syncline.api.functions",
    "whatif": "syncline.api.functions",
    "zero_one_adam": "syncline.methods.functions",
}
"""The module of each public name."""

__all__ = [
    "Link",
    "Result",
    "SpecError",
    "SynclineError",
    "TorchProblem",
    "__version__",
    "advise",
    "basis_rotation",
    "calibrate",
    "collectives",
    "compare",
    "curvadion",
    "ddp",
    "demo",
    "des_loc",
    "diloco",
    "dion",
    "eshampoo",
    "galore",
    "goodput",
    "launch",
    "ldadam",
    "lion_cub",
    "load",
    "local",
    "loss",
    "mt_dao",
    "one_bit_adam",
    "pipeline",
    "placed_dion",
    "powersgd",
    "project",
    "replicate",
    "report",
    "reproduce",
    "run",
    "selsync",
    "selsync_dion",
    "sign_sgd",
    "soap",
    "solve",
    "streaming_diloco",
    "streaming_mt_dao",
    "sweep",
    "trace",
    "whatif",
    "zero_one_adam",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
