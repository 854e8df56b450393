"""A model as a user describes it, and back: a name, a config, a module of Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

from pydantic import InstanceOf, PlainSerializer, create_model

from syncline.costmodel.compute.configs import MODEL_TYPES, shape_of_config
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.models import MODELS
from syncline.costmodel.compute.module_shape import Model, ModuleShape
from syncline.errors import SpecError, one_of
from syncline.fields import parsed
from syncline.registry import PYTHON, Registry, call, called_as, is_reference, name_of_call
from syncline.specs.cluster.files import SUFFIXES, fields_of, text_in
from syncline.specs.cluster.reading import Described, Name

BY_NAME: Registry[Any] = Registry("models", "syncline.models", MODELS)
"""The presets, and what users bring: a shape, what describes one, or what makes a module."""

AS_IN = "a model's fields: of a config.json ('model_type: llama', 'hidden_size: ...') or a ModelShape's ('width: ...')"

SHORT = {"ffn": "hidden", "vocab": "vocabulary"}
"""Short names of a shape's fields. Who uses one means a model of LLaMA's kin, unless other fields say otherwise."""

LLAMA_LIKE: dict[str, Any] = {"gated": True, "fused_gate": False, "norms_per_layer": 2, "sequence": 4096}
"""Of such a model: what Llama 2 has."""

CONFIG_FIELDS = ("model_type", "hidden_size", "n_embd", "num_hidden_layers", "n_layer", "vocab_size", "architectures")
"""One of which every config has, and no description by a shape's own fields."""

_TYPES: dict[str, Any] = get_type_hints(ModelShape) | {"name": Name}


class _Described(Described):
    needs: ClassVar[str] = "a value: a model's shape has layers, width, heads, vocabulary and sequence"


_FIELDS: dict[str, Any] = {
    one.name: (_TYPES[one.name], ... if one.default is MISSING else one.default) for one in fields(ModelShape)
}

ModelDescribed = create_model("ModelDescribed", __base__=_Described, __doc__=ModelShape.__doc__, **_FIELDS)
"""A transformer by the fields of a ``ModelShape``, under their own names."""


def model(value: str | Path | Mapping[str, Any] | Model, path: str = "model") -> Model:
    """The model that a user means.

    Args:
        value: a preset's name, or what an installed package or this process registers as one; the path of a
            ``config.json``, or of a YAML file, with the fields of one; a mapping with such fields, or with those of a
            ``ModelShape``, of which ``ffn`` and ``vocab`` are short for two; ``{kind: NAME, ...}``, where any of these
            has other fields of a ``ModelShape``; ``module:name`` of any of these, or of what makes a torch module;
            ``{kind: python, target: module:name, ...}``, where it is called with the other keys; a torch module, or
            what makes one; or a shape.
        path: the field's name, for the error line.

    Raises:
        SpecError: what is unknown, missing or cannot be used, and what would be accepted.

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
        return _from_mapping(fields_of(value, value, path, "fields", AS_IN), path)
    if callable(value):  # an object of Python: a module, or what makes one
        return _of_object(value, path)
    name = value if is_reference(value) or not isinstance(value, str) else value.lower()
    if not isinstance(value, str) or not (is_reference(name) or name in BY_NAME):
        raise SpecError(path, value, f"{one_of(BY_NAME.names(), name)}, or a config.json, a .yaml file, or module:name")
    return _brought(BY_NAME.get(name, path), name, name, path)


def transformer(value: Any, path: str = "model") -> ModelShape:
    """The model that a user means, if it has blocks and a head, which a pipeline is cut between.

    Raises:
        SpecError: as `model`; or it is a module, of which nobody knows where to cut it.
    """
    made = model(value, path)
    if not isinstance(made, ModelShape):
        raise SpecError(path, made.name, "a transformer by name, config or fields, whose blocks stages are cut of")
    return made


def model_fields(given: Model) -> dict[str, Any] | str:
    """What describes a model: ``model`` makes the same one of it. A preset's name, its fields, or where it is made."""
    if isinstance(given, ModuleShape):
        return dict(given.reference) if isinstance(given.reference, Mapping) else given.reference or given.name
    if MODELS.get(given.name) == given:
        return given.name
    return {
        one.name: list(value) if isinstance(value, tuple) else value
        for one in fields(given)
        if (value := getattr(given, one.name)) != one.default
    }


def _from_file(file: Path, path: str) -> ModelShape:
    text = text_in(file, path)
    if file.suffix == ".json":
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(path, str(file), f"a file in JSON ({error})") from None
        if not isinstance(found, dict):
            raise SpecError(path, str(file), AS_IN)
    else:
        found = fields_of(text, str(file), path, "a file", AS_IN)
    if str(found.get("kind")).endswith((".json", *SUFFIXES)):
        raise SpecError(f"{path}.kind", found["kind"], f"a model's name; this is in {file}, and files name no files")
    if "kind" not in found and not _is_told(found):
        raise SpecError(path, str(file), AS_IN)
    # A config.json is called as the folder around it, unless it says where its model is from.
    own = str(found.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    name = own or (file.resolve().parent.name if file.stem == "config" else file.stem)
    made = _from_mapping({"name": name, **found}, path)
    return made if not isinstance(made, ModelShape) or made.source else replace(made, source=str(file))


def _from_mapping(given: Mapping[str, Any], path: str) -> Any:
    kind = given.get("kind")
    if kind == PYTHON:
        return _called(given, path)
    if kind is not None:
        return _changed(kind, {key: value for key, value in given.items() if key != "kind"}, path)
    if any(one in given for one in CONFIG_FIELDS):
        return shape_of_config(given, path=path)
    return _described(given, path)


def _is_told(given: Mapping[str, Any]) -> bool:
    """Whether a mapping has any field of a config or of a shape."""
    return bool(({*CONFIG_FIELDS, *SHORT, *ModelDescribed.names()} - {"name", "source"}) & set(given))


def _described(given: Mapping[str, Any], path: str) -> ModelShape:
    if not _is_told(given):
        raise SpecError(path, dict(given), f"{AS_IN}; known model types: {', '.join(MODEL_TYPES)}")
    short = {long: one for one, long in SHORT.items() if one in given}
    for long, one in short.items():
        if long in given:
            raise SpecError(f"{path}.{one}", given[one], f"nothing beside {long}, which is the same")
    meant = {SHORT.get(name, name): value for name, value in given.items()}
    read = ModelDescribed.read({"name": "model", **(LLAMA_LIKE if short else {}), **meant}, path)
    try:
        return ModelShape(**dict(read))
    except SpecError as error:
        below = error.path.removeprefix("model.")
        raise SpecError(f"{path}.{short.get(below, below)}", error.value, error.expected) from None


def _changed(kind: Any, changes: dict[str, Any], path: str) -> Model:
    """What ``kind`` stands for, with some fields of its shape as given."""
    start = model(kind, f"{path}.kind")
    if not changes:
        return start
    if not isinstance(start, ModelShape):
        key, value = next(iter(changes.items()))
        raise SpecError(f"{path}.{key}", value, "no fields beside a module; {kind: python, ...} takes arguments")
    return _described(asdict(start) | changes, path)


def _called(given: Mapping[str, Any], path: str) -> Model:
    """What ``{kind: python, target: module:name, ...}`` makes, called with the meta device as torch's default."""
    made = _shape_of(partial(called_as, given, path), name_of_call(given), path)
    return replace(made, reference=dict(given)) if isinstance(made, ModuleShape) else made


def _brought(value: Any, name: str, reference: str, path: str) -> Model:
    """What a name stands for: a shape, what describes one, or what makes a module."""
    if isinstance(value, Model):
        return replace(value, reference=reference) if isinstance(value, ModuleShape) else value
    if isinstance(value, Mapping | str | Path) and not is_reference(value):
        return model({"name": name, **value} if isinstance(value, Mapping) and "kind" not in value else value, path)
    if not callable(value):
        raise SpecError(path, reference, f"a model or what makes one, and this is {type(value).__name__}")
    made = _shape_of(partial(call, value, reference, {}, path, f"{path}."), name, path)
    return replace(made, reference=reference) if isinstance(made, ModuleShape) else made


def _of_object(value: Any, path: str) -> Model:
    if hasattr(value, "named_parameters") and not isinstance(value, type):
        from syncline.problems.module_shape import module_shape  # only here: torch is slow to load

        return module_shape(value, type(value).__name__, path)
    name = getattr(value, "__qualname__", type(value).__name__)
    return _shape_of(partial(call, value, name, {}, path, f"{path}."), name, path)


def _shape_of(make: Callable[[], Any], name: str, path: str) -> Model:
    """What a call makes: a shape, what describes one, or a module."""
    from syncline.problems.module_shape import module_shape  # only here: torch is slow to load
    from syncline.problems.network import shape_only

    made: Any = shape_only(make)
    if isinstance(made, Model):
        return made
    return model({"name": name, **made}, path) if isinstance(made, Mapping) else module_shape(made, name, path)


ModelField = Annotated[Any, parsed(model), PlainSerializer(model_fields)]
"""A preset's name, a config's file, fields, ``module:name`` or ``{kind: python, ...}``."""

TransformerField = Annotated[InstanceOf[ModelShape], parsed(transformer), PlainSerializer(model_fields)]
"""The same where it has to be cut into stages."""
