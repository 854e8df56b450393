"""The registry of methods, which are classes derived from ``MethodBase``.

A class is registered by ``register``, or offered by an installed package in the entry point group ``syncline.methods``.
A spec may also name any class, as ``kind: module:Class``, or a function that returns a method, as ``{kind: python,
target: module:make, ...}``.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator, SerializeAsAny

from syncline.errors import SpecError, one_of, require_one_of
from syncline.fields import kind_of_model, refusals, validate
from syncline.methods.parts.method_spec import MethodBase
from syncline.registry import PYTHON, Registry, call_reference, import_reference, is_reference

METHODS: dict[str, dict[str, Any]] = {}
"""The fields of all presets by name; a spec may say ``method: mt-dao`` and change single fields."""

METHOD_KINDS: Registry[type[MethodBase]] = Registry("methods", "syncline.methods", {})
"""The classes of methods by kind."""

S = TypeVar("S", bound=type[MethodBase])


def register(method: S) -> S:
    """Register a method class and its presets as names that specs accept; also a class decorator.

    Args:
        method: class of the method. Its field ``kind`` has the type ``Literal`` of one text, which is also the default.

    Raises:
        SpecError: the name of the kind or of a preset is already registered.
    """
    kind = kind_of_model(method)
    if not kind:
        raise SpecError("kind", method.__name__, 'a class with its own kind, as in kind: Literal["mine"] = "mine"')
    METHOD_KINDS.register(kind, method)
    _add_presets(kind, method)
    return method


def kind_named(kind: str, path: str = "kind") -> type[MethodBase]:
    """Return the class of a kind: built in, registered in Python, or offered by an installed package.

    Raises:
        SpecError: the kind is unknown, or the class cannot be imported or is not a method.
    """
    kind_class = METHOD_KINDS.get(kind, path)
    if not (isinstance(kind_class, type) and issubclass(kind_class, MethodBase)):
        raise SpecError(path, kind, f"a class derived from syncline.methods.MethodBase, not {kind_class!r}")
    return kind_class


def _add_presets(kind: str, method: type[MethodBase]) -> None:
    """Add the presets of a kind of methods to ``METHODS``.

    Raises:
        SpecError: another kind has a preset of the same name.
    """
    own_presets = method.__dict__.get("presets", {})  # without those that the class inherits
    for name, fields in own_presets.items():
        preset = {"kind": kind, **fields}
        registered_preset = METHODS.setdefault(name, preset)
        if registered_preset != preset:
            raise SpecError("presets", name, f"an unused name; kind {registered_preset['kind']} has it")


def load_plugins() -> dict[str, SpecError]:
    """Import the methods of installed packages, add their presets to ``METHODS``, and return import errors by kind."""
    unusable = {}
    for name in METHOD_KINDS.names():
        try:
            _add_presets(name, kind_named(name))
        except SpecError as error:
            unusable[name] = error
    return unusable


def preset_of(name: str, path: str = "") -> dict[str, Any]:
    """Return the fields of the method that a name stands for: those of a preset, or a kind without further fields.

    ``path`` is the path of the name in a spec, for the error.

    Raises:
        SpecError: there is no such method.
    """
    if name in METHODS:
        return dict(METHODS[name])
    if is_reference(name) or name in METHOD_KINDS:
        _add_presets(name, kind_named(name, path))
        return dict(METHODS.get(name, {"kind": name}))  # a preset may have the name of its kind
    load_plugins()  # a package may have the preset
    require_one_of(path, name, METHODS)
    return dict(METHODS[name])


def method_of(value: Any) -> MethodBase:
    """Return the method that a value stands for: the name of a preset or kind, fields, or the method itself.

    Raises:
        SpecError: the value is none of these, or a field is wrong.
    """
    if isinstance(value, MethodBase):
        return value
    method_fields = preset_of(value) if isinstance(value, str) else value
    if not isinstance(method_fields, dict):
        raise SpecError("", value, "a method's name, or fields, as in {kind: local, lr: 0.003}")
    kind = method_fields.get("kind")
    if kind == PYTHON:
        return _method_from_target(method_fields)
    if not isinstance(kind, str):
        raise SpecError("kind", kind, one_of(METHOD_KINDS.names(), kind))
    return validate(kind_named(kind), method_fields)


def _method_from_target(fields: dict[str, Any]) -> MethodBase:
    """Return the method that the function or class at the field ``target`` makes from the other fields.

    When the method is written to a spec file, the file shows these fields.
    """
    target: Any = fields.get("target")
    arguments = {name: value for name, value in fields.items() if name not in ("kind", "target", "label")}
    target_object: Any = import_reference(target, "target") if is_reference(target) else None
    method: Any
    if isinstance(target_object, type) and issubclass(target_object, MethodBase):
        method = validate(target_object, {"kind": kind_of_model(target_object) or target} | arguments)
    else:
        method = call_reference(target, arguments)  # raises an error for a target that is no reference
    if not isinstance(method, MethodBase):
        expected = f"a function that returns a method, as syncline.local(...) is one, not {type(method).__name__}"
        raise SpecError("target", target, expected)
    if fields.get("label"):  # every method has this field, but the target may not accept it
        method = validate(type(method), dict(method) | {"label": fields["label"]})
    return method.written_as(fields)


def _validate_method(value: Any) -> MethodBase:
    """Return ``method_of`` the value of a field, with errors of the type that pydantic expects."""
    with refusals():
        return method_of(value)


MethodSpec = Annotated[SerializeAsAny[MethodBase], PlainValidator(_validate_method)]
"""A method in a spec: fields with a ``kind``, or a name."""
