"""Registries: what can be named in a spec, whoever made it.

A name stands for what is built in, for what was registered in this process, or for what an installed package offers by
an entry point; ``module:name`` and ``file.py:name`` stand for any object of Python. Nothing is imported before it is
asked for.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from syncline.errors import SpecError, error_text, one_of

T = TypeVar("T")

PYTHON = "python"
"""The ``kind`` of what a spec has made: ``{kind: python, target: module:name, ...}``."""


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        noun: the kind, in the plural, as in "one of the networks".
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

    def __init__(self, noun: str, group: str, built_in: Mapping[str, T | str]) -> None:
        self.what, self.group = noun, group
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
            return imported(thing, path, installed=True) if isinstance(thing, str) else thing
        if is_reference(name):
            return imported(name, path)
        offered = self._offered()
        if name not in offered:
            raise SpecError(path, name, f"{one_of(self.names(), name)}, or module:name")
        try:
            return imported(offered[name].value, path, installed=True)
        except SpecError as error:
            raise SpecError(path, name, f"{error.expected} ({self.origin(name)}: {offered[name].value})") from error

    def origin(self, name: str) -> str:
        """Who offers a name: an installed package and its version; nothing where it is built in or was registered."""
        if name in self._known or (point := self._offered().get(name)) is None:
            return ""
        return f"{point.dist.name} {point.dist.version}" if point.dist else point.value

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


NO_CODE = "SYNCLINE_NO_CODE"
"""Environment variable: unless it is empty or 0, specs run no code. Child processes inherit it."""

_specs_are_data: ContextVar[bool] = ContextVar("_specs_are_data", default=False)


@contextmanager
def specs_as_data() -> Iterator[None]:
    """Refuse inside the block all code that a spec names: a folder of results is read, which anybody may have made."""
    before = _specs_are_data.set(True)
    try:
        yield
    finally:
        _specs_are_data.reset(before)


def specs_are_data() -> bool:
    """Return whether a folder of results is being read."""
    return _specs_are_data.get()


@contextmanager
def no_code() -> Iterator[None]:
    """Set `NO_CODE` inside the block, for this process and for those that it starts."""
    before = os.environ.get(NO_CODE)
    os.environ[NO_CODE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[NO_CODE]
        else:
            os.environ[NO_CODE] = before


def refuse_code(path: str, value: Any, expected: str = "a name that is built in or installed") -> None:
    """Refuse code of a user's, before it is imported or called, where none may run.

    Args:
        path: of the field that names the code.
        value: the name.
        expected: what would be accepted.

    Raises:
        SpecError: a folder of results is being read, or `NO_CODE` is set.
    """
    if specs_are_data():
        raise SpecError(path, value, f"{expected}, because reading results runs no code")
    if os.environ.get(NO_CODE, "") not in ("", "0"):
        raise SpecError(path, value, f"{expected}, because --no-code or {NO_CODE} is set")


def imported(reference: str, path: str = "name", *, installed: bool = False) -> Any:
    """Return what ``module:name`` or ``file.py:name`` refers to.

    Modules of the current folder are found; a file's folder is where Python looks from then on, so that processes that
    are started later find it too.

    Args:
        reference: the text.
        path: of the field that names it.
        installed: whether Syncline or an installed package wrote the text, and not a spec.

    Raises:
        SpecError: no code may run (`refuse_code`); the module cannot be imported, with what Python says, or lacks the
            name.

    >>> imported("math:tau")
    6.283185307179586
    """
    module_name, _, name = reference.rpartition(":")
    if not installed:
        refuse_code(path, reference)
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
        raise SpecError(path, reference, f"a module that imports; it says: {error_text(error)}") from error
    for part in name.split("."):
        if not hasattr(thing, part):
            public = [one for one in dir(thing) if not one.startswith("_")]
            raise SpecError(path, reference, f"a name of {module_name}: {one_of(public, part)}")
        thing = getattr(thing, part)
    return thing


def called(target: Any, arguments: Mapping[str, Any], path: str = "") -> Any:
    """Return what the callable at ``module:name`` returns: ``{kind: python, target: module:name, ...}`` of a spec.

    Args:
        target: ``module:name`` or ``file.py:name`` of a function or a class.
        arguments: what it is called with, by name.
        path: of the mapping that has ``target`` and the arguments as its fields.

    Raises:
        SpecError: it cannot be imported or called; an argument that it does not have, or has no value; or what it
            raises, by type and message.

    >>> called("math:gcd", {})
    0
    >>> called("fractions:Fraction", {"numerator": 1, "denominator": 3})
    Fraction(1, 3)
    >>> called("fractions:Fraction", {"denominater": 3}, "problem")
    Traceback (most recent call last):
    syncline.errors.SpecError: problem.denominater: got 3; expected no such argument of fractions:Fraction, but one of
    'denominator', 'numerator' (did you mean 'denominator'?)
    """
    where = f"{path}." if path else ""
    refuse_code(f"{where}target", target)
    if not is_reference(target):
        raise SpecError(f"{where}target", target, "module:name or file.py:name of a function or a class")
    return call(imported(target, f"{where}target"), target, arguments, f"{where}target", where)


def call(function: Any, display_name: str, arguments: Mapping[str, Any], path: str, where: str = "") -> Any:
    """What a user's function returns, called with arguments by name.

    Args:
        function: it.
        display_name: what error lines call it.
        arguments: by name.
        path: of the field that names the function.
        where: what stands before an argument's name in error lines, with a dot behind.

    Raises:
        SpecError: as `called`.
    """
    if not callable(function):
        raise SpecError(path, display_name, f"a function or a class, and this is {type(function).__name__}")
    _check_arguments(function, display_name, arguments, where)
    try:
        return function(**arguments)
    except Exception as error:  # whatever a user's function raises is told as what is wrong with this field
        raise SpecError(path, display_name, f"a call that returns; it says: {error_text(error)}") from error


def called_as(fields: Mapping[str, Any], path: str) -> Any:
    """What ``{kind: python, target: module:name, ...}`` of a spec stands for: what the target returns."""
    arguments = {key: value for key, value in fields.items() if key not in ("kind", "target")}
    return called(fields.get("target"), arguments, path)


def name_of_call(fields: Mapping[str, Any]) -> str:
    """What to call it.

    >>> name_of_call({"kind": "python", "target": "mine:make", "width": 4})
    'mine:make(width=4)'
    """
    return call_text(str(fields.get("target")), {k: v for k, v in fields.items() if k not in ("kind", "target")})


def call_text(target: str, arguments: Mapping[str, Any]) -> str:
    """What to call the thing that a call returned, for people.

    >>> call_text("mine:make", {"width": 4, "kind_of": "a"}), call_text("mine:make", {})
    ("mine:make(width=4, kind_of='a')", 'mine:make')
    """
    return target + (f"({', '.join(f'{name}={value!r}' for name, value in arguments.items())})" if arguments else "")


def _check_arguments(function: Any, target: str, arguments: Mapping[str, Any], where: str) -> None:
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some that are written in C Python does not know it
        return
    by_name = {one.name: one for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind == one.VAR_KEYWORD for one in taken)
    for name, value in arguments.items():
        if not isinstance(name, str) or not (takes_any or name in by_name):
            public = [one for one in by_name if not one.startswith("_")]
            known = one_of(public, str(name)) if public else "it takes none"
            raise SpecError(f"{where}{name}", value, f"no such argument of {target}, but {known}")
    for name, one in by_name.items():
        if one.default is one.empty and name not in arguments:
            raise SpecError(f"{where}{name}", None, f"a value, as this argument of {target} has no default")


def reference_to(thing: type) -> str:
    """The ``module:name`` of a class.

    >>> reference_to(Registry)
    'syncline.registry:Registry'
    """
    return f"{thing.__module__}:{thing.__qualname__}"
