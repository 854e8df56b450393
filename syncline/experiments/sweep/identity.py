"""The name of a run: a hash of all that its results depend on. The same name is the same run."""

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
from syncline.experiments.elastic.reforming import goes_by_clock
from syncline.registry import is_reference
from syncline.specs import RunSpec
from syncline.specs.clock import ClockSpec

DECIDING = ("torch", "numpy")
"""Packages whose version can change a bit of a result."""

FOR_PEOPLE = ("name", "description", "source")
"""Fields that change no number."""

OF_THE_CLOCK = (*ClockSpec.model_fields, "network", "compute", "speeds", "timeline_steps")
"""Fields that a training does not see: runs that differ in nothing else share one. An asynchronous one sees them."""

DIGITS = 20
"""Of a name; hexadecimal."""

LONGEST_PATH = 4096
"""Longer texts name no file."""

MOST_KNOWN = 4


@cache
def code_version() -> str:
    """The version of what computes: a digest of Syncline's files, and those of Python, torch and NumPy."""
    package = Path(errors.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    others = [f"{name} {metadata.version(name)}" for name in DECIDING]
    return ", ".join([f"syncline {digest.hexdigest()[:12]}", _python(), *others])


def canonical(value: Any) -> str:
    """JSON with one way to write a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def run_names(spec: RunSpec, code: str) -> dict[int, str]:
    """What the folder of each seed's run is called: the same for specs that mean the same, whatever they are called."""
    told, own = _told(spec, FOR_PEOPLE), own_files(spec)
    return {seed: _hashed(told | {"seeds": [seed]}, code, own) for seed in spec.seeds}


def training_name(spec: RunSpec) -> str:
    """The same for configurations whose seeds need one training each: they differ in the clock's fields alone."""
    unseen = () if goes_by_clock(spec, spec.method) else OF_THE_CLOCK
    return _hashed(_told(spec, (*FOR_PEOPLE, *unseen, "seeds")))


def measured_name(spec: RunSpec) -> str:
    """The same for specs whose steps take equally long on a machine: of one problem, workers and threads."""
    fields = spec.model_dump(mode="json", include={"problem", "workers", "threads"})
    return _hashed(fields, _pickled(spec.problem, "problem")[0])


def own_files(spec: RunSpec) -> dict[str, str]:
    """Digests of what a run depends on beside Syncline and its fields.

    They are those of the files in which its parts are defined, of those that ``module:name`` refers to, and of those
    that the problem names; what these import is not looked for. A part that no file can hold, as it was given in
    Python, counts as its pickle.
    """
    dumped = spec.model_dump(mode="json")
    found = {file.resolve(): None for file in _named_files(dumped)}
    told: dict[str, str] = {}
    for name in ("problem", "method", "network"):
        digest, modules = _pickled(getattr(spec, name), name)
        found |= {file.resolve(): None for module in modules if (file := _file_of_module(module)) is not None}
        if "__main__" in modules or dumped[name].get("target", "") is None:
            told[name] = digest
    return told | {file.name: _digest(file) for file in sorted(found) if file.is_file()}


def _told(spec: RunSpec, without: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in spec.model_dump(mode="json").items() if name not in without}


def _hashed(*parts: Any) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:DIGITS]


def _python() -> str:
    return f"python {platform.python_version()}"


def _named_files(dumped: Mapping[str, Any]) -> Iterator[Path]:
    """Files that fields of a spec name."""
    for text in _texts(dumped):
        if is_reference(text):
            module = text.rpartition(":")[0]
            own = Path(module) if module.endswith(".py") else _file_of_module(module)
            if own is not None and own.is_file():
                yield own
    for text in _texts({name: value for name, value in dumped["problem"].items() if name != "kind"}):
        if 0 < len(text) < LONGEST_PATH and "\n" not in text and Path(text).is_file():
            yield Path(text)


_KNOWN: list[tuple[Any, tuple[str, frozenset[str]]]] = []
"""Parts that were pickled last: configurations share problems, and data sets are large."""


def _pickled(part: Any, field: str) -> tuple[str, frozenset[str]]:
    """The digest of a part's pickle, and the modules that it names.

    Raises:
        SpecError: it has none, so that no other process could have it.
    """
    for known, found in _KNOWN:
        if known is part:
            return found
    written = BytesIO()
    try:
        _pickler()(written).dump(part)
    except Exception as error:
        expected = f"what can be sent to another process; pickle says: {' '.join(str(error).split())}"
        raise SpecError(field, getattr(part, "name", field), expected) from None
    data = written.getvalue()
    texts = {arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)}
    found = hashlib.sha256(data).hexdigest()[:DIGITS], frozenset(text for text in texts if text in sys.modules)
    _KNOWN.insert(0, (part, found))
    del _KNOWN[MOST_KNOWN:]
    return found


@cache
def _pickler() -> Any:
    """Cloudpickle, with a digest in place of a tensor: torch writes where in memory a tensor is.

    And without the random number that cloudpickle gives a class of a script or a notebook.
    """
    import cloudpickle
    import torch

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, torch.Tensor) and obj.layout == torch.strided:
                content: Any = obj.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
                facts = (str(obj.dtype), tuple(obj.shape), obj.requires_grad, hashlib.sha256(content).hexdigest())
                return tuple, (facts,)
            if isinstance(obj, BaseModel):  # which has a set, whose order is another one in each process
                return tuple, ((type(obj), dict(obj)),)
            reduced = super().reducer_override(obj)
            if isinstance(reduced, tuple) and getattr(obj, "hooked", False):  # torch's, around an own optimizer's step
                own = obj.__wrapped__
                reduced = super().reducer_override(own)
                if reduced is NotImplemented:  # inherited from torch, where it goes by its name
                    reduced = str, (own.__qualname__,)
            if isinstance(obj, type) and isinstance(reduced, tuple):
                number = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
                given = tuple("" if number is not None and one is number else one for one in reduced[1])
                reduced = (reduced[0], given, *reduced[2:])
            return reduced

    return Pickler


def _file_of_module(name: str) -> Path | None:
    """The file of a module of a user's own: neither Syncline's nor Python's, nor of what was installed beside it."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name.partition(".")[0] in ("syncline", *DECIDING):
        return None
    return None if name.partition(".")[0] in sys.stdlib_module_names else Path(file)


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
