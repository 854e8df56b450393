"""From a file or a bundled name, with overrides, to a spec."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic import BaseModel

from syncline.errors import SpecError, SynclineError, one_of
from syncline.fields import kind_of_model, validate
from syncline.methods import named
from syncline.specs.compute import fields_of_word
from syncline.specs.experiment import CompareSpec, ProjectSpec, RunSpec
from syncline.specs.pipeline import PipelineSpec
from syncline.specs.study import STUDIES, study_of_kind
from syncline.specs.validation import VALIDATIONS
from syncline.yamls import parse_yaml

LIBRARY = Path(__file__).parent / "library"
"""The specs that come with the package."""

STANDARD_INPUT = "-"
"""In place of a file."""

S = TypeVar("S", bound=BaseModel)

_OWN: tuple[type[BaseModel], ...] = (RunSpec, CompareSpec, ProjectSpec, PipelineSpec, *VALIDATIONS)

KINDS = {kind_of_model(spec): spec for spec in _OWN}
"""The classes of specs, by kind; those of studies are in `syncline.specs.study.STUDIES`."""


def class_of_kind(kind: str) -> type[BaseModel]:
    """The class of the specs of a kind, a study's too."""
    return KINDS[kind] if kind in KINDS else study_of_kind(kind).spec


def command_of_kind(kind: str) -> str:
    """Which command takes specs of a kind; none that there is not."""
    if kind in KINDS:
        return "validate" if KINDS[kind] in VALIDATIONS else kind
    return study_of_kind(kind).command if kind in STUDIES else ""


@dataclass(frozen=True)
class Override:
    """A field that is to have another value than its file says.

    Args:
        path: the field, in dots; a number indexes a list.
        value: its value, as YAML reads it.
        told: what refusals of the path call it: an option.
        written: what the user wrote there.
    """

    path: str
    value: Any
    told: str
    written: Any

    @classmethod
    def parse(cls, text: str) -> Override:
        """``field.path=value``, as ``--set`` takes it; the value is read as YAML.

        Raises:
            SpecError: there is no ``=``, or no YAML behind it.
        """
        path, equals, written = text.partition("=")
        if not equals or not path:
            raise SpecError("--set", text, "field.path=value, as in method.lr=0.01")
        try:
            return cls(path, parse_yaml(written), f"--set {path}", written)
        except ValueError:
            raise SpecError(f"--set {path}", written, "a value in YAML") from None

    @classmethod
    def option(cls, name: str, path: str, value: Any) -> Override:
        """An option of the command line that stands for a field."""
        return cls(path, value, name, value)


Overrides = Sequence[str | Override] | Mapping[str, Any]
"""``field.path=value`` each, where the value is read as YAML; or values by path."""


def _as_overrides(given: Overrides) -> list[Override]:
    if isinstance(given, Mapping):
        return [Override.option(path, path, value) for path, value in given.items()]
    return [one if isinstance(one, Override) else Override.parse(one) for one in given]


def bundled() -> dict[str, Path]:
    """Bundled specs by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.yaml"))}


def load_spec(
    given: str | Path | Mapping[str, Any],
    overrides: Overrides = (),
    *specs: type[S],
    studies_of: str = "",
    scale: str | None = None,
) -> S:
    """Read a spec.

    Args:
        given: a bundled spec's name, a YAML file, ``-`` for standard input, or the fields themselves.
        overrides: fields that have other values: ``"field.path=value"`` each, or values by path; a number in the path
            indexes a list.
        *specs: the classes that the caller can use; all of them, and all studies, if none is named.
        studies_of: of this command, the specs of studies too.
        scale: one of the file's ``scales``, whose fields are set before those of ``overrides``.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.
    """
    fields = with_overrides(read_fields(given, scale), overrides)
    kind = str(fields.get("kind"))
    usable = {kind_of_model(spec): spec for spec in specs or KINDS.values()}
    if kind not in usable and kind in STUDIES and (not specs or study_of_kind(kind).command == studies_of):
        usable[kind] = study_of_kind(kind).spec
    if not isinstance(fields.get("kind"), str) or kind not in usable:
        known = [name for name in STUDIES.names() if not specs or study_of_kind(name).command == studies_of]
        command = command_of_kind(kind)
        hint = f"; a spec of kind {kind!r} is for 'syncline {command}'" if command else ""
        raise SpecError("kind", fields.get("kind"), one_of([*usable, *known], kind) + hint)
    return validate(usable[kind], fields)  # type: ignore[return-value]


def read_fields(given: str | Path | Mapping[str, Any], scale: str | None = None) -> dict[str, Any]:
    """What stands in a spec's file, or is given, with one of its scales set."""
    fields: dict[str, Any] = containers_copied(given) if isinstance(given, Mapping) else _read(given)
    _rescale(fields, scale)
    return fields


def kind_of(name_or_path: str | Path, overrides: Overrides = ()) -> str:
    """Which kind of spec it is, as far as it says."""
    fields = _read(name_or_path)
    _override(fields, overrides)
    return str(fields.get("kind"))


def _read(name_or_path: str | Path) -> dict[str, Any]:
    if str(name_or_path) == STANDARD_INPUT:
        return _fields_in(_all_of(sys.stdin), "standard input")
    path = bundled().get(str(name_or_path), Path(name_or_path))
    if not os.path.isfile(path):  # which takes a name that is too long for a file as what it is
        if str(name_or_path).endswith((".yaml", ".yml")) or "/" in str(name_or_path):
            raise SpecError("spec", str(name_or_path), "a YAML file that exists")
        told = f"a YAML file, or {one_of(bundled(), str(name_or_path))}; see 'syncline list specs'"
        raise SpecError("spec", str(name_or_path), told)
    try:
        return _fields_in(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise SpecError("spec", str(path), f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SynclineError(f"spec: {path} is not YAML: {error}") from None


@lru_cache(maxsize=1)
def _all_of(stream: TextIO) -> str:
    """What can be read but once, for all who ask."""
    try:
        return stream.read()
    except UnicodeDecodeError as error:
        raise SynclineError(f"spec: standard input is not YAML: {error}") from None


def _fields_in(text: str, where: str) -> dict[str, Any]:
    try:
        fields = parse_yaml(text)
    except ValueError as error:  # no YAML, a day that is no date
        raise SynclineError(f"spec: {where} is not YAML: {error}") from None
    if not isinstance(fields, dict):
        raise SpecError("spec", where, "a file with fields: 'kind: ...', 'name: ...' and so on")
    return fields


def _rescale(fields: dict[str, Any], scale: str | None) -> None:
    """Take the block ``scales`` out, and set the fields of one of them, ``{field.path: value}``."""
    scales = fields.pop("scales", {})
    if not isinstance(scales, dict) or not all(isinstance(one, dict) for one in scales.values()):
        raise SpecError("scales", scales, "fields by name of a scale, as in {gpu: {steps: 1000, problem.width: 64}}")
    if scale is None:
        return
    if not scales:
        raise SpecError("--scale", scale, "none, as this spec has no scales")
    if scale not in scales:
        raise SpecError("--scale", scale, one_of(scales, scale))
    for path, value in scales[scale].items():
        _set(fields, str(path), value, f"scales.{scale}.{path}", value)


def with_overrides(given: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Fields of their own with others set, in the order of the overrides."""
    fields: dict[str, Any] = containers_copied(given)
    _override(fields, overrides)
    return fields


def _override(fields: dict[str, Any], overrides: Overrides) -> None:
    """Set fields in place, in the order of the overrides."""
    for one in _as_overrides(overrides):
        # A later override may go into the value, which is the caller's.
        _set(fields, one.path, containers_copied(one.value), one.told, one.written)


def containers_copied(value: Any) -> Any:
    """Mappings and lists anew, all the way down; what is in them, which may be a model or a data set, as it is."""
    if isinstance(value, Mapping):
        return {key: containers_copied(inner) for key, inner in value.items()}
    return [containers_copied(inner) for inner in value] if isinstance(value, list) else value


def _set(fields: dict[str, Any], path: str, value: Any, told: str, written: Any) -> None:
    """Set one field in place. Names that stand for fields (a method's) are expanded where the path goes into them.

    A refusal calls it what is ``told``, with the value as it was ``written``.
    """
    *parents, last = path.split(".")
    here: Any = fields
    for depth, part in enumerate(parents):
        key = _key(here, part, told)
        inner = here[key] if not isinstance(here, dict) else here.setdefault(key, {})
        if path.startswith("compute.") and isinstance(inner, str | int | float):
            inner = here[key] = fields_of_word(inner)
        elif isinstance(inner, str):
            is_method = parents[0] in ("method", "methods") and depth == (parents[0] == "methods")
            # A method's name stands for all its fields; any other name is a kind.
            inner = here[key] = named(inner, told) if is_method else {"kind": inner}
        elif isinstance(inner, BaseModel):  # a method, say, that was made in Python
            inner = here[key] = dict(inner)
        elif isinstance(inner, tuple):
            inner = here[key] = list(inner)
        elif is_dataclass(inner) and not isinstance(inner, type) and depth == len(parents) - 1:
            here[key] = _replaced(inner, last, value, told)
            return
        if not isinstance(inner, dict | list):
            raise SpecError(told, written, f"a path into fields, and {part!r} is a plain value")
        here = inner
    here[_key(here, last, told)] = value


def _replaced(thing: Any, field: str, value: Any, told: str) -> Any:
    """A problem or a network that was made in Python, with another value for one of its fields."""
    known = [one.name for one in dataclass_fields(thing) if one.init]
    if field not in known:
        raise SpecError(told, field, "no such field here, but " + one_of(known, field))
    return replace(thing, **{field: value})


def _key(here: Any, part: str, told: str) -> Any:
    if isinstance(here, dict):
        return part
    if part.isdecimal() and int(part) < len(here):
        return int(part)
    raise SpecError(told, part, f"an index from 0 to {len(here) - 1}" if here else "no index: the list is empty")
