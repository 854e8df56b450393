"""Validation of a user's mapping by a pydantic model; error lines name the field as the user wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from syncline.errors import SpecError
from syncline.fields import Spec, explain, parsed
from syncline.units import parse_bandwidth

Name = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
"""Text for people; a number becomes text."""

Number = Annotated[float, Field(strict=True)]

Bandwidth = Annotated[float, parsed(parse_bandwidth)]

T = TypeVar("T")


def whole_number(value: Any, path: str, expected: str) -> int:
    """Return a whole number of at least one.

    Raises:
        SpecError: the value is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(path, value, expected)
    return value


def count_validator(unit: str) -> BeforeValidator:
    """Return a validator of whole numbers of at least one; its error line says ``a number of ..., at least 1``."""
    return parsed(lambda value, path: whole_number(value, path, f"a number of {unit}, at least 1"))


class Description(Spec):
    """A description that users write as a mapping."""

    model_config = ConfigDict(populate_by_name=True)

    needs: ClassVar[str]
    """Error text for a missing field: what would be accepted."""

    attributes: ClassVar[Mapping[str, str]] = {}
    """Attributes of the described costs by field, see `described_costs`."""

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the fields as users write them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def read(cls, fields: Mapping[str, Any], path: str) -> Self:
        """Return the validated description of these fields.

        Raises:
            SpecError: names the wrong field below ``path``, its value, and what would be accepted.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problem = explain(error, lambda _: cls.names())
            missing = error.errors(include_url=False)[0]["type"] == "missing" and problem.value is None
            raise SpecError(
                f"{path}.{problem.path}", problem.value, cls.needs if missing else problem.expected
            ) from None


def described_costs(value: Any, path: str, costs: type[T], description: type[Description]) -> T | None:
    """Return the costs that a user describes.

    Args:
        value: ``true`` for the defaults; ``false`` or nothing for none; the fields of ``description``; or the costs.
        path: the field's name, for the error line.
        costs: dataclass of the costs.
        description: class of the description; its ``attributes`` are those of the costs by field.

    Raises:
        SpecError: a field is unknown or unusable; the error line says what would be accepted.
    """
    if value is None or isinstance(value, costs):
        return value
    if isinstance(value, bool):
        return costs() if value else None
    if not isinstance(value, Mapping):
        raise SpecError(path, value, description.needs)
    read, names = description.read(value, path), {}
    fields = {}
    for name, attribute in description.attributes.items():
        names[attribute], field_value = name, getattr(read, name)
        if field_value is not None:
            fields[attribute] = field_value
    try:
        return costs(**fields)
    except SpecError as error:
        name = error.path.rpartition(".")[2]
        raise SpecError(f"{path}.{names.get(name, name)}", error.value, error.expected) from None


def list_validator(parse_item: Callable[[Any, str], Any], item_description: str) -> BeforeValidator:
    """Return a validator of a list; its error lines name the index of a wrong item.

    Args:
        parse_item: parses an item from its value and its path.
        item_description: description of the items, for the error line.
    """

    def parse(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise SpecError(path, value, f"a list: {item_description}")
        return tuple(parse_item(item, f"{path}.{i}") for i, item in enumerate(value))

    return parsed(parse)


@contextmanager
def user_field_names(path: str) -> Iterator[None]:
    """Rename fields in errors of the cost model to the user's fields: ``link.latency_s`` becomes ``PATH.latency``."""
    try:
        yield
    except SpecError as error:
        if error.path == path or error.path.startswith(f"{path}."):
            raise
        below = error.path.removeprefix("link.").removeprefix("network.").removeprefix("hardware.")
        for unit in ("_bytes_per_s", "_s"):
            if not below.startswith("memory"):
                below = below.removesuffix(unit)
        raise SpecError(f"{path}.{below}", error.value, error.expected) from None
