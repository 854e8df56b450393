"""From a file or a bundled name, with overrides, to a spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from syncline.errors import SpecError, SynclineError, one_of
from syncline.fields import kind_of_model, validate
from syncline.methods import named
from syncline.specs.experiment import CompareSpec, ProjectSpec, RunSpec
from syncline.specs.pipeline import PipelineSpec
from syncline.specs.studies import StudySpec
from syncline.specs.tables import TableSpec
from syncline.specs.validation import VALIDATIONS, ValidationSpec
from syncline.yamls import parse_yaml

LIBRARY = Path(__file__).parent / "library"
"""The specs that come with the package."""

S = TypeVar("S", bound=BaseModel)

AnySpec = RunSpec | CompareSpec | ProjectSpec | PipelineSpec | TableSpec | StudySpec | ValidationSpec

KINDS: dict[str, type[BaseModel]] = {
    get_args(spec.model_fields["kind"].annotation)[0]: spec for spec in get_args(AnySpec)
}

COMMAND_OF_KIND = dict.fromkeys(KINDS, "project") | {"compare": "compare", "pipeline": "pipeline"}
COMMAND_OF_KIND |= {kind: "run" for kind, spec in KINDS.items() if spec in (RunSpec, *get_args(StudySpec))}
COMMAND_OF_KIND |= {kind: "validate" for kind, spec in KINDS.items() if spec in VALIDATIONS}


def bundled() -> dict[str, Path]:
    """Bundled specs by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.yaml"))}


def load_spec(name_or_path: str | Path, overrides: Sequence[str] = (), *specs: type[S], scale: str | None = None) -> S:
    """Read a spec.

    Args:
        name_or_path: a bundled spec's name, or a YAML file.
        overrides: ``field.path=value`` each, where the value is read as YAML; a number in the path indexes a list.
        *specs: the kinds of spec that the caller can use; all of them if none is named.
        scale: one of the file's ``scales``, whose fields are set before those of ``overrides``.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.
    """
    fields = _read(name_or_path)
    _rescale(fields, scale)
    for override in overrides:
        _apply(fields, override)
    usable = {kind_of_model(spec): spec for spec in specs or KINDS.values()}
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in usable:
        command = COMMAND_OF_KIND.get(str(kind))
        hint = f"; a spec of kind {kind!r} is for 'syncline {command}'" if command else ""
        raise SpecError("kind", kind, one_of(usable, str(kind)) + hint)
    return validate(usable[kind], fields)  # type: ignore[return-value]


def kind_of(name_or_path: str | Path, overrides: Sequence[str] = ()) -> str:
    """Which kind of spec it is, as far as it says."""
    fields = _read(name_or_path)
    for override in overrides:
        _apply(fields, override)
    return str(fields.get("kind"))


def _read(name_or_path: str | Path) -> dict[str, Any]:
    path = bundled().get(str(name_or_path), Path(name_or_path))
    if not path.is_file():
        if str(name_or_path).endswith((".yaml", ".yml")) or "/" in str(name_or_path):
            raise SpecError("spec", str(name_or_path), "a YAML file that exists")
        raise SpecError("spec", str(name_or_path), f"a YAML file, or {one_of(bundled(), str(name_or_path))}")
    try:
        fields = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError("spec", str(path), f"a file that can be read ({error.strerror})") from None
    except ValueError as error:  # no YAML, bytes that are no text, a day that is no date
        raise SynclineError(f"spec: {path} is not YAML: {error}") from None
    if not isinstance(fields, dict):
        raise SpecError("spec", str(path), "a file with fields: 'kind: ...', 'name: ...' and so on")
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


def _apply(fields: dict[str, Any], override: str) -> None:
    """Set one field in place, as ``--set`` does."""
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise SpecError("--set", override, "field.path=value, as in method.lr=0.01")
    try:
        value = parse_yaml(text)
    except ValueError:
        raise SpecError(f"--set {path}", text, "a value in YAML") from None
    _set(fields, path, value, f"--set {path}", text)


def _set(fields: dict[str, Any], path: str, value: Any, told: str, written: Any) -> None:
    """Set one field in place. Names that stand for fields (a method's) are expanded where the path goes into them.

    A refusal calls it what is ``told``, with the value as it was ``written``.
    """
    *parents, last = path.split(".")
    here: Any = fields
    for depth, part in enumerate(parents):
        key = _key(here, part, told)
        inner = here[key] if not isinstance(here, dict) else here.setdefault(key, {})
        if isinstance(inner, str):
            is_method = parents[0] in ("method", "methods") and depth == (parents[0] == "methods")
            # A method's name stands for all its fields; any other name is a kind.
            inner = here[key] = named(inner, told) if is_method else {"kind": inner}
        if not isinstance(inner, dict | list):
            raise SpecError(told, written, f"a path into fields, and {part!r} is a plain value")
        here = inner
    here[_key(here, last, told)] = value


def _key(here: Any, part: str, told: str) -> Any:
    if isinstance(here, dict):
        return part
    if part.isdecimal() and int(part) < len(here):
        return int(part)
    raise SpecError(told, part, f"an index from 0 to {len(here) - 1}" if here else "no index: the list is empty")
