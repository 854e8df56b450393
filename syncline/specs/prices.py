"""Price lists from a user's description: a file, a name, or fields."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import create_model

from syncline.costmodel.prices import PRICES, Prices
from syncline.errors import SpecError, one_of
from syncline.fields import Spec, validate
from syncline.specs.cluster.files import is_file, parse_fields, read_text

EXAMPLE = "prices, as in 'accelerator_hour: 2.5'"

_TYPES: dict[str, Any] = get_type_hints(Prices)
_FIELDS: dict[str, Any] = {field.name: (_TYPES[field.name], field.default) for field in fields(Prices)}
PricesSpec = create_model("PricesSpec", __base__=Spec, __doc__="The fields of `Prices`, by their own names.", **_FIELDS)


def parse_prices(value: Any) -> Prices:
    """Return the price list that a user describes.

    Args:
        value: name of a published price list, a YAML file, its fields, or a ``Prices``.

    Raises:
        SpecError: the name is unknown, the file cannot be read, or a field is unknown.
    """
    if isinstance(value, Prices):
        return value
    if isinstance(value, str) and not is_file(value):
        if value not in PRICES:
            raise SpecError("prices", value, f"a file of prices in YAML, or {one_of(PRICES, value)}")
        return PRICES[value]
    name_field: dict[str, Any] = {}
    if is_file(value):
        file = Path(value)
        name_field = {"name": file.stem}
        value = parse_fields(read_text(file, "prices"), str(file), "prices", "a file", EXAMPLE)
    if not isinstance(value, dict):
        raise SpecError("prices", value, EXAMPLE)
    read = validate(PricesSpec, name_field | value)
    return Prices(**{price_field.name: getattr(read, price_field.name) for price_field in fields(Prices)})
