"""Models from a user's description (a name, a config, a Python module), and descriptions of models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import PlainSerializer, create_model

from syncline.costmodel.compute.configs import MODEL_TYPES, shape_of_config
from syncline.costmodel.compute.model_shape import Model, ModelShape, ModuleShape
from syncline.costmodel.compute.models import MODELS
from syncline.errors import SpecError
from syncline.fields import INSTANCE, parsed
from syncline.registry import PYTHON, Registry, call_from_fields, call_function, is_reference, name_of_call
from syncline.specs.cluster import reading

BY_NAME: Registry[Any] = Registry("models", "syncline.models", MODELS)
"""Presets and registered models: shapes, descriptions of shapes, or functions that return a module."""

EXAMPLE = (
    "a model's fields: of a config.json ('model_type: llama', 'hidden_size: ...') or a ModelShape's ('width: ...')"
)

SHORT_NAMES = {"ffn": "hidden", "vocab": "vocabulary"}
"""Fields of a shape by their short names. A description with one of them gets the defaults of a LLaMA-like model."""

LLAMA_LIKE: dict[str, Any] = {"gated": True, "fused_gate": False, "norms_per_layer": 2, "sequence": 4096}
"""Default fields of a LLaMA-like model, from Llama 2."""

CONFIG_FIELDS = ("model_type", "hidden_size", "n_embd", "num_hidden_layers", "n_layer", "vocab_size", "architectures")
"""Fields of configs: each config has one of them, and no description by a ``ModelShape``'s fields has any."""

_TYPES: dict[str, Any] = get_type_hints(ModelShape) | {"name": reading.Name}


class _Described(reading.Description):
    """The base of `ModelDescribed`."""

    needs = "a value: a model's shape has layers, width, heads, vocabulary and sequence"


_FIELDS: dict[str, Any] = {
    field.name: (_TYPES[field.name], ... if field.default is MISSING else field.default) for field in fields(ModelShape)
}

ModelDescribed = create_model("ModelDescribed", __base__=_Described, __doc__=ModelShape.__doc__, **_FIELDS)
"""A transformer by the fields of a ``ModelShape``, under their own names."""


def model(value: str | Path | Mapping[str, Any] | Model, path: str = "model") -> Model:
    """Return the model that a user describes; ``path`` names the field in error lines.

    Args:
        value: the name of a preset or of a registered model; the path of a ``config.json`` or of a YAML file; a mapping
            with the fields of a config or of a ``ModelShape`` (``ffn`` is short for ``hidden``, ``vocab`` for
            ``vocabulary``); ``{kind: NAME, ...}``, a named model with other fields; ``module:name`` of any of these, or
            of a function that returns a torch module; ``{kind: python, target: module:name, ...}``, which calls
            ``target`` with the other keys; a torch module, or a function that returns one; or a shape.

    >>> f"{model('llama-3-8b').parameters:,}", model({"kind": "gpt2", "sequence": 512}).sequence
    ('8,030,261,248', 512)
    >>> short = {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256}
    >>> model(short).parameters == model("llama-3-8b").parameters
    True
    """
    if isinstance(value, Model):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith((".json", *reading.SUFFIXES))):
        return _from_file(Path(value), path)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _from_mapping(reading.parse_fields(value, path, EXAMPLE), path)
    if callable(value):
        return _from_object(value, path)
    name = value.lower() if isinstance(value, str) and not is_reference(value) else value
    if not isinstance(value, str) or not (is_reference(name) or name in BY_NAME):
        raise SpecError(path, value, reading.name_or_file(BY_NAME.names(), name, "a config.json, or a .yaml file"))
    return _model_of_reference(name, BY_NAME.get(name, path), path)


def transformer(value: Any, path: str = "model") -> ModelShape:
    """Return the model that a user describes, after a check that it is a transformer, which can be cut into stages."""
    shape = model(value, path)
    if not isinstance(shape, ModelShape):
        expected = "a transformer by name, config or fields, whose blocks can be divided into stages"
        raise SpecError(path, shape.name, expected)
    return shape


def model_fields(model: Model) -> dict[str, Any] | str:
    """Return the name, fields or reference from which ``model`` builds the same model again."""
    if isinstance(model, ModuleShape):
        if isinstance(model.reference, Mapping):
            return dict(model.reference)
        return model.reference or model.name
    if MODELS.get(model.name) == model:
        return model.name
    changed_fields = {}
    for shape_field in fields(model):
        value = getattr(model, shape_field.name)
        if value != shape_field.default:
            changed_fields[shape_field.name] = list(value) if isinstance(value, tuple) else value
    return changed_fields


def _from_file(file: Path, path: str) -> ModelShape:
    """Return the model of a ``config.json`` or of a YAML file with a model's fields."""
    if file.suffix == ".json":
        try:
            fields = json.loads(reading.read_text(file, path))
        except (ValueError, RecursionError) as error:
            raise SpecError(path, str(file), f"a file in JSON ({error})") from None
        if not isinstance(fields, dict):
            raise SpecError(path, str(file), EXAMPLE)
    else:
        fields = dict(reading.fields_of_file(file, path, EXAMPLE))
    names_file = str(fields.get("kind")).endswith((".json", *reading.SUFFIXES))
    if names_file:
        expected = f"a model's name; {file} is itself a file, which cannot name another one"
        raise SpecError(f"{path}.kind", fields["kind"], expected)
    if "kind" not in fields and not _has_model_fields(fields):
        raise SpecError(path, str(file), EXAMPLE)
    # The last part of a config's own name, as "meta-llama/Llama-2-7b"; else the name of the file or its folder.
    _, _, name = str(fields.get("_name_or_path") or "").rstrip("/").rpartition("/")
    if not name:
        name = file.resolve().parent.name if file.stem == "config" else file.stem
    shape = _from_mapping({"name": name, **fields}, path)
    if isinstance(shape, ModelShape) and not shape.source:  # a model of a user's call may be a module
        return replace(shape, source=str(file))
    return shape


def _from_mapping(mapping: Mapping[str, Any], path: str) -> Any:
    """Return the model of a call, of a named model with changes, of a config, or of a shape's fields."""
    kind = mapping.get("kind")
    if kind == PYTHON:
        make = partial(call_from_fields, mapping, path)
        return _from_function(make, name_of_call(mapping), path, reference=dict(mapping))
    if kind is None:
        is_config = any(config_field in mapping for config_field in CONFIG_FIELDS)
        return shape_of_config(mapping, path=path) if is_config else _from_shape_fields(mapping, path)
    base = model(kind, f"{path}.kind")
    changes = {name: value for name, value in mapping.items() if name != "kind"}
    if not changes:
        return base
    if not isinstance(base, ModelShape):
        name, *_ = changes
        expected = "no fields with a module; {kind: python, ...} takes arguments"
        raise SpecError(f"{path}.{name}", changes[name], expected)
    return _from_shape_fields(asdict(base) | changes, path)


def _has_model_fields(mapping: Mapping[str, Any]) -> bool:
    """Return whether a mapping has any field of a config or of a shape."""
    known_names = {*CONFIG_FIELDS, *SHORT_NAMES, *ModelDescribed.names()} - {"name", "source"}
    return any(name in known_names for name in mapping)


def _from_shape_fields(mapping: Mapping[str, Any], path: str) -> ModelShape:
    """Return the transformer that a mapping describes by fields of `ModelShape` or their short names."""
    if not _has_model_fields(mapping):
        raise SpecError(path, dict(mapping), f"{EXAMPLE}; known model types: {', '.join(MODEL_TYPES)}")
    short_names = {field: short_name for short_name, field in SHORT_NAMES.items() if short_name in mapping}
    for field, short_name in short_names.items():
        if field in mapping:
            raise SpecError(f"{path}.{short_name}", mapping[short_name], f"none with {field}, which means the same")
    shape_fields: dict[str, Any] = {"name": "model"}
    if short_names:  # only LLaMA-like models have short names
        shape_fields |= LLAMA_LIKE
    shape_fields |= {SHORT_NAMES.get(name, name): value for name, value in mapping.items()}
    description = ModelDescribed.read(shape_fields, path)
    try:
        return ModelShape(**dict(description))
    except SpecError as error:
        field = error.path.removeprefix("model.")
        raise SpecError(f"{path}.{short_names.get(field, field)}", error.value, error.expected) from None


def _model_of_reference(reference: str, target: Any, path: str) -> Model:
    """Return the model that a registered name or a reference such as ``module:name`` leads to.

    Args:
        reference: the name or reference, which also becomes the name of a model that has none.
        target: a model; the name, file or description of a shape; or a function that returns a module or a shape.
        path: the field's name, for the error line.
    """
    if isinstance(target, Model):
        return replace(target, reference=reference) if isinstance(target, ModuleShape) else target
    if isinstance(target, Mapping | str | Path) and not is_reference(target):  # a reference may not lead to another one
        if isinstance(target, Mapping) and "kind" not in target:
            return model({"name": reference, **target}, path)
        return model(target, path)
    if not callable(target):
        raise SpecError(path, reference, f"a model or a function that makes one, not {type(target).__name__}")
    make = partial(call_function, target, reference, arguments={}, path=path, prefix=f"{path}.")
    return _from_function(make, reference, path, reference=reference)


def _from_object(value: Any, path: str) -> Model:
    """Return the model of a torch module, or of a function that returns a module or a shape."""
    if hasattr(value, "named_parameters") and not isinstance(value, type):
        from syncline.problems.torch_flops import module_shape  # imported late because torch is slow to load

        return module_shape(value, type(value).__name__, path)
    name = getattr(value, "__qualname__", type(value).__name__)
    make = partial(call_function, value, name, arguments={}, path=path, prefix=f"{path}.")
    return _from_function(make, name, path)


def _from_function(
    make: Callable[[], Any], name: str, path: str, reference: str | Mapping[str, Any] | None = None
) -> Model:
    """Return the model that a function without arguments makes: a shape, a description of a shape, or a module.

    A module keeps the ``reference`` with which the user named it, so that a file can name it again.
    """
    from syncline.problems.network import shape_only
    from syncline.problems.torch_flops import module_shape  # imported late because torch is slow to load

    returned: Any = shape_only(make)  # a module's parameters get no memory
    if isinstance(returned, Mapping):
        return model({"name": name, **returned}, path)
    shape: Model = returned if isinstance(returned, Model) else module_shape(returned, name, path)
    if reference is not None and isinstance(shape, ModuleShape):
        return replace(shape, reference=reference)
    return shape


ModelField = Annotated[Any, parsed(model), PlainSerializer(model_fields)]
"""A preset's name, a config's file, fields, ``module:name`` or ``{kind: python, ...}``."""

TransformerField = Annotated[ModelShape, INSTANCE, parsed(transformer), PlainSerializer(model_fields)]
"""A transformer as in `ModelField`, because a pipeline cuts its blocks into stages."""
