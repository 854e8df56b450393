"""Models from a user's description (a name, a config, a Python module), and descriptions of models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

from pydantic import InstanceOf, PlainSerializer, create_model

from syncline.costmodel.compute.configs import MODEL_TYPES, shape_of_config
from syncline.costmodel.compute.model_shape import Model, ModelShape, ModuleShape
from syncline.costmodel.compute.models import MODELS
from syncline.errors import SpecError, one_of
from syncline.fields import parsed
from syncline.registry import PYTHON, Registry, call_from_fields, call_function, is_reference, name_of_call
from syncline.specs.cluster.reading import SUFFIXES, Description, Name, parse_fields, read_text

BY_NAME: Registry[Any] = Registry("models", "syncline.models", MODELS)
"""Presets and registered models: shapes, descriptions of shapes, or functions that return a module."""

AS_IN = "a model's fields: of a config.json ('model_type: llama', 'hidden_size: ...') or a ModelShape's ('width: ...')"

SHORT = {"ffn": "hidden", "vocab": "vocabulary"}
"""Short names of a shape's fields. A description with one of them gets the defaults of a LLaMA-like model."""

LLAMA_LIKE: dict[str, Any] = {"gated": True, "fused_gate": False, "norms_per_layer": 2, "sequence": 4096}
"""Default fields of a LLaMA-like model, from Llama 2."""

CONFIG_FIELDS = ("model_type", "hidden_size", "n_embd", "num_hidden_layers", "n_layer", "vocab_size", "architectures")
"""Fields of configs: each config has one of them, and no description by a ``ModelShape``'s fields has any."""

_TYPES: dict[str, Any] = get_type_hints(ModelShape) | {"name": Name}


class _Described(Description):
    needs: ClassVar[str] = "a value: a model's shape has layers, width, heads, vocabulary and sequence"


_FIELDS: dict[str, Any] = {
    field.name: (_TYPES[field.name], ... if field.default is MISSING else field.default) for field in fields(ModelShape)
}

ModelDescribed = create_model("ModelDescribed", __base__=_Described, __doc__=ModelShape.__doc__, **_FIELDS)
"""A transformer by the fields of a ``ModelShape``, under their own names."""


def model(value: str | Path | Mapping[str, Any] | Model, path: str = "model") -> Model:
    """Return the model that a user describes; ``path`` names the field in error lines.

    Args:
        value: a preset's name, or what an installed package or this process registers as one; the path of a
            ``config.json``, or of a YAML file, with the fields of one; a mapping with such fields, or with those of a
            ``ModelShape``, where ``ffn`` is short for ``hidden`` and ``vocab`` for ``vocabulary``; ``{kind: NAME,
            ...}``, one of these with other values of ``ModelShape`` fields; ``module:name`` of any of these, or of a
            function that returns a torch module; ``{kind: python, target: module:name, ...}``, where ``target`` is
            called with the other keys; a torch module, or a function that returns one; or a shape.

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
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith((".json", *SUFFIXES))):
        return _from_file(Path(value), path)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _from_mapping(parse_fields(value, value, path, content_name="fields", example=AS_IN), path)
    if callable(value):  # an object of Python: a module, or a function that returns one
        return _of_object(value, path)
    name = value if is_reference(value) or not isinstance(value, str) else value.lower()
    if not isinstance(value, str) or not (is_reference(name) or name in BY_NAME):
        raise SpecError(path, value, f"{one_of(BY_NAME.names(), name)}, or a config.json, a .yaml file, or module:name")
    return _resolve_registered(BY_NAME.get(name, path), name, reference=name, path=path)


def transformer(value: Any, path: str = "model") -> ModelShape:
    """Return the model that a user describes, after a check that it is a transformer, which can be cut into stages."""
    shape = model(value, path)
    if not isinstance(shape, ModelShape):
        raise SpecError(path, shape.name, "a transformer by name, config or fields, whose blocks stages are cut of")
    return shape


def model_fields(model: Model) -> dict[str, Any] | str:
    """Return a preset's name, fields or a reference, from which ``model`` builds the same model again."""
    if isinstance(model, ModuleShape):
        return dict(model.reference) if isinstance(model.reference, Mapping) else model.reference or model.name
    if MODELS.get(model.name) == model:
        return model.name
    return {
        shape_field.name: list(value) if isinstance(value, tuple) else value
        for shape_field in fields(model)
        if (value := getattr(model, shape_field.name)) != shape_field.default
    }


def _from_file(file: Path, path: str) -> ModelShape:
    """Return the model of a ``config.json`` or of a YAML file with a model's fields."""
    text = read_text(file, path)
    if file.suffix == ".json":
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(path, str(file), f"a file in JSON ({error})") from None
        if not isinstance(fields, dict):
            raise SpecError(path, str(file), AS_IN)
    else:
        fields = dict(parse_fields(text, str(file), path, content_name="a file", example=AS_IN))
    if str(fields.get("kind")).endswith((".json", *SUFFIXES)):
        raise SpecError(f"{path}.kind", fields["kind"], f"a model's name; this is in {file}, and files name no files")
    if "kind" not in fields and not _has_model_fields(fields):
        raise SpecError(path, str(file), AS_IN)
    # A config.json takes the name of its folder, unless it names its model.
    model_name = str(fields.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    name = model_name or (file.resolve().parent.name if file.stem == "config" else file.stem)
    shape = _from_mapping({"name": name, **fields}, path)
    has_source = not isinstance(shape, ModelShape) or shape.source
    return shape if has_source else replace(shape, source=str(file))


def _from_mapping(mapping: Mapping[str, Any], path: str) -> Any:
    """Return the model of a call, of a named model with changes, of a config, or of a shape's fields."""
    kind = mapping.get("kind")
    if kind == PYTHON:
        return _shape_of(partial(call_from_fields, mapping, path), name_of_call(mapping), path, reference=dict(mapping))
    if kind is None:
        is_config = any(config_field in mapping for config_field in CONFIG_FIELDS)
        return shape_of_config(mapping, path=path) if is_config else _model_of_shape_fields(mapping, path)
    base = model(kind, f"{path}.kind")
    changes = {key: value for key, value in mapping.items() if key != "kind"}
    if changes and not isinstance(base, ModelShape):
        key, value = next(iter(changes.items()))
        raise SpecError(f"{path}.{key}", value, "no fields beside a module; {kind: python, ...} takes arguments")
    return _model_of_shape_fields(asdict(base) | changes, path) if changes else base


def _has_model_fields(mapping: Mapping[str, Any]) -> bool:
    """Return whether a mapping has any field of a config or of a shape."""
    return bool(({*CONFIG_FIELDS, *SHORT, *ModelDescribed.names()} - {"name", "source"}) & set(mapping))


def _model_of_shape_fields(mapping: Mapping[str, Any], path: str) -> ModelShape:
    """Return the transformer of the fields of a `ModelShape`, some by their short names."""
    if not _has_model_fields(mapping):
        raise SpecError(path, dict(mapping), f"{AS_IN}; known model types: {', '.join(MODEL_TYPES)}")
    short_of = {long: short_name for short_name, long in SHORT.items() if short_name in mapping}
    for long, short_name in short_of.items():
        if long in mapping:
            raise SpecError(f"{path}.{short_name}", mapping[short_name], f"nothing beside {long}, which is the same")
    long_fields = {SHORT.get(name, name): value for name, value in mapping.items()}
    described = ModelDescribed.read({"name": "model", **(LLAMA_LIKE if short_of else {}), **long_fields}, path)
    try:
        return ModelShape(**dict(described))
    except SpecError as error:
        field_path = error.path.removeprefix("model.")
        raise SpecError(f"{path}.{short_of.get(field_path, field_path)}", error.value, error.expected) from None


def _resolve_registered(value: Any, name: str, reference: str, path: str) -> Model:
    """Return the model that a registered value stands for.

    Args:
        value: a model; the name, file or description of a shape; or a function that returns a module or a shape.
        name: name of the model if the value does not name it.
        reference: text with which the user named the value.
        path: the field's name, for the error line.
    """
    if isinstance(value, Model):
        return replace(value, reference=reference) if isinstance(value, ModuleShape) else value
    if isinstance(value, Mapping | str | Path) and not is_reference(value):
        return model({"name": name, **value} if isinstance(value, Mapping) and "kind" not in value else value, path)
    if not callable(value):
        raise SpecError(path, reference, f"a model or what makes one, and this is {type(value).__name__}")
    return _shape_of(partial(call_function, value, reference, {}, path, f"{path}."), name, path, reference)


def _of_object(value: Any, path: str) -> Model:
    """Return the model of a torch module, or of a function that returns a module or a shape."""
    if hasattr(value, "named_parameters") and not isinstance(value, type):
        from syncline.problems.torch_flops import module_shape  # imported late because torch is slow to load

        return module_shape(value, type(value).__name__, path)
    name = getattr(value, "__qualname__", type(value).__name__)
    return _shape_of(partial(call_function, value, name, {}, path, f"{path}."), name, path)


def _shape_of(make: Callable[[], Any], name: str, path: str, reference: str | Mapping[str, Any] | None = None) -> Model:
    """Return the model from the result of ``make()``: a shape, a description of a shape, or a module.

    A module keeps the ``reference`` with which the user named it, so that a file can name it again.
    """
    from syncline.problems.network import shape_only
    from syncline.problems.torch_flops import module_shape  # imported late because torch is slow to load

    result: Any = shape_only(make)
    if isinstance(result, Mapping):
        result = model({"name": name, **result}, path)
    elif not isinstance(result, Model):
        result = module_shape(result, name, path)
    is_named = reference is not None and isinstance(result, ModuleShape)
    named_model: Model = replace(result, reference=reference) if is_named else result
    return named_model


ModelField = Annotated[Any, parsed(model), PlainSerializer(model_fields)]
"""A preset's name, a config's file, fields, ``module:name`` or ``{kind: python, ...}``."""

TransformerField = Annotated[InstanceOf[ModelShape], parsed(transformer), PlainSerializer(model_fields)]
"""A transformer as in `ModelField`, because a pipeline cuts its blocks into stages."""
