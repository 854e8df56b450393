"""Fields of specs and arguments of functions: their base class, common types, checks, and error lines.

Specs are frozen pydantic models that forbid unknown keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import is_instance_schema, no_info_plain_validator_function

from syncline.errors import SpecError, error_text, one_of
from syncline.units import parse_seconds


def from_name(value: Any) -> Any:
    """Return ``{"kind": value}`` if the value is text; return any other value unchanged."""
    return {"kind": value} if isinstance(value, str) else value


class Spec(BaseModel):
    """The base class of specs and of their parts."""

    # Infinity is written as a constant, also when a method is written to JSON.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants", defer_build=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false in fields and lists of numbers, because Python counts true as 1.

        The error says what it says for the text ``True``; a field of text takes the text, but not true.
        """
        items = value if isinstance(value, list | tuple) else [value]
        index = next((i for i, item in enumerate(items) if isinstance(item, bool)), None)
        field = cls.model_fields[str(info.field_name)]
        if index is None or _takes_bool(field.annotation):
            return value
        words = [str(item) if isinstance(item, bool) else item for item in items]
        annotation: Any = Annotated[field.annotation, field]
        expected = "text"
        try:
            TypeAdapter(annotation).validate_python(words if items is value else words[0])
        except ValidationError as error:
            expected = explain(error, lambda _: []).expected
        raise refusal(str(index) if items is value else "", items[index], expected)


def _takes_bool(annotation: Any) -> bool:
    """Return whether a field with this annotation may be true or false."""
    return annotation in (bool, Any) or any(_takes_bool(argument) for argument in get_args(annotation))


MANY = 10**9
"""More steps than any training has; larger numbers would overflow without an error."""

Steps = Annotated[int, Field(ge=1, le=MANY)]

Workers = Annotated[int, Field(ge=1, le=MANY)]
"""Number of workers in a group."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""Seed of random streams; a table's column has 63 bits for it."""

MOST_THREADS = max(256, os.cpu_count() or 1)
"""Largest number of threads. More make no sum faster, and starting far more would end the process without an error."""


def _check_threads(threads: int) -> int:
    """Return the number of threads, or refuse it if this machine cannot start so many."""
    if threads > MOST_THREADS:
        raise refusal("", threads, f"at most {MOST_THREADS} on this machine")
    return threads


Threads = Annotated[int, Field(ge=1), AfterValidator(_check_threads)]
"""Number of threads of a process."""

Rate = Annotated[float, Field(ge=0, lt=1)]
"""A decay rate, from 0 to below 1."""

Period = Annotated[int, Field(ge=1, le=MANY)]
"""Number of steps between averages."""

Positive = Annotated[float, Field(gt=0)]


def parsed(parse: Callable[[Any, str], Any]) -> BeforeValidator:
    """Return a pydantic validator that calls ``parse(value, path)``, and refuses what the parser refuses.

    The path of the parser's `SpecError` is added to the path of the field.
    """

    def validate(value: Any) -> Any:
        with refusals():
            return parse(value, "")

    return BeforeValidator(validate)


def refusal(path: str, value: Any, expected: str) -> PydanticCustomError:
    """Return the error that a validator of pydantic raises to refuse a value.

    Args:
        path: path below the validator's own field.
        value: value at this path.
        expected: values that would be accepted.
    """
    return PydanticCustomError("refused", "{expected}", {"expected": expected, "path": path, "value": value})


@contextmanager
def refusals(prefix: str = "") -> Iterator[None]:
    """Turn a `SpecError` in the block into the error of a pydantic validator; ``prefix`` is cut off its path."""
    try:
        yield
    except SpecError as error:
        raise refusal(error.path.removeprefix(prefix), error.value, error.expected) from None


Seconds = Annotated[float, parsed(parse_seconds), Field(ge=0)]
"""A time in seconds: ``0.05``, ``"50 ms"``."""


WHOLE_SPEC = "spec"
"""Path of an error that is about all fields of a spec."""

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], fields: Any) -> M:
    """Return the model of these fields; an error of pydantic becomes one line.

    Raises:
        SpecError: names the field, its value and what would be accepted.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise explain(error, lambda location: _known_fields(model, location)) from None


class _Instance:
    """Metadata of a field whose class is no pydantic model: a value must be an instance of the class.

    Pydantic's ``InstanceOf`` would also build a schema for JSON, which takes a sixth of the import of the specs.
    """

    def __get_pydantic_core_schema__(self, cls: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of values that are instances of the class."""
        return is_instance_schema(cls)


INSTANCE = _Instance()


class ByKind:
    """Metadata of a union of models: the field ``kind`` of a value says which of the models checks the value.

    A discriminated union of pydantic would build the schemas of all models as soon as one of them is needed.
    """

    def __get_pydantic_core_schema__(self, union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a function that checks a value by the model of its kind."""
        models = {kind_of_model(model): model for model in get_args(union)}

        def check(value: Any) -> Any:
            """Return the value as a model; turn the error of its fields into one of pydantic."""
            if isinstance(value, tuple(models.values())):
                return value
            fields = from_name(value)
            kind = str(fields.get("kind", "") if isinstance(fields, dict) else getattr(fields, "kind", ""))
            if kind not in models:
                raise refusal("kind", kind or None, one_of(models, kind))
            try:
                return validate(models[kind], fields)
            except SpecError as error:
                path = "" if error.path == WHOLE_SPEC else error.path
                raise refusal(path, error.value, error.expected) from None

        return no_info_plain_validator_function(check)


def kind_of_model(model: type[BaseModel]) -> str:
    """Return the ``kind`` of a model, which identifies it in a union; empty text if its ``kind`` is not fixed."""
    field = model.model_fields.get("kind")
    kinds = get_args(field.annotation) if field is not None else ()
    return str(kinds[0]) if kinds else ""


def _known_fields(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """Return the field names of the model at a location in pydantic's error, for suggestions of the closest match."""
    annotation: Any = model
    for part in location:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and part in annotation.model_fields:
            annotation = annotation.model_fields[part].annotation
    models = _models_in(annotation)  # of a union, the first model is taken
    return sorted(models[0].model_fields) if models else []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic models that an annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


RENAMED: Mapping[str, tuple[str, ...]] = {
    "above": ("hierarchy",), "activation": ("momentum_activation",), "adapt": ("dynamic_local_updates",),
    "adjust": ("adjust_lr",), "again": ("rerun",), "aggregate": ("aggregation",), "all": ("comparisons",),
    "along": ("measured",), "always": ("compress_all_matrices",), "as_many_as": ("match_averages_of",),
    "at_least": ("min_workers",), "averages": ("num_averages",), "bandwidth": ("nic_bandwidth",),
    "best": ("top_trials",), "bucket": ("bucket_size",), "buffer": ("buffer_size",), "by": ("margin",),
    "byte": ("byte_overhead",), "call": ("call_overhead",), "discount": ("staleness_exponent",),
    "encode": ("encode_bandwidth",), "every": ("merge_period", "record_every"), "exponential": ("exponential_scale",),
    "factor": ("bandwidth_divisor",), "flag": ("trigger_time",), "flip": ("flip_rate",), "flow": ("max_flow_rate",),
    "form": ("variant",), "free_steps": ("escape_distance",), "grace": ("grace_period",),
    "in_flight": ("max_in_flight",), "least_seeds": ("min_seeds",), "leaves": ("first_step", "start"),
    "left_out": ("cross_validation",), "less": ("lower",), "load": ("restore_time",), "match": ("match_rate",),
    "mean": ("mean_delay",), "merge": ("merge_weight",), "message": ("message_overhead",),
    "node": ("workers_per_node",), "optimizer": ("optimizer_time",), "other": ("other_rule",),
    "outer": ("outer_optimizer",), "pareto": ("pareto_shape",), "random": ("random_quadratics",),
    "readback": ("readback_latency",), "reform": ("regroup_time",), "repair": ("repair_time",),
    "restart": ("restart_time",), "returns": ("end_step", "end"), "rule": ("protocol",), "seconds": ("write_time",),
    "segment": ("mss",), "shows": ("quantity",), "snapshot": ("snapshot_time",), "speeds": ("speed_sigma",),
    "start": ("reference",), "starts": ("start_offsets",), "table": ("batch_times",), "table_unit": ("batch_unit",),
    "than": ("higher",), "through": ("shares_lower_links",), "timed": ("pipeline_clock",),
    "timeout": ("detection_timeout",), "tokens": ("tokens_per_microbatch", "tokens_per_batch"),
    "turn_deg": ("target_turn_deg",), "value": ("value_format",), "waits": ("synchronous",),
    "weight": ("backward_weight",), "weights": ("update_weights", "backward_weights"), "within": ("tolerance",),
}  # fmt: skip
"""New names of renamed fields of specs, by the old name; several if specs differ."""


def one_of_fields(names: Iterable[str], name: str) -> str:
    """Return the end of an error line about a field that does not exist: its new name, or the fields that exist.

    >>> one_of_fields(["groups", "merge_period"], "every")
    'it was renamed to merge_period'
    """
    fields = list(names)
    for new_name in RENAMED.get(name, ()):
        if new_name in fields:
            return f"it was renamed to {new_name}"
    return one_of(fields, name)


def explain(error: ValidationError, fields: Callable[[tuple[Any, ...]], list[str]]) -> SpecError:
    """Return the first of pydantic's errors as one line: path, value, and what would be accepted.

    Args:
        error: error of pydantic.
        fields: function that returns the names of the fields at a location; the line suggests the closest one.
    """
    all_details = error.errors(include_url=False)
    # An unknown key is more informative than a missing one, because it may be the missing one misspelt.
    unknown_keys = [detail for detail in all_details if detail["type"] == "extra_forbidden"]
    first = unknown_keys[0] if unknown_keys else all_details[0]
    alternatives = _alternatives(first, all_details, fields)
    parts = [str(part) for part in first["loc"][: -1 if alternatives else None]]
    value, context = first["input"], first.get("ctx", {})
    if first["type"] == "refused":
        parts.append(context["path"].strip("."))
        value = context["value"]
    elif first["type"] == "missing":
        value = None
    path = ".".join(part for part in parts if part)
    texts = [_expected_text(detail, fields) for detail in alternatives or [first]]
    return SpecError(path or WHOLE_SPEC, value, " or ".join(texts))


def _alternatives(
    first: ErrorDetails, details: Sequence[ErrorDetails], fields: Callable[[tuple[Any, ...]], list[str]]
) -> list[ErrorDetails]:
    """Return the errors of all types of a union if the first of pydantic's ``details`` is one of them, else none.

    Pydantic adds the type to the location of the field, as in ``("p", "constrained-float")``.
    """
    *parents, last = first["loc"] or ("",)
    is_field = not isinstance(last, str) or last in fields(tuple(parents))
    if is_field or first["type"] in ("missing", "extra_forbidden"):
        return []
    errors = [detail for detail in details if list(detail["loc"][:-1]) == parents and detail["input"] is first["input"]]
    return errors if len(errors) > 1 else []


def _expected_text(detail: ErrorDetails, fields: Callable[[tuple[Any, ...]], list[str]]) -> str:
    """Return the accepted values as text, for the line about one of pydantic's errors; ``fields`` as in `explain`."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "refused":
        return str(context["expected"])
    if kind == "extra_forbidden":
        return "no such field here, but " + one_of_fields(fields(detail["loc"][:-1]), str(detail["loc"][-1]))
    if kind == "missing":
        return "a value, as this field has no default"
    if kind in _ERROR_TEXTS:
        return _ERROR_TEXTS[kind].format(**context)
    text = str(detail["msg"]).removeprefix("Input should be ")
    return (text[:1].lower() + text[1:]).replace("greater than or equal to", "at least")


_ERROR_TEXTS = {
    "model_type": "fields, as in {{field: value}}", "tuple_type": "a list, as in [1, 2]",
    "too_short": "at least {min_length}", "too_long": "at most {max_length}",
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "string_type": "text", "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
}  # fmt: skip
"""Error texts for people who write YAML, in place of pydantic's texts about Python types."""


DEEPEST = 50
"""Largest number of levels of nested lists and fields."""

MOST_ITEMS = 1_000_000
"""Largest number of items of an iterator, because an endless one would fill the memory."""


def plain_argument(name: str, value: Any) -> Any:
    """Return an argument whose numbers, texts and containers are Python's own.

    NumPy's numbers and arrays become Python's; a table of pandas becomes the list of its rows; iterators and views
    become tuples; other objects do not change.

    Raises:
        SpecError: an iterator does not end, containers are nested too deep, or a user's object raises an error.
    """
    try:
        return _plain(value)
    except SpecError as error:
        raise SpecError(name, value, error.expected) from None
    except Exception as error:  # any error of a user's own object
        raise SpecError(name, value, f"a value that can be read ({error_text(error)})") from None


def _plain(value: Any, container_ids: tuple[int, ...] = ()) -> Any:
    """Return a value as in `plain_argument`; ``container_ids`` are the ids of the containers that contain it."""
    if isinstance(value, str):
        return str(value.encode(), "utf-8")  # raises for an unpaired surrogate, which no file can hold
    if hasattr(type(value), "to_dict") and hasattr(value, "columns"):  # a table of pandas
        value = value.to_dict("records")
    if hasattr(type(value), "tolist"):  # a number or an array of NumPy
        value = value.tolist()
    is_named_tuple = isinstance(value, tuple) and type(value) is not tuple  # one object, not a list of items
    if isinstance(value, bytes | bytearray | memoryview | range) or is_named_tuple:
        return value
    if not isinstance(value, Mapping | Sequence | Iterator | KeysView | ValuesView | ItemsView):
        bool(value == "" or hasattr(value, "name"))  # raises if the object cannot be compared or inspected
        return value
    if id(value) in container_ids or len(container_ids) == DEEPEST:
        raise SpecError("", value, f"at most {DEEPEST} levels of lists and fields within each other")
    container_ids = (*container_ids, id(value))
    if isinstance(value, Mapping):
        return {key: _plain(item, container_ids) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(item, container_ids) for item in value]
        return items if isinstance(value, list) else tuple(items)
    # An iterator or a view; an iterator may have no end, and one item too many shows that it is too long.
    items = [_plain(item, container_ids) for item in islice(value, MOST_ITEMS + 1)]
    if len(items) > MOST_ITEMS:
        raise SpecError("", value, f"an iterator that ends, of at most {MOST_ITEMS:,} items")
    return tuple(items)


LARGEST = 2**63
"""The bound on whole numbers: tables hold smaller ones only."""

TYPE_TEXTS: dict[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a finite number", str: "text", Path: "a path",
    Sequence: "a list", Iterable: "a list", Mapping: "fields, as in {field: value}", Callable: "a function",
}  # fmt: skip
"""Description of the accepted values of an annotation, for error messages."""


def checked_argument(name: str, value: Any, annotation: Any) -> Any:
    """Return an argument as a plain value of the annotation's type.

    Raises:
        SpecError: the value does not have this type, or cannot be read.
    """
    return _convert(name, plain_argument(name, value), annotation)


def _convert(path: str, value: Any, annotation: Any) -> Any:
    """Return a plain value converted to the type of an annotation, or raise an error with the path of the value."""
    accepted_types = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    # A quantity is text with a unit or a number: its parser checks it and has better error messages.
    if Any in accepted_types or {str, float} <= set(accepted_types):
        return value
    if Path in accepted_types and isinstance(value, str) and "\0" in value:
        raise SpecError(path, value, "a path, which has no NUL")
    for accepted_type in accepted_types:
        if not _has_type(value, accepted_type):
            continue
        item_types = get_args(accepted_type)
        if isinstance(value, list | tuple | range) and item_types:
            return [_convert(f"{path}.{i}", item, item_types[0]) for i, item in enumerate(value)]
        if isinstance(value, dict) and item_types:
            key_type, item_type = item_types
            items = value.items()
            return {_convert(path, key, key_type): _convert(f"{path}.{key}", item, item_type) for key, item in items}
        return int(value) if accepted_type is int else value  # 3.0 becomes 3
    texts = []
    for accepted_type in accepted_types:
        if accepted_type is not type(None):
            base = get_origin(accepted_type) or accepted_type
            texts.append(TYPE_TEXTS.get(base, f"a {getattr(base, '__name__', base)}"))
    raise SpecError(path, value, " or ".join(texts))


def _has_type(value: Any, accepted_type: Any) -> bool:
    """Return whether a value has a type; numbers must be finite, and a float without a fraction is a whole number."""
    base = get_origin(accepted_type) or accepted_type
    if base is Callable:
        return callable(value)
    if base in (int, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            return False
        return base is float or (value == int(value) and abs(value) < LARGEST)
    if base in (Sequence, Iterable):
        return isinstance(value, list | tuple | range)
    return isinstance(value, base)
