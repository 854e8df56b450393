"""The compilation of the core by Numba: from the sources in this folder to one object of machine code.

Numba translates each function by itself into a module of LLVM's, in which other functions of the core are symbols
without a body. LLVM then joins all modules and optimises them together.

Floating-point operations are those of the source in their order: nothing is contracted or rearranged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import llvmlite.ir
from numba import types
from numba.core import cgutils, sigutils
from numba.core.compiler import Flags, compile_extra
from numba.core.registry import cpu_target
from numba.extending import intrinsic, lower_builtin, type_callable
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype, from_dtype

from syncline.sim.events.codes import ENTRIES

MODULES = "loop", "table_writers"
"""The modules that have entries; they import the others."""

CACHE_LINE = 64
"""Bytes that the processor fetches from memory together."""

ENDLESS = 1 << 40
"""Length of every table as compiled code sees it: tables grow, and compiled code never asks for the length."""


class CoreFunction(NamedTuple):
    """A compiled function, with the Numba types of its result and of its arguments."""

    function: Callable[..., Any]
    result: Any
    arguments: tuple[Any, ...]

    @property
    def symbol(self) -> str:
        """Return the function's name in the object."""
        return f"syncline_{self.function.__name__}"


_declared: list[CoreFunction] = []


def _declare(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """Let compiled code call a function by its symbol, and list the function for `compile_core`."""
    arguments, result = sigutils.normalize_signature(signature)
    declared = CoreFunction(function, result, arguments)
    _declared.append(declared)

    @type_callable(function)
    def make_typer(_: Any) -> Any:
        """Return the function that Numba asks for the type of a call's result; its parameters name the arguments."""

        def typer(*_: Any) -> Any:
            return result(*arguments)

        typer.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return typer

    @lower_builtin(function, *arguments)
    def generate_call(context: Any, builder: Any, call_signature: Any, values: Any) -> Any:
        """Generate a call of the function by its symbol, and return the generated result."""
        convention = context.call_conv
        native_type = convention.get_function_type(result, arguments)
        native = cgutils.get_or_insert_function(builder.module, native_type, declared.symbol)
        _, returned = convention.call_function(builder, native, result, arguments, values)
        return returned

    return function


def core_function(result: str, arguments: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that declares a function of compiled code with these types of result and arguments.

    The first argument of every such function is the address of the tables' addresses; ``arguments`` are the others.
    """
    all_arguments = f"int64, {arguments}" if arguments else "int64"
    return lambda function: _declare(function, f"{result}({all_arguments})")


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function that Python calls, see `syncline.sim.events.codes`."""
    return _declare(function, f"int64({', '.join(ENTRIES[function.__name__].split())})")


# Views of memory. A table is known by its place in the array of addresses, whose address is an integer.


def _load_address(builder: Any, addresses: Any, index: int) -> Any:
    """Generate the code that loads the address of the table with this index."""
    table = builder.inttoptr(addresses, cgutils.intp_t.as_pointer())
    return builder.load(builder.gep(table, [cgutils.intp_t(index)]))


def _array(context: Any, builder: Any, array_type: Any, address: Any) -> Any:
    """Generate the code for an array of this Numba type and of the length `ENDLESS` at an address."""
    array = make_array(array_type)(context, builder)
    data = builder.inttoptr(address, array.data.type)
    size = cgutils.intp_t(as_dtype(array_type.dtype).itemsize)
    populate_array(array, data, [cgutils.intp_t(ENDLESS)], [size], size, None)
    return array._getvalue()


def _view(result_type: Any, generate_value: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a function that compiled code calls with an address, an integer, and that returns the memory there.

    Args:
        result_type: Numba's type of the result.
        generate_value: function that generates the result's code, of Numba's context, LLVM's builder and the address.
    """

    def view(typing_context: Any, number: Any) -> Any:
        """Return the function's types and the generator of its code, as Numba demands of an intrinsic."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return generate_value(context, builder, arguments[0])

        return result_type(types.int64), generate

    return intrinsic(view)


def table_at(index: int, kind: Any) -> Any:
    """Return a function that gives compiled code the table with this index; ``kind`` is the type of its records."""
    array_type = types.Array(from_dtype(kind), 1, "C")

    def table(context: Any, builder: Any, addresses: Any) -> Any:
        return _array(context, builder, array_type, _load_address(builder, addresses, index))

    return _view(array_type, table)


def fetcher_at(index: int, kind: Any) -> Any:
    """Return a function that lets the processor fetch a record of this table into its cache, and does not wait."""
    pointer = llvmlite.ir.IntType(8).as_pointer()

    def fetcher(typing_context: Any, addresses: Any, number: Any) -> Any:
        """Return the function's types and the generator of its code, as Numba demands of an intrinsic."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first = _load_address(builder, arguments[0], index)
            int32 = llvmlite.ir.IntType(32)
            function_type = llvmlite.ir.FunctionType(llvmlite.ir.VoidType(), [pointer, int32, int32, int32])
            prefetch = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0i8")
            record = builder.add(first, builder.mul(arguments[1], first.type(kind.itemsize)))
            for offset in range(0, kind.itemsize, CACHE_LINE):
                line = builder.inttoptr(builder.add(record, first.type(offset)), pointer)
                builder.call(prefetch, [line, int32(1), int32(3), int32(1)])  # to write, into all caches, data
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(fetcher)


def array_at(kind: Any) -> Any:
    """Return a function that gives compiled code the array at an address."""
    array_type = types.Array(from_dtype(kind), 1, "C")
    return _view(array_type, lambda context, builder, address: _array(context, builder, array_type, address))


def record_at(index: int, kind: Any) -> Any:
    """Return a function that gives compiled code the single record of the table with this index."""
    record_type = from_dtype(kind)

    def record(context: Any, builder: Any, addresses: Any) -> Any:
        return builder.inttoptr(_load_address(builder, addresses, index), context.get_value_type(record_type))

    return _view(record_type, record)


def _spacing(typing_context: Any, number: Any) -> Any:
    """Return Numba's types and code of ``spacing``: the distance from a number, finite and at least 0, to the next."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], context.get_value_type(types.int64))
        following = builder.bitcast(builder.add(bits, bits.type(1)), arguments[0].type)
        return builder.fsub(following, arguments[0])

    return types.float64(types.float64), generate


spacing: Any = intrinsic(_spacing)


# From functions to the object.


def compile_core() -> bytes:
    """Compile all functions of the core, and return the object."""
    for name in MODULES:
        import_module(f"{__package__}.{name}")
    llvm.initialize_native_target()  # Numba does so only if it has a function to translate
    llvm.initialize_native_asmprinter()
    core = llvm.parse_assembly("")
    for declared in _declared:
        core.link_in(_translated(declared))
    entries = {f"syncline_{name}" for name in ENTRIES}
    for function in core.functions:
        if not function.is_declaration and function.name not in entries:
            function.linkage = "internal"  # so that it can be inlined everywhere and dropped
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=3, reloc="default", codemodel="jitdefault")
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(core, builder)
    undefined = [function.name for function in core.functions if function.is_declaration]
    assert not any(name.startswith(("Py", "NRT", "numba", "syncline")) for name in undefined), undefined
    return machine.emit_object(core)


def _translated(declared: CoreFunction) -> Any:
    """Return LLVM's module that Numba makes of a function, together with the parts of Numba's library that it uses."""
    flags: Any = Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True  # LLVM's module alone
    flags.error_model = "numpy"  # a division by zero is infinite
    typing_context, target_context = cpu_target.typing_context, cpu_target.target_context
    typing_context.refresh()
    target_context.refresh()
    arguments, result = declared.arguments, declared.result
    compiled = compile_extra(typing_context, target_context, declared.function, arguments, result, flags, {})
    module = compiled.library._final_module
    module.get_function(compiled.fndesc.llvm_func_name).name = declared.symbol
    for library in compiled.library._linking_libraries:
        module.link_in(library._get_module_for_linking(), preserve=True)
    return module
