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

_MODULES = {
    "syncline.api.folders": "load",
    "syncline.api.functions": (
        "advise calibrate collectives compare goodput launch loss pipeline project replicate report reproduce run "
        "solve sweep trace whatif"
    ),
    "syncline.api.networks": "Link",
    "syncline.api.result": "Result",
    "syncline.errors": "SpecError SynclineError",
    "syncline.methods.functions": (
        "basis_rotation curvadion ddp demo des_loc diloco dion eshampoo galore ldadam lion_cub local mt_dao "
        "one_bit_adam placed_dion powersgd selsync selsync_dion sign_sgd soap streaming_diloco streaming_mt_dao "
        "zero_one_adam"
    ),
    "syncline.problems": "TorchProblem",
    "syncline.version": "__version__",
}
"""The public names of each module."""

_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Link", "Result", "SpecError", "SynclineError", "TorchProblem", "__version__", "advise", "basis_rotation",
    "calibrate", "collectives", "compare", "curvadion", "ddp", "demo", "des_loc", "diloco", "dion", "eshampoo",
    "galore", "goodput", "launch", "ldadam", "lion_cub", "load", "local", "loss", "mt_dao", "one_bit_adam",
    "pipeline", "placed_dion", "powersgd", "project", "replicate", "report", "reproduce", "run", "selsync",
    "selsync_dion", "sign_sgd", "soap", "solve", "streaming_diloco", "streaming_mt_dao", "sweep", "trace", "whatif",
    "zero_one_adam",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
