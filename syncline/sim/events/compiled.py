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


def core_function(result: str, others: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that compiled code calls, of where the addresses are and others, for these types alone."""
    arguments = f"int64, {others}" if others else "int64"
    return njit(f"{result}({arguments})", error_model="numpy")


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
    """A function that Python calls, compiled for these types when its module is imported."""

    def compile_it(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ += f"_{_digest()}"
        try:
            return njit(signature, error_model="numpy", cache=True)(function)
        except (OSError, RuntimeError):  # nowhere to keep it
            return njit(signature, error_model="numpy")(function)

    return compile_it
