"""Reading of specs from files, bundled names or mappings, with overrides."""

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

from syncline.checkout import has_replication, import_replication, replication_hint
from syncline.errors import SpecError, SynclineError, one_of
from syncline.fields import kind_of_model, one_of_fields, validate
from syncline.files import parse_yaml
from syncline.methods import preset_of
from syncline.registry import import_reference
from syncline.specs.compute import fields_from_shorthand
from syncline.specs.study import STUDIES, study_of_kind

LIBRARY = Path(__file__).parent / "library"
"""Folder of the specs that come with the package."""

STANDARD_INPUT = "-"
"""Name that stands for standard input in place of a file."""

S = TypeVar("S", bound=BaseModel)

KINDS = {
    "run": "syncline.specs.experiment:RunSpec", "compare": "syncline.specs.experiment:CompareSpec",
    "project": "syncline.specs.projection:ProjectSpec", "pipeline": "syncline.specs.pipeline:PipelineSpec",
    "step-times": "syncline.specs.validation:StepTimesSpec", "clusters": "syncline.specs.validation:ClustersSpec",
}  # fmt: skip
"""The classes of specs by kind, imported when a spec names the kind; `STUDIES` has the kinds of studies."""

VALIDATED = ("step-times", "clusters")
"""The kinds of the specs that ``syncline validate`` takes; any other kind is also the name of its command."""


def class_of_kind(kind: str) -> type[BaseModel]:
    """Return the class of the specs of a kind, including those of studies."""
    if kind not in KINDS:
        return study_of_kind(kind).spec
    spec_class: type[BaseModel] = import_reference(KINDS[kind], installed=True)
    return spec_class


def command_of_kind(kind: str) -> str:
    """Return the command that takes specs of a kind; empty text for an unknown kind."""
    if kind in VALIDATED:
        return "validate"
    if kind in KINDS:  # its command has the same name
        return kind
    return study_of_kind(kind).command if kind in STUDIES else ""


@dataclass(frozen=True)
class Override:
    """A new value for one field of a spec.

    Args:
        path: dotted path of the field; a number indexes a list.
        value: the new value, parsed from YAML.
        origin: name of the command-line option or field, for error lines.
        written: value as the user wrote it, for error lines.
    """

    path: str
    value: Any
    origin: str
    written: Any

    @classmethod
    def parse(cls, text: str) -> Override:
        """Return the override of a text ``field.path=value``, as ``--set`` takes it; the value is YAML."""
        path, equals, value_text = text.partition("=")
        if not equals or not path:
            raise SpecError("--set", text, "field.path=value, as in method.lr=0.01")
        try:
            return cls(path, parse_yaml(value_text), origin=f"--set {path}", written=value_text)
        except ValueError as error:
            raise SpecError(f"--set {path}", value_text, f"a value in YAML ({error})") from None

    @classmethod
    def option(cls, name: str, path: str, value: Any) -> Override:
        """Return the override of a command-line option that sets a field."""
        return cls(path, value, origin=name, written=value)


Overrides = Sequence[str | Override] | Mapping[str, Any]
"""Texts ``field.path=value`` with values in YAML; or a mapping from paths to values."""


def bundled() -> dict[str, Path]:
    """Return the files of the bundled specs by name; a checkout also has those of the papers' studies."""
    files = list(LIBRARY.glob("*.yaml"))
    if has_replication():
        files += import_replication("studies").LIBRARY.glob("*.yaml")
    return {path.stem: path for path in sorted(files, key=lambda path: path.name)}


def load_spec(
    source: str | Path | Mapping[str, Any],
    overrides: Overrides = (),
    *specs: type[S],
    studies_of: str = "",
    scale: str | None = None,
) -> S:
    """Read a spec, apply a scale and overrides, and return it validated; errors are one line that names the problem.

    Args:
        source: a bundled spec's name, a YAML file, ``-`` for standard input, or the fields themselves.
        overrides: new values of fields: texts ``"field.path=value"``, or a mapping from paths to values; a number in a
            path indexes a list.
        *specs: classes of specs that the caller accepts; by default all classes and all studies.
        studies_of: name of a command whose studies are accepted, too: ``run`` or ``project``.
        scale: name of one of the file's ``scales``; its fields are set before ``overrides``.
    """
    fields = with_overrides(read_fields(source, scale), overrides)
    kind = str(fields.get("kind"))
    accepted_classes = {kind_of_model(spec): spec for spec in specs}
    accepted_kinds = list(accepted_classes or KINDS)

    def accepts_study(study_kind: str) -> bool:
        return not specs or study_of_kind(study_kind).command == studies_of

    is_accepted = kind in accepted_kinds or (kind in STUDIES and accepts_study(kind))
    if not isinstance(fields.get("kind"), str) or not is_accepted:
        accepted_kinds += [study_kind for study_kind in STUDIES.names() if accepts_study(study_kind)]
        command = command_of_kind(kind)
        hint = f"; a spec of kind {kind!r} is for 'syncline {command}'" if command else replication_hint()
        raise SpecError("kind", fields.get("kind"), one_of(accepted_kinds, kind) + hint)
    return validate(accepted_classes.get(kind) or class_of_kind(kind), fields)  # type: ignore[return-value]


def read_fields(source: str | Path | Mapping[str, Any], scale: str | None = None) -> dict[str, Any]:
    """Return the fields of a spec's file or mapping, with the fields of one of its scales set."""
    fields: dict[str, Any] = copy_containers(source) if isinstance(source, Mapping) else _read_file(source)
    _apply_scale(fields, scale)
    return fields


def kind_of(name_or_path: str | Path, overrides: Overrides = ()) -> str:
    """Return the kind that a spec's file names; ``None`` as text if it names none."""
    return str(with_overrides(_read_file(name_or_path), overrides).get("kind"))


def _read_file(name_or_path: str | Path) -> dict[str, Any]:
    """Return the fields of a bundled spec, of a file or of standard input."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise SpecError("spec", name_or_path, "the name of a spec, a file, or a mapping of fields")
    if str(name_or_path) == STANDARD_INPUT:
        return _parse_text(_read_stream(sys.stdin), "standard input")
    path = bundled().get(str(name_or_path), Path(name_or_path))
    if not os.path.isfile(path):  # unlike Path.is_file, it accepts a name that is too long for a file
        if str(name_or_path).endswith((".yaml", ".yml")) or "/" in str(name_or_path):
            raise SpecError("spec", str(name_or_path), "a YAML file that exists")
        expected = f"a YAML file, or {one_of(bundled(), str(name_or_path))}; see 'syncline list specs'"
        raise SpecError("spec", str(name_or_path), expected + replication_hint())
    try:
        return _parse_text(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise SpecError("spec", str(path), f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SynclineError(f"spec: {path} is not YAML: {error}") from None


@lru_cache(maxsize=1)  # a stream can be read only once
def _read_stream(stream: TextIO) -> str:
    """Return the text of a stream, also if it was read before."""
    try:
        return stream.read()
    except UnicodeDecodeError as error:
        raise SynclineError(f"spec: standard input is not YAML: {error}") from None


def _parse_text(text: str, source: str) -> dict[str, Any]:
    """Return the fields of a spec's text in YAML; ``source`` names its file in errors."""
    try:
        fields = parse_yaml(text)
    except ValueError as error:  # the text is not YAML, or has an impossible date
        raise SynclineError(f"spec: {source} is not YAML: {error}") from None
    if not isinstance(fields, dict):
        raise SpecError("spec", source, "a file with fields: 'kind: ...', 'name: ...' and so on")
    return fields


def _apply_scale(fields: dict[str, Any], scale: str | None) -> None:
    """Remove the block ``scales``, and set the fields ``{field.path: value}`` of the requested scale in place."""
    scales = fields.pop("scales", {})
    if not isinstance(scales, dict) or not all(isinstance(scale_fields, dict) for scale_fields in scales.values()):
        raise SpecError("scales", scales, "fields by name of a scale, as in {gpu: {steps: 1000, problem.width: 64}}")
    if scale is None:
        return
    if scale not in scales:
        raise SpecError("--scale", scale, one_of(scales, scale) if scales else "none, as this spec has no scales")
    for path, value in scales[scale].items():
        _set_field(fields, str(path), value, option=f"scales.{scale}.{path}", written=value)


def with_overrides(base_fields: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return a copy of the fields with the overrides applied in their order."""
    fields: dict[str, Any] = copy_containers(base_fields)
    if isinstance(overrides, Mapping):
        overrides = [Override.option(path, path, value) for path, value in overrides.items()]
    for text_or_override in overrides:
        override = Override.parse(text_or_override) if isinstance(text_or_override, str) else text_or_override
        value = copy_containers(override.value)  # because a later override may change parts of it
        _set_field(fields, override.path, value, option=override.origin, written=override.written)
    return fields


def copy_containers(value: Any) -> Any:
    """Return a copy of nested mappings and lists; other values, such as models or data sets, are not copied."""
    if isinstance(value, Mapping):
        return {key: copy_containers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_containers(item) for item in value]
    return value


def _set_field(fields: dict[str, Any], path: str, value: Any, option: str, written: Any) -> None:
    """Set one field in place; a name on the path, such as a method's, is first replaced by the fields of what it names.

    Args:
        fields: fields of the spec, which change.
        option: name of the option or field that sets it, for error lines.
        written: value as the user wrote it, for error lines.
    """
    *parents, last = path.split(".")
    container: Any = fields
    for depth, part in enumerate(parents, start=1):
        key = _key_or_index(container, part, option)
        child = container.setdefault(key, {}) if isinstance(container, dict) else container[key]
        if depth == len(parents) and is_dataclass(child) and not isinstance(child, type):
            container[key] = _replace_field(child, last, value, option)
            return
        child = _as_fields(child, parents[:depth], option)
        if not isinstance(child, dict | list):
            raise SpecError(option, written, f"a path of fields, and {part!r} is a plain value")
        container[key] = child
        container = child
    container[_key_or_index(container, last, option)] = value


def _as_fields(value: Any, path: list[str], option: str) -> Any:
    """Return the value at a path as a mapping or a list to set a field in; other values unchanged."""
    if path == ["compute"] and isinstance(value, str | int | float):
        return fields_from_shorthand(value)
    if isinstance(value, str):
        field = path[-2] if len(path) > 1 and path[-1].isdecimal() else path[-1]  # methods.0 is an entry of methods
        if field in ("method", "methods"):
            return preset_of(value, option)
        is_preset = field in ("hardware", "network", "networks")
        return {"preset" if is_preset else "kind": value}
    if isinstance(value, BaseModel):  # an object of Python, such as a method
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _replace_field(instance: Any, field: str, value: Any, option: str) -> Any:
    """Return a copy of a problem or network that is an object of Python, with a new value of one field."""
    names = [spec_field.name for spec_field in dataclass_fields(instance) if spec_field.init]
    if field not in names:
        raise SpecError(option, field, "no such field here, but " + one_of_fields(names, field))
    return replace(instance, **{field: value})


def _key_or_index(container: Any, part: str, option: str) -> Any:
    """Return the part of a path as the key of a mapping, or as the index of a list."""
    if isinstance(container, dict):
        return part
    if part.isdecimal() and int(part) < len(container):
        return int(part)
    expected = f"an index from 0 to {len(container) - 1}" if container else "no index: the list is empty"
    raise SpecError(option, part, expected)
