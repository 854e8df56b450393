"""The methods, one place each: knobs and checks, what is sent in closed form, what is kept, and how it is built.

A method is a spec class in a file here, composed of the parts in ``syncline.optim``; the specs of parts are in
``parts``. Every file is imported, and what it registers is found by its name: nothing is listed a second time. Read
``base``, then ``local``, the shortest example; ``registry`` is the door, for methods of other packages too.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from syncline.methods.parts.method_spec import MethodBase, Tensors, tensors_of
from syncline.methods.registry import METHOD_KINDS, METHODS, MethodSpec, load_plugins, method_of, named, register

_constructors: dict[str, Any] = {}
for _module in iter_modules(__path__):
    _imported = import_module(f"{__name__}.{_module.name}")
    for _name, _one in vars(_imported).items():
        if f"{_name}Spec" in vars(_imported) and callable(_one):
            _constructors[_name] = _one


def __getattr__(name: str) -> Any:
    """Return a method's constructor, as in ``from syncline.methods import MTDAO``."""
    if name not in _constructors:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _constructors[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_constructors})


__all__ = [
    "METHODS",
    "METHOD_KINDS",
    "MethodBase",
    "MethodSpec",
    "Tensors",
    "load_plugins",
    "method_of",
    "named",
    "register",
    "tensors_of",
]
