"""The compilation of the core by Numba, once per machine.

Compiled code is cached beside the source, or in the user's cache directory if the former cannot be written, or for this
process alone if neither can. Numba looks for changes in one file, but the compiled code comes from several, so its name
carries a digest of all.

Floating-point operations are those of the source in their order: nothing is contracted or rearranged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_core: list[tuple[Any, str]] = []
"""Functions that compiled code calls, with their signatures, callees first; emptied when they are compiled."""


def core_function(result: str, others: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for a function that compiled code calls, with the addresses first, for these types alone.

    The function is compiled when an entry is, and not at all if that entry is cached: compiling all takes ten seconds.
    """
    arguments = f"int64, {others}" if others else "int64"

    def later(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Any = njit(error_model="numpy")(function)
        _core.append((compiled, f"{result}({arguments})"))
        return compiled

    return later


def _compile_core() -> None:
    while _core:
        function, signature = _core.pop(0)
        function.compile(signature)
        function.disable_compile()


inlined = njit(error_model="numpy", inline="always")


def _pointer(typing_context: Any, addresses: Any, index: Any) -> Any:
    """Return the memory whose address is at a place of the addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = builder.inttoptr(arguments[0], cgutils.intp_t.as_pointer())
        return builder.inttoptr(builder.load(builder.gep(table, [arguments[1]])), cgutils.voidptr_t)

    return types.voidptr(types.int64, types.int64), generate


pointer: Any = intrinsic(_pointer)


def table_at(index: int, kind: Any) -> Any:
    """Return a function that gives compiled code the table at a place of the addresses.

    The addresses are passed as an integer, the address of their array: an array would be reference-counted in every
    function that takes it, which takes longer than the work of most of them.
    """

    def view(addresses: Any) -> Any:
        return carray(pointer(addresses, index), 1 << 40, kind)

    return inlined(view)


def _digest() -> str:
    """Return a digest of all compiled sources."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def entry(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for a function that Python calls, compiled for these types when its module is imported.

    The function runs without Python's lock, so that other threads hear signals meanwhile.
    """

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ += f"_{_digest()}"
        try:
            compiled: Any = njit(error_model="numpy", cache=True, nogil=True)(function)
        except (OSError, RuntimeError):  # no place to cache it
            compiled = njit(error_model="numpy", nogil=True)(function)
        if not _is_kept(compiled, signature):
            _compile_core()
        compiled.compile(signature)
        compiled.disable_compile()
        return compiled

    return compile_it


def _is_kept(compiled: Any, signature: str) -> bool:
    """Return whether the compiled code of a signature can be loaded."""
    try:
        return compiled._cache.load_overload(signature, compiled.targetctx) is not None
    except Exception:  # another version of Numba: then all is compiled, as without a cache
        return False
