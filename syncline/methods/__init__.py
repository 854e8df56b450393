"""The methods: each is a spec class with its parameters, its traffic in closed form, its memory, and its optimizer.

A spec class combines parts of `syncline.optim`; `syncline.methods.parts` has the specs of parts. The package imports
all of its modules, so that a method needs no other registration than ``@register``. ``local`` has the shortest example.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from syncline.fields import kind_of_model
from syncline.methods.constructor import constructor
from syncline.methods.parts.method_spec import MethodBase, Tensors, tensors_of
from syncline.methods.registry import METHOD_KINDS, METHODS, MethodSpec, load_plugins, method_of, preset_of, register

_specs: dict[str, type[MethodBase]] = {}
for _module in iter_modules(__path__):
    for _name, _spec in vars(import_module(f"{__name__}.{_module.name}")).items():
        if isinstance(_spec, type) and issubclass(_spec, MethodBase) and kind_of_model(_spec):
            _specs[_name.removesuffix("Spec")] = _spec


def __getattr__(name: str) -> Any:
    """Return the constructor of a method, as in ``from syncline.methods import MTDAO``; it is made at the first use."""
    if name not in _specs:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = function = constructor(_specs[name])
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *_specs})


__all__ = [
    "METHODS",
    "METHOD_KINDS",
    "MethodBase",
    "MethodSpec",
    "Tensors",
    "load_plugins",
    "method_of",
    "preset_of",
    "register",
    "tensors_of",
]
