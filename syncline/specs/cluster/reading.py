"""A mapping against a pydantic model, and what comes of it as the cost model's own: refusals name the user's field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from syncline.errors import SpecError
from syncline.fields import Spec, explain, parsed
from syncline.units import parse_bandwidth

Name = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
"""Text for people; a number that stands there is text, too."""

Number = Annotated[float, Field(strict=True)]

Bandwidth = Annotated[float, parsed(parse_bandwidth)]


def whole(value: Any, path: str, expected: str) -> int:
    """A whole number of at least one.

    Raises:
        SpecError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(path, value, expected)
    return value


def counted(what: str) -> BeforeValidator:
    """A validator of ``a number of ..., at least 1``."""
    return parsed(lambda value, path: whole(value, path, f"a number of {what}, at least 1"))


class Described(Spec):
    """What users write as a mapping."""

    model_config = ConfigDict(populate_by_name=True)

    needs: ClassVar[str]
    """What is expected where a field is missing."""

    @classmethod
    def names(cls) -> list[str]:
        """The fields as users write them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def read(cls, fields: Mapping[str, Any], path: str) -> Self:
        """The model of these fields.

        Raises:
            SpecError: names the field below ``path``, its value, and what would be accepted.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            told = explain(error, lambda _: cls.names())
            missing = error.errors(include_url=False)[0]["type"] == "missing" and told.value is None
            raise SpecError(f"{path}.{told.path}", told.value, cls.needs if missing else told.expected) from None


def list_of(one: Callable[[Any, str], Any], what: str) -> BeforeValidator:
    """A validator of a list, whose refusals name the place in it."""

    def parse(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise SpecError(path, value, f"a list: {what}")
        return tuple(one(each, f"{path}.{i}") for i, each in enumerate(value))

    return parsed(parse)


@contextmanager
def users_fields(path: str) -> Iterator[None]:
    """Refusals from the cost model's own checks name the user's field: ``link.latency_s`` is ``PATH.latency``."""
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
