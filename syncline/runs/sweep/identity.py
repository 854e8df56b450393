"""The name of a run: a hash of everything that its results depend on, so that the same name means the same run."""

from __future__ import annotations

import hashlib
import json
import pickletools
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from syncline import errors
from syncline.errors import SpecError
from syncline.registry import is_reference
from syncline.runs.training.trained import goes_by_clock
from syncline.specs import RunSpec
from syncline.specs.clock import ClockSpec

DECIDING = ("torch", "numpy")
"""Packages whose version can change a bit of a result."""

FOR_PEOPLE = ("name", "description", "source")
"""Fields that change no number of a result."""

OF_THE_CLOCK = (*ClockSpec.model_fields, "network", "compute", "speeds", "timeline_steps")
"""Fields that do not affect a training: runs that differ only in them share one. They affect asynchronous trainings."""

DIGITS = 20
"""Number of hexadecimal digits of a name."""

LONGEST_PATH = 4096
"""Length in characters from which a text is not a file name."""

MOST_KNOWN = 4


@cache
def code_version() -> str:
    """Return the version of the code: a digest of Syncline's files, and the versions of Python, torch and NumPy."""
    package = Path(errors.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    others = [f"{name} {metadata.version(name)}" for name in DECIDING]
    return ", ".join([f"syncline {digest.hexdigest()[:12]}", f"python {platform.python_version()}", *others])


def canonical(value: Any) -> str:
    """Return a value as JSON that is the same text for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def run_names(spec: RunSpec, code: str) -> dict[int, str]:
    """Return the folder name of each seed's run: the same for specs with the same meaning, whatever their names are."""
    fields, file_digests = _dumped_fields(spec, FOR_PEOPLE), own_files(spec)
    return {seed: _hashed(fields | {"seeds": [seed]}, code, file_digests) for seed in spec.seeds}


def training_name(spec: RunSpec) -> str:
    """Return a name that configurations share if they differ only in the clock's fields and so share trainings."""
    unseen = () if goes_by_clock(spec, spec.method) else OF_THE_CLOCK
    return _hashed(_dumped_fields(spec, (*FOR_PEOPLE, *unseen, "seeds")))


def measured_name(spec: RunSpec) -> str:
    """Return a name that specs share if their steps take equally long on a machine: problem, workers and threads."""
    fields = spec.model_dump(mode="json", include={"problem", "workers", "threads"})
    return _hashed(fields, _pickled(spec.problem, "problem")[0])


def own_files(spec: RunSpec) -> dict[str, str]:
    """Return digests of the files that a run depends on, besides Syncline and the fields of the spec.

    These are the files that define its parts, the files that ``module:name`` refers to, and the files that the problem
    names; files that these import are not included. A part without a file, because it was defined in Python, counts as
    its pickle.
    """
    dumped = spec.model_dump(mode="json")
    files = {file.resolve(): None for file in _named_files(dumped)}
    digests: dict[str, str] = {}
    for name in ("problem", "method", "network"):
        digest, modules = _pickled(getattr(spec, name), name)
        files |= {file.resolve(): None for module in modules if (file := _file_of_module(module)) is not None}
        if "__main__" in modules or dumped[name].get("target", "") is None:
            digests[name] = digest
    for file in filter(Path.is_file, sorted(files)):
        digests[file.name] = _digest(file, file.stat().st_mtime_ns, file.stat().st_size)
    return digests


def _dumped_fields(spec: RunSpec, without: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in spec.model_dump(mode="json").items() if name not in without}


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:DIGITS]


def _named_files(dumped: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that fields of a spec name."""
    for text in _texts(dumped):
        if is_reference(text):
            module = text.rpartition(":")[0]
            file = Path(module) if module.endswith(".py") else _file_of_module(module)
            if file is not None and file.is_file():
                yield file
    for text in _texts({name: value for name, value in dumped["problem"].items() if name != "kind"}):
        if 0 < len(text) < LONGEST_PATH and "\n" not in text and Path(text).is_file():
            yield Path(text)


_KNOWN: list[tuple[Any, tuple[str, frozenset[str]]]] = []
"""Cache of the parts pickled last, because configurations share problems, and data sets are large."""


def _pickled(part: Any, field: str) -> tuple[str, frozenset[str]]:
    """Return the digest of a part's pickle, and the modules that it names.

    Raises:
        SpecError: the part cannot be pickled, so that no other process can have it.
    """
    for cached, result in _KNOWN:
        if cached is part:
            return result
    written = BytesIO()
    try:
        _pickler()(written).dump(part)
    except Exception as error:
        expected = f"what can be sent to another process; pickle says: {' '.join(str(error).split())}"
        raise SpecError(field, getattr(part, "name", field), expected) from None
    data = written.getvalue()
    texts = {arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)}
    result = hashlib.sha256(data).hexdigest()[:DIGITS], frozenset(text for text in texts if text in sys.modules)
    _KNOWN.insert(0, (part, result))
    del _KNOWN[MOST_KNOWN:]
    return result


@cache
def _pickler() -> Any:
    """Return cloudpickle's class with a digest in place of a tensor, because torch writes the tensor's address.

    The random number that cloudpickle gives a class of a script or a notebook is left out too.
    """
    import cloudpickle
    import torch

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, torch.Tensor) and obj.layout == torch.strided:
                content: Any = obj.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
                facts = (str(obj.dtype), tuple(obj.shape), obj.requires_grad, hashlib.sha256(content).hexdigest())
                return tuple, (facts,)
            if isinstance(obj, BaseModel):  # it has a set, whose order differs between processes
                return tuple, ((type(obj), dict(obj)),)
            reduced = super().reducer_override(obj)
            if isinstance(reduced, tuple) and getattr(obj, "hooked", False):  # torch's wrapper of a user's step
                wrapped = obj.__wrapped__
                reduced = super().reducer_override(wrapped)
                if reduced is NotImplemented:  # inherited from torch, which pickles it by its name
                    reduced = str, (wrapped.__qualname__,)
            if isinstance(obj, type) and isinstance(reduced, tuple):
                number = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
                arguments = tuple(
                    "" if number is not None and argument is number else argument for argument in reduced[1]
                )
                reduced = (reduced[0], arguments, *reduced[2:])
            return reduced

    return Pickler


def _file_of_module(name: str) -> Path | None:
    """Return the file of a user's module; None for a module of Syncline, of Python, or of torch and NumPy."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name.partition(".")[0] in ("syncline", *DECIDING):
        return None
    return None if name.partition(".")[0] in sys.stdlib_module_names else Path(file)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


@cache
def _digest(file: Path, changed_ns: int, size: int) -> str:
    """Return a digest of a file's content; the time of the last change and the size are keys of the cache."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGITS]
