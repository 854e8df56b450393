"""Functions that make methods for ``compare``, ``run`` and ``project``: ``local(torch.optim.AdamW, lr=1e-3)``.

There is one for every kind of method that is registered or that an installed package offers, by the kind's name with
underscores: ``functions.mt_dao``. What they return is a spec, as a mapping in a file would be. ``functions.pyi`` has
their signatures for editors and type checkers; a test holds it to the methods' fields.
"""

from __future__ import annotations

from collections.abc import Callable

from syncline.methods.constructor import function_of, kinds
from syncline.methods.parts.method_spec import MethodBase


def __getattr__(name: str) -> Callable[..., MethodBase]:
    registry = kinds()
    if name in registry:
        return function_of(registry[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *kinds()})
