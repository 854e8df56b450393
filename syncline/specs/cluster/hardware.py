"""Hardware and price lists from a user's description, and the fields that describe hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import Field, create_model

from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.costmodel.compute.hardware import HARDWARE, Hardware
from syncline.costmodel.numerics.measured_times import MeasuredTimes, Point, read_times
from syncline.costmodel.prices import PRICES, Prices
from syncline.errors import SpecError, require_one_of
from syncline.fields import Spec, validate
from syncline.registry import PYTHON, Registry, call_from_fields, is_reference
from syncline.specs.cluster import reading

BY_NAME: Registry[Any] = Registry("hardware", "syncline.hardware", HARDWARE)
"""Presets and registered hardware: a ``Hardware``, or its fields."""


class HardwareDescription(reading.Description):
    """A machine: ``peak_flops`` and ``mfu``, and optionally the other fields of a ``Hardware``.

    ``collectives``: by kind, times that were measured among several machines, as a .csv file or its rows. ``bounds``:
    errors of predictions, from a calibration.
    """

    needs = f"a number: {reading.FIELD_EXAMPLES['hardware']}"

    name: reading.Name = ""
    peak_flops: float
    mfu: float
    precision: reading.Name = "fp32"
    source: reading.Name = ""
    memory_bytes: reading.Bytes | None = None
    memory_bytes_per_s: reading.Bandwidth | None = None
    host_bytes_per_s: reading.Bandwidth | None = None
    power_w: float | None = None
    collectives: dict[str, Any] = Field(default_factory=dict)
    bounds: reading.BoundsField | None = None


class ChangedHardware(reading.Description):
    """A preset with other fields: ``{preset: h100, power_w: 500}``.

    With ``mfu``, a step takes its FLOPs at this share of the peak, and the times of the preset's kernels are not used.
    """

    needs = f"a value: {reading.FIELD_EXAMPLES['hardware']}"

    preset: Any
    name: reading.Name | None = None
    peak_flops: float | None = None
    mfu: float | None = None
    source: reading.Name | None = None
    memory_bytes: reading.Bytes | None = None
    memory_bytes_per_s: reading.Bandwidth | None = None
    host_bytes_per_s: reading.Bandwidth | None = None
    power_w: float | None = None

    def build(self, path: str) -> Hardware:
        """Return the preset hardware with the changed fields."""
        base = hardware(self.preset, f"{path}.preset")
        changes = {name: value for name, value in self if value is not None and name != "preset"}
        kernels = base.kernels if self.mfu is None else None  # an ``mfu`` replaces them
        with reading.user_field_names(path):
            return replace(base, kernels=kernels, **changes)


def hardware(value: str | Path | Mapping[str, Any] | Hardware, path: str = "hardware") -> Hardware:
    """Return the hardware that a user describes; ``path`` names the field in error lines.

    Args:
        value: the name of a preset or of registered hardware; a mapping, or its YAML text in braces, of the fields of a
            ``Hardware`` (``peak_flops`` and ``mfu`` are required), or of a ``preset`` and the fields that differ, see
            `ChangedHardware`; the path of a ``.yaml`` file with such fields, or with a section ``hardware``;
            ``module:name`` of any of these; ``{kind: python, target: module:name, ...}``, which calls ``target`` with
            the other keys; or a ``Hardware``.

    >>> hardware({"name": "mine", "peak_flops": 4.1e10, "mfu": 0.31, "memory_bytes": "8 GiB"}).memory_bytes
    8589934592.0
    """
    if isinstance(value, Hardware):
        return value
    if reading.is_file(value):
        return _from_mapping(reading.read_section(Path(value), "hardware", path), path)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = reading.parse_fields(value, path, reading.FIELD_EXAMPLES["hardware"])
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    name: Any = value.lower() if isinstance(value, str) and not is_reference(value) else value
    if not isinstance(value, str) or not (is_reference(name) or name in BY_NAME):
        raise SpecError(path, value, reading.name_or_file(BY_NAME.names(), name, "a .yaml file"))
    return _hardware_of_reference(value, BY_NAME.get(name, path), path)


def _hardware_of_reference(reference: str | dict[str, Any], target: Any, path: str) -> Hardware:
    """Return the hardware that a reference such as ``module:NAME`` leads to, directly or by its fields."""
    if not isinstance(target, Hardware | Mapping):
        raise SpecError(path, reference, f"a Hardware or its fields, and this is {type(target).__name__}")
    return hardware(target, path)


def hardware_fields(machine: Hardware) -> dict[str, Any] | str:
    """Return the preset's name or the fields from which ``hardware`` builds the same hardware again."""
    if HARDWARE.get(machine.name) == machine:
        return machine.name
    values = {field.name: getattr(machine, field.name) for field in fields(machine)}
    if machine.kernels is not None:  # a spec has no fields for kernels: a preset with equal kernels stands for them
        choices: list[dict[str, Any]] = []
        for preset in HARDWARE.values():
            if preset.kernels == machine.kernels:
                changes = {name: value for name, value in values.items() if value != getattr(preset, name)}
                choices.append({"preset": preset.name} | changes)
        return min(choices, key=len)  # with the fewest changed fields
    machine_fields = {name: value for name, value in values.items() if value is not None and name != "collectives"}
    if machine.bounds is not None:
        machine_fields["bounds"] = reading.bounds_fields(machine.bounds)
    if machine.collectives:
        machine_fields["collectives"] = {
            times.kind: [list(point) for point in times.points] for times in machine.collectives
        }
    return machine_fields


def _parse_measured_times(kind: str, source: Any, gpu: str, path: str) -> MeasuredTimes:
    """Return the measured times of a collective from a .csv file, or from rows of ranks, bytes and seconds."""
    if isinstance(source, str):
        reading.check_file(Path(source), path)
        return read_times(Path(source), kind, gpu, path)
    try:
        points = tuple(Point(int(ranks), float(nbytes), float(seconds)) for ranks, nbytes, seconds in source)
    except (TypeError, ValueError):
        raise SpecError(path, source, "a .csv file, or a list of [ranks, bytes, seconds]") from None
    return MeasuredTimes(kind, points)


def _from_mapping(mapping: Mapping[str, Any], path: str) -> Hardware:
    """Return the hardware of a call, of a preset with changes, or of a machine's fields."""
    if mapping.get("kind") == PYTHON:
        return _hardware_of_reference(dict(mapping), call_from_fields(mapping, path), path)
    if "preset" in mapping:
        return ChangedHardware.read(mapping, path).build(path)
    description = HardwareDescription.read(mapping, path)
    collectives = []
    with reading.user_field_names(path):
        for kind, times in description.collectives.items():
            require_one_of("collectives", kind, COLLECTIVES)
            collectives.append(_parse_measured_times(kind, times, gpu=description.name, path=f"collectives.{kind}"))
        name = description.name or f"{1e-9 * description.peak_flops:.3g} GFLOP/s"
        return Hardware(**(dict(description) | {"name": name, "collectives": tuple(collectives)}))


PRICES_EXAMPLE = "prices, as in 'accelerator_hour: 2.5'"

_PRICE_TYPES: dict[str, Any] = get_type_hints(Prices)
_PRICE_FIELDS: dict[str, Any] = {field.name: (_PRICE_TYPES[field.name], field.default) for field in fields(Prices)}
PricesSpec = create_model(
    "PricesSpec", __base__=Spec, __doc__="The fields of `Prices`, by their own names.", **_PRICE_FIELDS
)


def parse_prices(value: Any) -> Prices:
    """Return the price list that a user gives by a published list's name, a YAML file, fields, or a ``Prices``."""
    if isinstance(value, Prices):
        return value
    if reading.is_file(value):
        file = Path(value)
        value = {"name": file.stem, **reading.fields_of_file(file, "prices", PRICES_EXAMPLE)}
    elif isinstance(value, str):
        if value not in PRICES:
            raise SpecError("prices", value, reading.name_or_file(PRICES, value, "a .yaml file of prices", code=False))
        return PRICES[value]
    if not isinstance(value, dict):
        raise SpecError("prices", value, PRICES_EXAMPLE)
    return Prices(**dict(validate(PricesSpec, value)))
