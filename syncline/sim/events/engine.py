"""The compiled core of the event simulation: one object of machine code, made once and loaded without Numba.

`syncline.sim.events.core` is compiled for the plain instructions of a family of processors, so one object serves every
machine of the family, and its numbers are those of the source in their order. The object's name carries a digest of all
compiled sources: a changed source never meets an old object. Installing with ``make`` and building a wheel make the
object; where it is missing, the first simulation makes it and says so in one line on standard error.

The object is kept beside the source. If that folder cannot be written, it is kept in the user's cache directory, or
else for this process alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from syncline.acceleration import announce_compiling
from syncline.files import atomic_path
from syncline.sim.events.codes import ENTRIES, FOLDER, SOURCES

Entry = Callable[..., int]


def address(array: NDArray[Any]) -> int:
    """Return the address of an array's memory, for compiled code; the caller keeps the array alive."""
    number: int = array.__array_interface__["data"][0]
    return number


def aligned(values: Any, kind: type) -> NDArray[Any]:
    """Return numbers as a contiguous array of a type, as compiled code needs them."""
    return np.ascontiguousarray(values, dtype=kind)


@cache
def object_name() -> str:
    """Return the file name of the compiled core, with a digest of its sources and the family of processors."""
    digest = hashlib.sha256()
    for source in SOURCES:
        digest.update(source.read_bytes())
    return f"{digest.hexdigest()[:16]}-{llvm.get_process_triple()}.o"


def object_folders() -> Iterator[Path]:
    """Yield the folders in which the compiled core may be stored, in the order of search."""
    yield FOLDER / "core" / "machine_code"
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    yield Path(home) / "syncline"


def read_object() -> bytes | None:
    """Return the compiled core, an object file, as bytes if a folder has it; None otherwise."""
    for folder in object_folders():
        try:
            return (folder / object_name()).read_bytes()
        except OSError:
            continue
    return None


def make_object() -> bytes:
    """Compile the core, store its object file in the first folder that this process may write, and return it."""
    announce_compiling("the event engine")
    # Imported here, because the import of Numba takes long and is needed only to compile.
    compile_core = import_module("syncline.sim.events.core.compiling").compile_core
    machine_code: bytes = compile_core()
    for folder in object_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(folder / object_name()) as path:
                path.write_bytes(machine_code)
        except OSError:
            continue  # without a folder to write, the core serves this process alone
        for other in folder.glob(f"*-{llvm.get_process_triple()}.o"):  # cores of other sources
            if other.name != object_name():
                other.unlink(missing_ok=True)
        break
    return machine_code


_loaded_engines: list[Any] = []
"""The engine that owns the loaded code, which stays as long as the process."""


def load_object(machine_code: bytes) -> dict[str, Entry]:
    """Load an object of machine code; return the functions that Python calls, by name."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)  # an empty module: the code is in the object
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    _loaded_engines.append(engine)
    return {name: _entry(engine.get_function_address(f"syncline_{name}"), types) for name, types in ENTRIES.items()}


def _entry(function_address: int, types: str) -> Entry:
    """Return a Python function that calls the compiled function at an address, with arguments of these ``types``.

    By Numba's convention, functions take a pointer to the result and one to an error before their arguments, and return
    a status, which is zero because none of them raises. They run without Python's lock, so that another thread can
    receive signals.
    """
    arguments = [ctypes.c_double if kind == "float64" else ctypes.c_int64 for kind in types.split()]
    native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *arguments)(function_address)
    int64, byref = ctypes.c_int64, ctypes.byref

    def call(*values: Any) -> int:
        result, error = int64(), int64()
        status = native(byref(result), byref(error), *values)
        assert status == 0, f"the event engine returned status {status}"
        return result.value

    return call


run_core, write_routes, count_entries, write_plan = load_object(read_object() or make_object()).values()
"""The functions of the core that Python calls; the core is compiled now if no folder has its object."""
