"""Registries of the objects that a spec can name.

A name refers to a built-in object, to an object that was registered in this process, or to an entry point of an
installed package; ``module:name`` and ``file.py:name`` refer to any object of Python. A registry imports an object when
it is first used.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from syncline.errors import SpecError, error_text, one_of

T = TypeVar("T")

PYTHON = "python"
"""The ``kind`` of an object that a function returns: ``{kind: python, target: module:name, ...}``."""


class Registry(Generic[T]):
    """A registry of objects of one kind by name.

    Args:
        noun: name of the kind in the plural, as in "one of the networks".
        group: group of entry points through which installed packages add objects (``syncline.networks``).
        built_in: initial objects by name; ``module:name`` stands for an object that is imported later.

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
        self.noun, self.group = noun, group
        self._registered: dict[str, T | str] = dict(built_in)

    def register(self, name: str, instance: T | str) -> T | str:
        """Register an object, or ``module:name`` of one, and return it.

        Raises:
            SpecError: the name is taken, is empty, or has a colon as in ``module:name``.
        """
        if name in self._registered and self._registered[name] is not instance:
            raise SpecError(f"{self.noun}.name", name, f"a name that none of the {self.noun} has")
        if ":" in name or not name:
            raise SpecError(f"{self.noun}.name", name, "a name without a colon")
        self._registered[name] = instance
        return instance

    def names(self) -> tuple[str, ...]:
        """Return all names: of built-in and registered objects, and of entry points of installed packages."""
        return tuple(dict.fromkeys([*self._registered, *self._entry_points()]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._registered or name in self._entry_points()

    def get(self, name: str, path: str = "name") -> T:
        """Return the object of this name; import it if the registry has only its ``module:name``.

        Args:
            name: one of `names`, or ``module:name``.
            path: path of the field that holds the name, for the error line.

        Raises:
            SpecError: there is no such object, or it cannot be imported.
        """
        if name in self._registered:
            registered = self._registered[name]
            return import_reference(registered, path, installed=True) if isinstance(registered, str) else registered
        if is_reference(name):
            return import_reference(name, path)
        entry_point = self._entry_points().get(name)
        if entry_point is None:
            raise SpecError(path, name, f"{one_of(self.names(), name)}, or module:name")
        try:
            return import_reference(entry_point.value, path, installed=True)
        except SpecError as error:
            raise SpecError(path, name, f"{error.expected} ({self.origin(name)}: {entry_point.value})") from error

    def origin(self, name: str) -> str:
        """Return the installed package and version that offer a name; empty text for a built-in or registered name."""
        entry_point = None if name in self._registered else self._entry_points().get(name)
        if entry_point is None:
            return ""
        package = entry_point.dist
        return entry_point.value if package is None else f"{package.name} {package.version}"

    def _entry_points(self) -> dict[str, Any]:
        """Return the entry points of installed packages for this registry, by name."""
        return _read_entry_points(self.group, tuple(sys.path))


@cache
def _read_entry_points(group: str, python_path: tuple[str, ...]) -> dict[str, Any]:
    """Return the entry points that the packages on Python's path offer to a group; reading them takes 20 ms."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def is_reference(value: Any) -> bool:
    """Return whether a value is text of the form ``module:name`` or ``file.py:name``.

    >>> is_reference("my_package.models:tiny"), is_reference("models/mine.py:tiny"), is_reference("10gbe")
    (True, True, False)
    """
    if not isinstance(value, str):
        return False
    module, _, name = value.rpartition(":")
    return _is_dotted_name(name) and (module.endswith(".py") or _is_dotted_name(module))


def _is_dotted_name(text: str) -> bool:
    """Return whether a text is a name of Python, or names with dots between them."""
    return all(part.isidentifier() for part in text.split("."))


NO_CODE = "SYNCLINE_NO_CODE"
"""Environment variable; unless it is empty or 0, specs run no user code. Child processes inherit it."""

_specs_are_data: ContextVar[bool] = ContextVar("_specs_are_data", default=False)


@contextmanager
def specs_as_data() -> Iterator[None]:
    """Refuse all code that specs name in the block, because a folder of results may be from an untrusted source."""
    token = _specs_are_data.set(True)
    try:
        yield
    finally:
        _specs_are_data.reset(token)


def specs_are_data() -> bool:
    """Return whether this is called in a block of `specs_as_data`, where specs run no code."""
    return _specs_are_data.get()


@contextmanager
def no_code() -> Iterator[None]:
    """Let specs run no user code in the block, in this process and its child processes, by setting `NO_CODE`."""
    previous_value = os.environ.get(NO_CODE)
    os.environ[NO_CODE] = "1"
    try:
        yield
    finally:
        if previous_value is None:
            del os.environ[NO_CODE]
        else:
            os.environ[NO_CODE] = previous_value


def refuse_code(path: str, value: Any, expected: str = "a name that is built in or installed") -> None:
    """Raise an error if no code of users may run; call this before such code is imported or called.

    Args:
        path: path of the field that names the code, for the error line.
        value: name of the code.
        expected: values that would be accepted.

    Raises:
        SpecError: a folder of results is being read, or `NO_CODE` is set.
    """
    if specs_are_data():
        raise SpecError(path, value, f"{expected}, because reading results runs no code")
    if os.environ.get(NO_CODE, "") not in ("", "0"):
        raise SpecError(path, value, f"{expected}, because --no-code or {NO_CODE} is set")


def import_reference(reference: str, path: str = "name", *, installed: bool = False) -> Any:
    """Return the object of ``module:name`` or ``file.py:name``.

    Modules of the current folder can be imported. A file's folder is added to Python's search path, so that processes
    that are started later can import the file too.

    Args:
        reference: ``module:name`` or ``file.py:name``.
        path: path of the field that holds the reference, for the error line.
        installed: whether Syncline or an installed package has the reference. Its code is then not refused.

    Raises:
        SpecError: no code may run (`refuse_code`), the module cannot be imported, or the module lacks the name.

    >>> import_reference("math:tau")
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
        target: Any = importlib.import_module(module_name)
    except Exception as error:  # any error of a user's module is reported as an error of this field
        raise SpecError(path, reference, f"a module that imports; it says: {error_text(error)}") from error
    for part in name.split("."):
        if not hasattr(target, part):
            public = [public_name for public_name in dir(target) if not public_name.startswith("_")]
            raise SpecError(path, reference, f"a name of {module_name}: {one_of(public, part)}")
        target = getattr(target, part)
    return target


def lazy_function(reference: str) -> Callable[..., Any]:
    """Return a function that imports ``module:name`` of this package when it is called, and calls it.

    >>> lazy_function("math:gcd")(12, 18)
    6
    """

    def call(*arguments: Any, **options: Any) -> Any:
        return import_reference(reference, installed=True)(*arguments, **options)

    return call


def call_reference(target: Any, arguments: Mapping[str, Any], path: str = "") -> Any:
    """Call the function or class at ``module:name`` with arguments by name, and return its result.

    A spec describes such a call as ``{kind: python, target: module:name, ...}``.

    Args:
        target: ``module:name`` or ``file.py:name`` of a function or a class.
        arguments: arguments by name.
        path: path of the mapping that has ``target`` and the arguments as its fields, for error lines.

    Raises:
        SpecError: ``target`` cannot be imported or called, an argument is unknown or missing, or the call raises an
            error, whose type and message the line repeats.

    >>> call_reference("math:gcd", {})
    0
    >>> call_reference("fractions:Fraction", {"numerator": 1, "denominator": 3})
    Fraction(1, 3)
    >>> call_reference("fractions:Fraction", {"denominater": 3}, "problem")
    Traceback (most recent call last):
    syncline.errors.SpecError: problem.denominater: got 3; expected no such argument of fractions:Fraction, but one of
    'denominator', 'numerator' (did you mean 'denominator'?)
    """
    prefix = f"{path}." if path else ""
    target_path = f"{prefix}target"
    refuse_code(target_path, target)
    if not is_reference(target):
        raise SpecError(target_path, target, "module:name or file.py:name of a function or a class")
    return call_function(import_reference(target, target_path), target, arguments, path=target_path, prefix=prefix)


def call_function(function: Any, display_name: str, arguments: Mapping[str, Any], path: str, prefix: str = "") -> Any:
    """Call a user's function with arguments by name, and return its result.

    Args:
        function: function or class.
        display_name: name of the function in error lines.
        arguments: arguments by name.
        path: path of the field that names the function, for error lines.
        prefix: prefix of an argument's name in error lines, which ends in a dot.

    Raises:
        SpecError: the object cannot be called, an argument is unknown or missing, or the call raises an error.
    """
    if not callable(function):
        raise SpecError(path, display_name, f"a function or a class, and this is {type(function).__name__}")
    _check_arguments(function, display_name, arguments, prefix)
    try:
        return function(**arguments)
    except Exception as error:  # any error of a user's function is reported as an error of this field
        raise SpecError(path, display_name, f"a call that returns; it says: {error_text(error)}") from error


def call_from_fields(fields: Mapping[str, Any], path: str) -> Any:
    """Return the result of the call that ``{kind: python, target: module:name, ...}`` of a spec describes."""
    arguments = {key: value for key, value in fields.items() if key not in ("kind", "target")}
    return call_reference(fields.get("target"), arguments, path)


def name_of_call(fields: Mapping[str, Any]) -> str:
    """Return a name for the call that a mapping of a spec describes.

    >>> name_of_call({"kind": "python", "target": "mine:make", "width": 4})
    'mine:make(width=4)'
    """
    arguments = {name: value for name, value in fields.items() if name not in ("kind", "target")}
    return call_text(str(fields.get("target")), arguments)


def call_text(target: str, arguments: Mapping[str, Any]) -> str:
    """Return a name for the result of a call: the target with its arguments.

    >>> call_text("mine:make", {"width": 4, "kind_of": "a"}), call_text("mine:make", {})
    ("mine:make(width=4, kind_of='a')", 'mine:make')
    """
    texts = [f"{name}={value!r}" for name, value in arguments.items()]
    return f"{target}({', '.join(texts)})" if texts else target


def _check_arguments(function: Any, display_name: str, arguments: Mapping[str, Any], prefix: str) -> None:
    """Refuse arguments that a function does not have, and missing ones; other arguments as in `call_function`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return
    by_name, takes_any = {}, False
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            by_name[parameter.name] = parameter
        elif parameter.kind == parameter.VAR_KEYWORD:
            takes_any = True
    for name, value in arguments.items():
        if not isinstance(name, str) or not (takes_any or name in by_name):
            public_names = [parameter_name for parameter_name in by_name if not parameter_name.startswith("_")]
            expected = one_of(public_names, str(name)) if public_names else "it takes none"
            raise SpecError(f"{prefix}{name}", value, f"no such argument of {display_name}, but {expected}")
    for name, parameter in by_name.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise SpecError(f"{prefix}{name}", None, f"a value, as this argument of {display_name} has no default")


def reference_to(cls: type) -> str:
    """Return the ``module:name`` of a class.

    >>> reference_to(Registry)
    'syncline.registry:Registry'
    """
    return f"{cls.__module__}:{cls.__qualname__}"
