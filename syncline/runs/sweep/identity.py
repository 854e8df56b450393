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
from syncline.runs.training.trained import depends_on_clock
from syncline.specs import RunSpec
from syncline.specs.clock import ClockSpec

DECIDING_PACKAGES = ("torch", "numpy")
"""Packages whose version can change a bit of a result."""

TEXT_FIELDS = ("name", "description", "source")
"""Fields of a spec that change no number of a result."""

CLOCK_FIELDS = (*ClockSpec.model_fields, "network", "compute", "speeds", "timeline_steps")
"""Fields that affect a run's clock and not its training; runs that differ only in them share one training.

In asynchronous trainings they affect the training, too.
"""

HASH_DIGITS = 20
"""Number of hexadecimal digits of a name."""

LONGEST_PATH = 4096
"""Length in characters of the shortest text that cannot be a path."""

MOST_RECENT_PARTS = 4
"""Number of parts of specs whose hashes are kept."""


@cache
def code_version() -> str:
    """Return the version of the code as text: a hash of Syncline's files, and versions of Python, torch and NumPy."""
    package = Path(errors.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    library_versions = [f"{name} {metadata.version(name)}" for name in DECIDING_PACKAGES]
    return ", ".join([f"syncline {digest.hexdigest()[:12]}", f"python {platform.python_version()}", *library_versions])


def canonical(value: Any) -> str:
    """Return a value as JSON text; equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def run_names(spec: RunSpec, code: str) -> dict[int, str]:
    """Return the name of the run's folder by seed; a spec's texts for people do not change it.

    ``code``: version of the code that trains, see `code_version`.
    """
    spec_fields, file_hashes = _fields_without(spec, TEXT_FIELDS), hashes_of_own_files(spec)
    return {seed: _short_hash(spec_fields | {"seeds": [seed]}, code, file_hashes) for seed in spec.seeds}


def training_name(spec: RunSpec) -> str:
    """Return a name that is the same for configurations that differ only on the clock, and so share their trainings."""
    omitted: tuple[str, ...] = (*TEXT_FIELDS, "seeds")
    if not depends_on_clock(spec, spec.method):
        omitted += CLOCK_FIELDS
    return _short_hash(_fields_without(spec, omitted))


def measured_name(spec: RunSpec) -> str:
    """Return a hash of the problem, workers and threads, which decide the seconds of a step on this machine."""
    spec_fields = spec.model_dump(mode="json", include={"problem", "workers", "threads"})
    problem_hash, _ = _hash_and_modules(spec.problem, "problem")
    return _short_hash(spec_fields, problem_hash)


def hashes_of_own_files(spec: RunSpec) -> dict[str, str]:
    """Return hashes, by file name, of the user's files that a run depends on besides its spec.

    These are the files that define the problem, method or network, the files that ``module:name`` refers to, and the
    files that the problem reads; modules that these files import are not included. The pickle of a part is hashed if
    the main script or a notebook defines it.
    """
    dumped = spec.model_dump(mode="json")
    files = {file.resolve() for file in _named_files(dumped)}
    hashes: dict[str, str] = {}
    for part in ("problem", "method", "network"):
        part_hash, modules = _hash_and_modules(getattr(spec, part), part)
        for module in modules:
            file = _file_of_module(module)
            if file is not None:
                files.add(file.resolve())
        has_no_reference = dumped[part].get("target", "") is None  # a Python object that no ``module:name`` names
        if "__main__" in modules or has_no_reference:
            hashes[part] = part_hash
    for file in sorted(files):
        if file.is_file():
            file_hash = _hash_of_file(file, file.stat().st_mtime_ns, file.stat().st_size)
            hashes[file.name] = hashes.get(file.name, "") + file_hash  # files in two folders may have one name
    return hashes


def _fields_without(spec: RunSpec, omitted: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a spec as JSON values, by name, except the omitted fields."""
    return {name: value for name, value in spec.model_dump(mode="json").items() if name not in omitted}


def _short_hash(*values: Any) -> str:
    """Return a short hash of values that JSON can store."""
    return hashlib.sha256(canonical(values).encode()).hexdigest()[:HASH_DIGITS]


def _named_files(dumped: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that a spec names: those of each ``module:name``, and those of the problem's data."""
    for text in _texts(dumped):
        if is_reference(text):  # module:name or file.py:name
            module, _, _ = text.rpartition(":")
            file = Path(module) if module.endswith(".py") else _file_of_module(module)
            if file is not None and file.is_file():
                yield file
    problem_fields = {name: value for name, value in dumped["problem"].items() if name != "kind"}
    for text in _texts(problem_fields):
        may_be_path = 0 < len(text) < LONGEST_PATH and "\n" not in text
        if may_be_path and Path(text).is_file():
            yield Path(text)


_RECENT_PARTS: list[tuple[Any, tuple[str, frozenset[str]]]] = []
"""The latest pickled parts with their results, because configurations share problems with large data sets."""


def _hash_and_modules(part: Any, field: str) -> tuple[str, frozenset[str]]:
    """Return the hash of the pickle of a spec's problem, method or network, and the modules that the pickle names."""
    for recent_part, recent_result in _RECENT_PARTS:
        if recent_part is part:  # a part need not be hashable, so it is no key of a dictionary
            return recent_result
    buffer = BytesIO()
    try:
        _pickler_class()(buffer).dump(part)
    except Exception as error:
        expected = f"a value that can be sent to another process; pickle says: {' '.join(str(error).split())}"
        raise SpecError(field, getattr(part, "name", field), expected) from None
    content = buffer.getvalue()
    texts = {argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)}
    modules = frozenset(text for text in texts if text in sys.modules)
    result = hashlib.sha256(content).hexdigest()[:HASH_DIGITS], modules
    _RECENT_PARTS.insert(0, (part, result))
    del _RECENT_PARTS[MOST_RECENT_PARTS:]
    return result


@cache
def _pickler_class() -> Any:
    """Return a class of picklers that write the same bytes for equal objects in all processes.

    In place of a tensor, for which torch writes an address, it writes a hash of the tensor's numbers. It leaves out the
    random id that cloudpickle gives to a class of a script or a notebook.
    """
    import cloudpickle
    import torch

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            """Return a function and its arguments that stand for an object, as ``object.__reduce__`` does."""
            if isinstance(obj, torch.Tensor) and obj.layout == torch.strided:
                content: Any = obj.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
                facts = (str(obj.dtype), tuple(obj.shape), obj.requires_grad, hashlib.sha256(content).hexdigest())
                return tuple, (facts,)
            if isinstance(obj, BaseModel):  # it has a set, whose order differs between processes
                return tuple, ((type(obj), dict(obj)),)
            reduced = super().reducer_override(obj)
            # torch wraps ``step`` of a user's optimizer class, and marks the wrapper by ``hooked``.
            if isinstance(reduced, tuple) and getattr(obj, "hooked", False):
                user_step = obj.__wrapped__
                reduced = super().reducer_override(user_step)
                if reduced is NotImplemented:  # inherited from torch, and pickled by name
                    reduced = str, (user_step.__qualname__,)
            if isinstance(obj, type) and isinstance(reduced, tuple):
                function, arguments, *rest = reduced
                random_id = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
                if random_id is not None:
                    arguments = tuple("" if argument is random_id else argument for argument in arguments)
                reduced = (function, arguments, *rest)
            return reduced

    return Pickler


def _file_of_module(name: str) -> Path | None:
    """Return the file of a user's module; None for a module of Syncline, Python, torch or NumPy."""
    file = getattr(sys.modules.get(name), "__file__", None)
    package = name.partition(".")[0]
    if not file or package in ("syncline", *DECIDING_PACKAGES) or package in sys.stdlib_module_names:
        return None
    return Path(file)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested dictionaries and lists of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


@cache
def _hash_of_file(file: Path, changed_ns: int, size: int) -> str:
    """Return a hash of a file's content; the cache reads the file again if its time of change or its size differs."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:HASH_DIGITS]
