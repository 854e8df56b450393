"""Functions that make methods from the fields of their specs: optimizers for training loops, and specs for commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, reduce
from inspect import Parameter, Signature, cleandoc
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from syncline import optim
from syncline.errors import SpecError
from syncline.fields import one_of_fields, plain_argument, validate
from syncline.methods.parts.asynchronous import check_synchronous, refuse_remedy
from syncline.methods.parts.compressors import CompressibleBase
from syncline.methods.parts.method_spec import MethodBase
from syncline.methods.parts.torch_rule import from_optimizer, options_of
from syncline.methods.registry import METHOD_KINDS, kind_named

SHARED_FIELDS = {*MethodBase.model_fields, *CompressibleBase.model_fields, "remedy"}
"""Fields that several kinds of methods have; functions take them as keyword arguments."""

FUNCTION_RETURNS = """
Returns:
    The method, as `syncline.compare`, `syncline.run` and `syncline.project` take it.

Raises:
    SpecError: a field is wrong; the error names it, its value and the accepted values.
"""
CONSTRUCTOR_ARGUMENTS = {
    "params": "parameters, or parameter groups, as for torch's optimizers.",
    "comm": "the group of workers; by default torch.distributed's if it is initialised, else a single worker.",
    "worker_axis": "whether the parameters' first dimension is the worker axis; an ordinary parameter has none.",
}
"""Descriptions of the arguments that constructors have besides the fields of the spec."""

RULE_ARGUMENT = """
``rule`` is a rule's name or fields, or any optimizer written for torch: its class, ``functools.partial`` of it, or a
function of a list of parameters. Further options, and then also ``weight_decay``, go to the optimizer;
``average_states`` names the states of the optimizer that are averaged with the parameters.
"""


def field_descriptions(spec: type) -> dict[str, str]:
    """Return a description of each field of a method's spec, from the nearest class that describes the field."""
    descriptions: dict[str, str] = {}
    for base in reversed(spec.__mro__):  # the nearest class comes last, and replaces other descriptions
        _, _, section = cleandoc(base.__doc__ or "").partition("\nArgs:\n")
        arguments, _, _ = section.partition("\n\n")
        for argument in re.split(r"\n(?=    \w)", arguments):  # a line with four spaces begins an argument
            name, _, description = argument.strip().partition(": ")
            descriptions[name] = description
    return descriptions


def docstring_with_arguments(spec: type, names: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return the docstring of a method's spec with the descriptions of a function's arguments as its ``Args:``.

    Args:
        spec: class of the method.
        names: names of the arguments; one that is neither a field nor in ``others`` is left out.
        others: descriptions of arguments that are no fields of the spec.
    """
    paragraphs = cleandoc(spec.__doc__ or "").split("\n\n")
    text = [paragraph for paragraph in paragraphs if not paragraph.startswith(("Args:", "Source:"))]
    sources = [paragraph for paragraph in paragraphs if paragraph.startswith("Source:")]
    descriptions = field_descriptions(spec) | dict(others or {})
    arguments = [f"    {name}: {descriptions[name]}" for name in names if name in descriptions]
    return "\n\n".join([*text, "\n".join(["Args:", *arguments]), *sources])


def constructor(spec: type[MethodBase]) -> Callable[..., optim.Method]:
    """Return a function ``make(params, lr, ...)`` that builds the optimizer of a method from the fields of its spec.

    A part (``rule``, ``outer_optimizer``, ``compressor``) may be a name, a mapping of fields, or an object.

    >>> import torch
    >>> from syncline.methods import DDP
    >>> x = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = DDP([x], lr=0.1)
    >>> x.grad = torch.tensor([3.0])
    >>> optimizer.step()
    >>> round(x.item(), 6)  # Adam's first step is lr, whatever the gradient's size
    0.9
    """
    positional, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    field_parameters = []
    for name, field in spec.model_fields.items():
        if name not in ("kind", "label", "lr"):
            passed = by_name if name in SHARED_FIELDS else positional
            field_parameters.append(Parameter(name, passed, default=field.default))
    field_parameters.sort(key=lambda parameter: parameter.kind)  # positional ones first, as Python requires
    signature = Signature([
        Parameter("params", positional),
        Parameter("lr", positional),
        *field_parameters,
        Parameter("comm", by_name, default=None),
        Parameter("worker_axis", by_name, default=False),
    ])  # fmt: skip

    def make(*args: Any, **kwargs: Any) -> optim.Method:
        """Build the method's optimizer from its parameters and the fields of its spec."""
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        params, comm = arguments.pop("params"), arguments.pop("comm", None)
        worker_axis = arguments.pop("worker_axis", False)
        fields = {name: plain_argument(name, value) for name, value in arguments.items()}
        method = validate(spec, {"kind": spec.model_fields["kind"].default} | fields)
        check_synchronous(method, path="")
        refuse_remedy(method, path="")  # a remedy is for late gradients of a pipeline, which this optimizer has not
        return method.build(params, comm, worker_axis)

    make.__name__ = make.__qualname__ = spec.__name__.removesuffix("Spec")
    make.__module__ = "syncline.methods"
    make.__doc__ = docstring_with_arguments(spec, signature.parameters, others=CONSTRUCTOR_ARGUMENTS)
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


def kinds() -> dict[str, str]:
    """Return all kinds of methods, such as ``mt-dao``, by the names of their functions, such as ``mt_dao``."""
    return {kind.replace("-", "_"): kind for kind in METHOD_KINDS.names()}


@cache
def function_of(kind: str) -> Callable[..., MethodBase]:
    """Return the function that users call to make a method's spec, such as ``sl.diloco(lr=0.1)``.

    >>> import torch
    >>> from syncline.methods.functions import local, mt_dao
    >>> mt_dao(period=32, lr=2e-3).period
    32
    >>> method = local(torch.optim.AdamW, lr=1e-3, period=16, betas=(0.9, 0.95), average_states=["exp_avg"])
    >>> method.name, method.traffic_formula(8)
    ('local-AdamW', '8 N / 16')
    """
    spec, name = kind_named(kind), kind.replace("-", "_")
    signature = _signature(spec)

    def make(*args: Any, **kwargs: Any) -> MethodBase:
        """Return the method's spec with these fields."""
        # Only positional arguments are bound: `validate` names a wrong field better than Python would.
        arguments = dict(signature.bind_partial(*args).arguments)
        for argument in kwargs:
            if argument in arguments:
                raise TypeError(f"{name}() got multiple values for argument '{argument}'")
        arguments |= kwargs
        fields = {field: plain_argument(field, value) for field, value in arguments.items()}
        rule = from_optimizer(fields.get("rule"))
        if isinstance(rule, dict) and rule.get("kind") == "torch":
            fields["rule"] = rule | _pop_optimizer_options(spec, rule, fields)
        return validate(spec, {"kind": kind} | fields)

    make.__name__ = make.__qualname__ = name
    make.__module__ = "syncline.methods.functions"
    make.__signature__ = signature  # type: ignore[attr-defined]
    docstring = [docstring_with_arguments(spec, names=signature.parameters)]
    if "rule" in spec.model_fields:
        docstring.append(RULE_ARGUMENT.rstrip())
    make.__doc__ = "\n".join([*docstring, FUNCTION_RETURNS])
    return make


def _signature(spec: type[MethodBase]) -> Signature:
    """Return the signature of a kind's function: its fields, then by keyword ``lr`` and the shared fields."""
    spec_fields = spec.model_fields
    own_names = [name for name in spec_fields if name not in SHARED_FIELDS]
    shared_names = [name for name in spec_fields if name in SHARED_FIELDS and name not in ("kind", "lr")]
    parameters = []
    for name in (*own_names, "lr", *shared_names):
        field = spec_fields[name]
        annotation = _plain_type(field.annotation)
        has_converter = any(isinstance(validator, BeforeValidator) for validator in field.metadata)
        if has_converter and annotation is not Any:  # the validator converts other values
            annotation |= Any
        passed = Parameter.KEYWORD_ONLY if name in SHARED_FIELDS else Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(Parameter(name, passed, default=_default(field), annotation=annotation))
    if "rule" in spec_fields:  # a torch optimizer as rule has options
        parameters.append(Parameter("options", Parameter.VAR_KEYWORD, annotation=Any))
    return Signature(parameters, return_annotation=MethodBase)


def _default(field: FieldInfo) -> Any:
    """Return the default of a field as a user would write it; a rule, compressor or other part by its kind."""
    if field.is_required():
        return Parameter.empty
    default = field.get_default(call_default_factory=True)
    kind = getattr(default, "kind", None)
    return kind if isinstance(kind, str) else default


def _plain_type(annotation: Any) -> Any:
    """Return a field's type without validators: ``Sequence`` instead of a tuple, ``Any`` instead of a part's spec."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain_type(inner[0])
    if origin in (Union, UnionType):
        members = [_plain_type(argument) for argument in inner]
        return Any if Any in members else reduce(or_, members)
    if origin is tuple:
        return Sequence[_plain_type(inner[0])]  # type: ignore[misc]
    return Any if isinstance(annotation, type) and issubclass(annotation, BaseModel) else annotation


def _pop_optimizer_options(spec: type[MethodBase], rule: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of a torch optimizer from the arguments of a method's function, and return them.

    Args:
        spec: class of the method.
        rule: fields of the optimizer.
        fields: the function's arguments by name, which change.

    Raises:
        SpecError: an argument is neither a field of the method nor an option of the optimizer.
    """
    known_options = options_of(rule.get("target"))  # None: the optimizer takes any option
    options = {name: value for name, value in fields.items() if name not in spec.model_fields}
    if known_options is not None:
        allowed_names = {*spec.model_fields, "average_states", *known_options} - {"kind"}
        for name, value in options.items():
            if name not in allowed_names:
                expected = "no such argument or option of the optimizer, but " + one_of_fields(allowed_names, name)
                raise SpecError(name, value, expected)
    # Methods have a field ``weight_decay``, too, but an optimizer that has this option gets it.
    if "weight_decay" in fields and (known_options is None or "weight_decay" in known_options):
        options["weight_decay"] = fields["weight_decay"]
    for name in options:
        del fields[name]
    return options
