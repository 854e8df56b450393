"""The name of a run: a hash of all that its results depend on. The same name is the same run."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from syncline import errors
from syncline.registry import is_reference
from syncline.specs import RunSpec
from syncline.specs.clock import ClockSpec
from syncline.version import __version__

DECIDING = ("torch", "numpy")
"""Packages whose version can change a bit of a result."""

FOR_PEOPLE = ("name", "description", "source")
"""Fields that change no number."""

OF_THE_CLOCK = (*ClockSpec.model_fields, "network", "compute", "timeline_steps")
"""Fields that a training does not see: runs that differ in nothing else share one."""

DIGITS = 20
"""Of a name; hexadecimal."""


@cache
def code_version() -> str:
    """The version of what computes: Syncline's, with a digest of its files, and those of Python, torch and NumPy."""
    package = Path(errors.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    others = [f"{name} {metadata.version(name)}" for name in DECIDING]
    return ", ".join([f"syncline {__version__} {digest.hexdigest()[:12]}", _python(), *others])


def canonical(value: Any) -> str:
    """JSON with one way to write a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_opaque)


def run_names(spec: RunSpec, code: str) -> dict[int, str]:
    """What the folder of each seed's run is called: the same for specs that mean the same, whatever they are called."""
    told, own = _told(spec, FOR_PEOPLE), own_files(spec)
    return {seed: _hashed(told | {"seeds": [seed]}, code, own) for seed in spec.seeds}


def training_name(spec: RunSpec) -> str:
    """The same for configurations whose seeds need one training each: they differ in the clock's fields alone."""
    return _hashed(_told(spec, (*FOR_PEOPLE, *OF_THE_CLOCK, "seeds")))


def own_files(spec: RunSpec) -> dict[str, str]:
    """Digests of the files beside Syncline that a run depends on.

    They are those in which the classes of its parts are defined, those that ``module:name`` refers to, and those that
    the problem names. What these files import is not looked for.
    """
    found = {file: _digest(file) for file in set(_files(spec))}
    return {file.name: digest for file, digest in sorted(found.items())}


def _told(spec: RunSpec, without: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in spec.model_dump(mode="json").items() if name not in without}


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:DIGITS]


def _python() -> str:
    return f"python {platform.python_version()}"


def _files(spec: RunSpec) -> Iterator[Path]:
    for part in (spec.problem, spec.method, spec.network):
        yield from _files_of_classes(part)
    dumped = spec.model_dump(mode="json")
    for text in _texts(dumped):
        if is_reference(text):
            module = text.rpartition(":")[0]
            own = Path(module) if module.endswith(".py") else _file_of_module(module)
            if own is not None and own.is_file():
                yield own.resolve()
    for text in _texts({name: value for name, value in dumped["problem"].items() if name != "kind"}):
        if 0 < len(text) < 4096 and "\n" not in text and Path(text).is_file():
            yield Path(text).resolve()


def _files_of_classes(part: Any) -> Iterator[Path]:
    module = type(part).__module__
    if module.partition(".")[0] not in ("builtins", "syncline"):
        own = _file_of_module(module)
        if own is not None:
            yield own.resolve()
    if isinstance(part, BaseModel):
        inner = [getattr(part, name) for name in type(part).model_fields]
    elif is_dataclass(part):
        inner = [getattr(part, one.name, None) for one in fields(part)]
    else:
        inner = list(part) if isinstance(part, list | tuple) else []
    for one in inner:
        yield from _files_of_classes(one)


def _file_of_module(name: str) -> Path | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _digest(file: Path) -> str:
    return _digest_of(file, file.stat().st_mtime_ns, file.stat().st_size)


@cache
def _digest_of(file: Path, changed_ns: int, size: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGITS]


def _opaque(value: Any) -> str:
    """What JSON cannot hold, by its pickle: an object that was given in Python."""
    from joblib.externals.cloudpickle import dumps

    return f"{type(value).__qualname__} {hashlib.sha256(dumps(value)).hexdigest()}"
