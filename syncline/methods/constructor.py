"""Methods in Python: made as torch makes optimizers, with the knobs, defaults and checks of their specs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from syncline import optim
from syncline.fields import plain_argument, validate
from syncline.methods.compressible import CompressibleBase
from syncline.methods.parts.asynchronous import check_synchronous
from syncline.methods.parts.method_spec import MethodBase
from syncline.methods.parts.remedies import check_punctual

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
