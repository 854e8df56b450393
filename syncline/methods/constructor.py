"""Methods in Python: made as torch makes optimizers, with the knobs, defaults and checks of their specs.

Construction of the functions of ``functions.py``, each with the knobs, types, defaults and checks of its kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, reduce
from inspect import Parameter, Signature
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from syncline import optim
from syncline.errors import SpecError
from syncline.fields import one_of_fields, plain_argument, validate
from syncline.methods.parts.asynchronous import check_punctual, check_synchronous
from syncline.methods.parts.compressors import CompressibleBase
from syncline.methods.parts.method_spec import MethodBase
from syncline.methods.parts.torch_rule import from_optimizer, options_of
from syncline.methods.registry import METHOD_KINDS, kind_named

SHARED = {*MethodBase.model_fields, *CompressibleBase.model_fields, "remedy"}
"""Fields that kinds have in common; a remedy is of all that average the gradient in every step."""


def constructor(spec: type[MethodBase]) -> Callable[..., optim.Method]:
    """Return a function ``make(params, lr, ...)`` that builds a method from the knobs of its spec.

    A part (``rule``, ``outer_optimizer``, ``compressor``) may be a name, a mapping of fields, or an object. ``comm`` is
    the group of workers: by default torch.distributed's if it is initialised, else a single worker. ``worker_axis``
    says whether the parameters' first dimension is the worker axis; an ordinary parameter has none.

    >>> import torch
    >>> from syncline.methods import DDP
    >>> x = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = DDP([x], lr=0.1)
    >>> x.grad = torch.tensor([3.0])
    >>> optimizer.step()
    >>> round(x.item(), 6)  # Adam's first step is lr, whatever the gradient's size
    0.9
    """
    positional = [name for name in spec.model_fields if name not in SHARED]
    shared = [name for name in spec.model_fields if name in SHARED and name not in ("kind", "label", "lr")]
    plain, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    signature = Signature([
        Parameter("params", plain),
        Parameter("lr", plain),
        *(Parameter(name, plain, default=spec.model_fields[name].default) for name in positional),
        *(Parameter(name, by_name, default=spec.model_fields[name].default) for name in shared),
        Parameter("comm", by_name, default=None),
        Parameter("worker_axis", by_name, default=False),
    ])  # fmt: skip

    def make(*args: Any, **knobs: Any) -> optim.Method:
        arguments = dict(signature.bind(*args, **knobs).arguments)
        params, comm = arguments.pop("params"), arguments.pop("comm", None)
        worker_axis = arguments.pop("worker_axis", False)
        arguments = {name: plain_argument(name, value) for name, value in arguments.items()}
        method = validate(spec, {"kind": spec.model_fields["kind"].default} | arguments)
        check_synchronous(method, "")
        check_punctual(method, "")
        return method.build(params, comm, worker_axis)

    make.__name__ = make.__qualname__ = spec.__name__.removesuffix("Spec")
    make.__module__, make.__doc__ = spec.__module__, spec.__doc__
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


RETURNS = """
Returns:
    The method, as `syncline.compare`, `syncline.run` and `syncline.project` take it.

Raises:
    SpecError: names the knob, its value and what would be accepted.
"""
OPTIMIZER = """
``rule`` is a rule's name or fields, or any optimizer written for torch: its class, ``functools.partial`` of it, or a
function of a list of parameters. Further options are the optimizer's, and so is ``weight_decay`` then;
``average_states`` names those of its states that travel with the parameters.
"""


def kinds() -> dict[str, str]:
    """Return all method kinds, by the names of their functions."""
    return {_name(kind): kind for kind in METHOD_KINDS.names()}


@cache
def function_of(kind: str) -> Callable[..., MethodBase]:
    """Return the function that makes methods of a kind from its knobs.

    >>> import torch
    >>> from syncline.methods.functions import local, mt_dao
    >>> mt_dao(period=32, lr=2e-3).period
    32
    >>> method = local(torch.optim.AdamW, lr=1e-3, period=16, betas=(0.9, 0.95), average_states=["exp_avg"])
    >>> method.name, method.traffic_formula(8)
    ('local-AdamW', '8 N / 16')
    """
    spec = kind_named(kind)
    signature = _signature(spec)

    def make(*args: Any, **knobs: Any) -> MethodBase:
        arguments = {**dict(signature.bind_partial(*args).arguments), **knobs}
        if len(arguments) < len(args) + len(knobs):
            twice = next(name for name in signature.bind_partial(*args).arguments if name in knobs)
            raise TypeError(f"{_name(kind)}() got multiple values for argument '{twice}'")
        arguments = {name: plain_argument(name, value) for name, value in arguments.items()}
        rule = from_optimizer(arguments.get("rule"))
        if isinstance(rule, dict) and rule.get("kind") == "torch":
            arguments["rule"] = rule | _options(spec, rule, arguments)
        return validate(spec, {"kind": spec.model_fields["kind"].default} | arguments)

    make.__name__ = make.__qualname__ = _name(kind)
    make.__module__ = "syncline.methods.functions"
    make.__signature__ = signature  # type: ignore[attr-defined]
    about = inspect.cleandoc(spec.__doc__ or "").removesuffix("Args:").rstrip()
    make.__doc__ = "\n".join([about, *([OPTIMIZER.rstrip()] if "rule" in spec.model_fields else []), RETURNS])
    return make


def _name(kind: str) -> str:
    return kind.replace("-", "_")


def _signature(spec: type[MethodBase]) -> Signature:
    """Return a signature: the kind's parameters in order, then shared ones as keywords; ``lr`` has no default."""
    fields = spec.model_fields
    shared = [name for name in fields if name in SHARED and name not in ("kind", "lr")]
    plain, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY

    def parameter(name: str, kind: Any) -> Parameter:
        return Parameter(name, kind, default=_default(fields[name]), annotation=_accepted_type(fields[name]))

    parameters = [parameter(name, plain) for name in fields if name not in SHARED]
    parameters += [parameter(name, by_name) for name in ("lr", *shared)]
    parameters += [Parameter("options", Parameter.VAR_KEYWORD, annotation=Any)] if "rule" in fields else []
    return Signature(parameters, return_annotation=MethodBase)


def _default(field: FieldInfo) -> Any:
    """Return a field's default; a part's default is its kind."""
    if field.is_required():
        return Parameter.empty
    default = field.get_default(call_default_factory=True)
    return default.kind if isinstance(getattr(default, "kind", None), str) else default


def _accepted_type(field: FieldInfo) -> Any:
    """Return the type of what may be given: of a part, and of what is read from other things, anything beside it."""
    annotation = _plain(field.annotation)
    return (
        annotation
        if annotation is Any or not any(isinstance(m, BeforeValidator) for m in field.metadata)
        else annotation | Any
    )


def _plain(annotation: Any) -> Any:
    """Return a field's type without its validators; lists stand for tuples, and a part may have any type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(inner[0])
    if origin in (Union, UnionType):
        of_all = [_plain(argument) for argument in inner]
        return Any if Any in of_all else reduce(or_, of_all)
    if origin is tuple:
        return Sequence[_plain(inner[0])]  # type: ignore[misc]
    return Any if isinstance(annotation, type) and issubclass(annotation, BaseModel) else annotation


def _options(spec: type[MethodBase], rule: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that belong to the optimizer, removed from the others."""
    accepted = options_of(rule.get("target"))
    allowed = {*spec.model_fields, "average_states", *(accepted or [])} - {"kind"}
    options = {name: value for name, value in arguments.items() if name not in spec.model_fields}
    for name, value in options.items():
        if accepted is not None and name not in allowed:
            expected = "no such argument or option of the optimizer, but " + one_of_fields(allowed, name)
            raise SpecError(name, value, expected)
    if accepted is None or "weight_decay" in accepted:
        options |= {name: arguments[name] for name in ("weight_decay",) if name in arguments}
    for name in options:
        del arguments[name]
    return options
