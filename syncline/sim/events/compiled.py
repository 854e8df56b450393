"""How the core is compiled: by Numba, once per machine.

What is compiled is kept beside the source, in the user's cache directory where that cannot be written to, and for this
process alone where neither can. Numba looks for changes in one file, and what is compiled here is of several, so its
name carries a digest of all.

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
"""Functions that compiled code calls, and for which types, those that others call first; until they are compiled."""


def core_function(result: str, others: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that compiled code calls, of where the addresses are and others, for these types alone.

    It is compiled when an entry is, and not at all where that one is kept: it takes ten seconds for all of them.
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


def _pointer(typing_context: Any, addresses: Any, at: Any) -> Any:
    """The memory whose address is at a place of the addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = builder.inttoptr(arguments[0], cgutils.intp_t.as_pointer())
        return builder.inttoptr(builder.load(builder.gep(table, [arguments[1]])), cgutils.voidptr_t)

    return types.voidptr(types.int64, types.int64), generate


pointer: Any = intrinsic(_pointer)


def table_at(at: int, kind: Any) -> Any:
    """The function that gives compiled code the table at a place of the addresses.

    The addresses are themselves given by where they are: an array would be counted as used by every function that has
    it, which takes longer than what most of them do.
    """

    def view(addresses: Any) -> Any:
        return carray(pointer(addresses, at), 1 << 40, kind)

    return inlined(view)


def _digest() -> str:
    """Of all that is compiled."""
    told = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        told.update(source.read_bytes())
    return told.hexdigest()[:16]


def entry(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that Python calls, compiled for these types when its module is imported.

    It runs without Python's lock, so that other threads hear signals meanwhile.
    """

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ += f"_{_digest()}"
        try:
            compiled: Any = njit(error_model="numpy", cache=True, nogil=True)(function)
        except (OSError, RuntimeError):  # nowhere to keep it
            compiled = njit(error_model="numpy", nogil=True)(function)
        if not _is_kept(compiled, signature):
            _compile_core()
        compiled.compile(signature)
        compiled.disable_compile()
        return compiled

    return compile_it


def _is_kept(compiled: Any, signature: str) -> bool:
    """Whether what a signature is compiled to can be loaded."""
    try:
        return compiled._cache.load_overload(signature, compiled.targetctx) is not None
    except Exception:  # another version of Numba: then all is compiled, as where nothing is kept
        return False
