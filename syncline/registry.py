"""Registries: what can be named in a spec, whoever made it.

A name stands for what is built in, for what was registered in this process, or for what an installed package offers by
an entry point; ``module:name`` and ``file.py:name`` stand for any object of Python. Nothing is imported before it is
asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from syncline.errors import SpecError, one_of

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        what: the kind, in the plural, as in "one of the networks".
        group: the entry points by which installed packages add to it (``syncline.networks``).
        built_in: what is here from the start: the thing, or ``module:name`` where it is.

    >>> shapes = Registry("shapes", "my_package.shapes", {"square": 4, "pi": "math:pi"})
    >>> shapes.register("triangle", 3)
    3
    >>> shapes.names(), shapes.get("triangle"), shapes.get("pi"), shapes.get("math:e")
    (('square', 'pi', 'triangle'), 3, 3.141592653589793, 2.718281828459045)
    >>> shapes.get("sqare", "drawing.shape")
    Traceback (most recent call last):
    syncline.errors.SpecError: drawing.shape: got 'sqare'; expected one of 'pi', 'square', 'triangle' (did you mean
    'square'?), or module:name
    """

    def __init__(self, what: str, group: str, built_in: Mapping[str, T | str]) -> None:
        self.what, self.group = what, group
        self._known: dict[str, T | str] = dict(built_in)

    def register(self, name: str, thing: T | str) -> T | str:
        """Add a thing, or ``module:name`` where it is; returns it.

        Raises:
            SpecError: the name is taken, or could not be told from ``module:name``.
        """
        if name in self._known and self._known[name] is not thing:
            raise SpecError(f"{self.what}.name", name, f"a name that none of the {self.what} has")
        if ":" in name or not name:
            raise SpecError(f"{self.what}.name", name, "a name without a colon")
        self._known[name] = thing
        return thing

    def names(self) -> tuple[str, ...]:
        """All that can be named: what is built in, what was registered, what installed packages offer."""
        return tuple(dict.fromkeys([*self._known, *self._offered()]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._offered()

    def get(self, name: str, path: str = "name") -> T:
        """The thing of that name.

        Args:
            name: one of `names`, or ``module:name``.
            path: of the field that names it.

        Raises:
            SpecError: there is none, or it cannot be imported.
        """
        if name in self._known:
            thing = self._known[name]
            return imported(thing, path) if isinstance(thing, str) else thing
        if is_reference(name):
            return imported(name, path)
        offered = self._offered()
        if name not in offered:
            raise SpecError(path, name, f"{one_of(self.names(), name)}, or module:name")
        return imported(offered[name].value, path)

    def _offered(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}


def is_reference(value: Any) -> bool:
    """Whether this is text of the form ``module:name`` or ``file.py:name``.

    >>> is_reference("my_package.models:tiny"), is_reference("models/mine.py:tiny"), is_reference("10gbe")
    (True, True, False)
    """
    module, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    dotted = all(part.isidentifier() for part in name.split("."))
    return dotted and (module.endswith(".py") or all(part.isidentifier() for part in module.split(".")))


def imported(reference: str, path: str = "name") -> Any:
    """What ``module:name`` or ``file.py:name`` refers to.

    Modules of the current folder are found; a file's folder is where Python looks from then on, so that processes that
    are started later find it too.

    Raises:
        SpecError: it cannot be imported, with what Python says, or has no such name.

    >>> imported("math:tau")
    6.283185307179586
    """
    module_name, _, name = reference.rpartition(":")
    folder = Path.cwd()
    if module_name.endswith(".py"):
        file = Path(module_name).resolve()
        if not file.is_file():
            raise SpecError(path, reference, f"a file that exists: there is no {file.name} in {file.parent}")
        folder, module_name = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        thing: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises is told as what is wrong with this field
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SpecError(path, reference, f"a module that imports; it says: {type(error).__name__}: {reason}") from error
    for part in name.split("."):
        if not hasattr(thing, part):
            public = [one for one in dir(thing) if not one.startswith("_")]
            raise SpecError(path, reference, f"a name of {module_name}: {one_of(public, part)}")
        thing = getattr(thing, part)
    return thing


def reference_to(thing: type) -> str:
    """The ``module:name`` of a class.

    >>> reference_to(Registry)
    'syncline.registry:Registry'
    """
    return f"{thing.__module__}:{thing.__qualname__}"
