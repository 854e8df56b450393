"""Names of a sweep's runs: hashes of everything that a result depends on, so that equal names mean equal results."""

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
"""Fields of a spec that change no number of a result."""

OF_THE_CLOCK = (*ClockSpec.model_fields, "network", "compute", "speeds", "timeline_steps")
"""Fields that affect a run's clock and not its training, so that runs that differ only in them share one training.

In asynchronous trainings they affect the training, too.
"""

DIGITS = 20
"""Number of hexadecimal digits of a name."""

LONGEST_PATH = 4096
"""Length in characters from which a text cannot be the path of a file."""

MOST_CACHED = 4


@cache
def code_version() -> str:
    """Return the version of the code as text: a hash of Syncline's files, and versions of Python, torch and NumPy."""
    package = Path(errors.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    library_versions = [f"{name} {metadata.version(name)}" for name in DECIDING]
    return ", ".join([f"syncline {digest.hexdigest()[:12]}", f"python {platform.python_version()}", *library_versions])


def canonical(value: Any) -> str:
    """Return a value as JSON text, which is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def run_names(spec: RunSpec, code: str) -> dict[int, str]:
    """Return by seed the name of the run's folder, which is the same for specs that differ only in texts for people."""
    spec_fields, file_digests = _dumped_fields(spec, FOR_PEOPLE), own_files(spec)
    return {seed: _hashed(spec_fields | {"seeds": [seed]}, code, file_digests) for seed in spec.seeds}


def training_name(spec: RunSpec) -> str:
    """Return a name that is the same for configurations that differ only on the clock, and so share their trainings."""
    without_effect = () if goes_by_clock(spec, spec.method) else OF_THE_CLOCK
    return _hashed(_dumped_fields(spec, (*FOR_PEOPLE, *without_effect, "seeds")))


def measured_name(spec: RunSpec) -> str:
    """Return a name that is the same for specs whose steps take equally long here: by problem, workers and threads."""
    spec_fields = spec.model_dump(mode="json", include={"problem", "workers", "threads"})
    return _hashed(spec_fields, _pickled(spec.problem, "problem")[0])


def own_files(spec: RunSpec) -> dict[str, str]:
    """Return hashes, by file name, of the user's files that a run depends on besides its spec.

    These are the files that define the problem, method or network, the files that ``module:name`` refers to, and the
    files that the problem reads; modules that these files import are not included. A part that is defined in the main
    script or a notebook counts with its pickle.
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
    """Return the fields of a spec as JSON values, by name, except the fields ``without``."""
    return {name: value for name, value in spec.model_dump(mode="json").items() if name not in without}


def _hashed(*parts: Any) -> str:
    """Return a short hash of values that JSON can store."""
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


_PICKLED: list[tuple[Any, tuple[str, frozenset[str]]]] = []
"""Cache of the parts that were pickled last, because configurations share problems, and data sets are large."""


def _pickled(part: Any, field: str) -> tuple[str, frozenset[str]]:
    """Return the hash of the pickle of a spec's problem, method or network, and the modules that the pickle names."""
    for cached, result in _PICKLED:
        if cached is part:
            return result
    buffer = BytesIO()
    try:
        _pickler()(buffer).dump(part)
    except Exception as error:
        expected = f"what can be sent to another process; pickle says: {' '.join(str(error).split())}"
        raise SpecError(field, getattr(part, "name", field), expected) from None
    data = buffer.getvalue()
    texts = {arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)}
    result = hashlib.sha256(data).hexdigest()[:DIGITS], frozenset(text for text in texts if text in sys.modules)
    _PICKLED.insert(0, (part, result))
    del _PICKLED[MOST_CACHED:]
    return result


@cache
def _pickler() -> Any:
    """Return a pickler that writes the same bytes for equal objects in all processes.

    It is cloudpickle's, except that it writes a hash of a tensor's numbers, because torch writes the tensor's address,
    and leaves out the random number that cloudpickle gives to a class of a script or a notebook.
    """
    import cloudpickle
    import torch

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            """Return how an object is pickled, in the form of Python's ``__reduce__``."""
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
    """Return the file of a user's module; None for a module of Syncline, Python, torch or NumPy."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name.partition(".")[0] in ("syncline", *DECIDING):
        return None
    return None if name.partition(".")[0] in sys.stdlib_module_names else Path(file)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested dictionaries and lists of fields."""
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
    """Return a hash of a file's content, from the cache unless the file's time of change or size differs."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGITS]
