"""What Hessian-vector products tell of a Hessian too large to write down: its (1,1)-norm, its dominant eigenvector."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncline.errors import SpecError, one_of

Product = Callable[[Tensor], Tensor]
"""``v -> H v`` of vectors ``(d,)``; each call may look at another batch of data."""

HOW = ("geometric", "median")


class Products(NamedTuple):
    """Products with the Hessian of a loss at some parameters.

    Attributes:
        dimension: d, all parameters laid end to end.
        dtype: of the parameters.
        device: theirs.
        times: ``v -> H v``.
    """

    dimension: int
    dtype: torch.dtype
    device: torch.device
    times: Product


def hessian_products(
    loss: Callable[[dict[str, Tensor]], Tensor], params: Mapping[str, Tensor], repeat: bool = True
) -> Products:
    """Products by differentiating twice: ``H v = grad (grad loss . v)``, one backward pass through the gradient each.

    Args:
        loss: a scalar of the parameters by name; autograd has to differentiate it twice.
        params: where the Hessian is taken; they are not changed.
        repeat: keep the graph of the gradient for all products; else it is built anew for each, for a ``loss`` that
            looks at another batch each time.

    Raises:
        SpecError: no parameter, or a loss that is no scalar.
    """
    if not params:
        raise SpecError("params", {}, "at least one parameter")
    at = {name: p.detach().clone().requires_grad_() for name, p in params.items()}
    inputs = list(at.values())

    def gradient() -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no second derivative
            value = loss(at)
        if value.numel() != 1:
            raise SpecError("loss", tuple(value.shape), "a scalar")
        return _flat(torch.autograd.grad(value, inputs, create_graph=True, materialize_grads=True))

    kept = gradient() if repeat else None

    def times(v: Tensor) -> Tensor:
        first = gradient() if kept is None else kept
        if not first.requires_grad:  # a linear loss
            return torch.zeros_like(v)
        parts = torch.autograd.grad(first, inputs, v, retain_graph=kept is not None, materialize_grads=True)
        return _flat(parts).detach()

    return Products(sum(p.numel() for p in inputs), inputs[0].dtype, inputs[0].device, times)


def _flat(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


class NormEstimate(NamedTuple):
    """A (1,1)-norm, with the error to expect.

    Attributes:
        norm: the estimate of ``sum_ij |H_ij|``.
        relative_error: of one row's sum, as a share, ``pi / (2 sqrt(draws))``. Rows share their vectors, so the whole
            is at worst as far off, and nearer where many unlike rows add up.
        per_parameter: ``norm / d``, the paper's "normalised" norm.
    """

    norm: float
    relative_error: float
    per_parameter: float


def cauchy_norm_11(
    products: Products,
    draws: int,
    generator: torch.Generator,
    how: Literal["geometric", "median"] = "geometric",
) -> NormEstimate:
    """The (1,1)-norm of H from products with vectors of independent standard Cauchy entries.

    ``(H z)_i`` is Cauchy with scale ``sum_j |H_ij|``, and ``log |.|`` of it has that scale's logarithm as its mean and
    median. Row sums are found from n draws of it and added up::

        geometric:  cos(pi / (2 n))^n prod_k |(H z_k)_i|^(1/n)    unbiased, and one number per row is kept
        median:     median_k |(H z_k)_i|                          n numbers per row are kept

    Both have the relative variance ``pi^2 / (4 n)``, to leading order.

    Args:
        products: of the Hessian.
        draws: n, at least 2.
        generator: of the draws.
        how: which.

    Raises:
        SpecError: too few draws, or another way to combine them.

    Source: Basis Rotation, Appendix D.3, after S. Xie et al. (2025); the geometric mean is that of P. Li, T. Hastie,
    K. Church, "Nonlinear estimators and tail bounds for dimension reduction in l1 using Cauchy random projections"
    (2007).
    """
    if draws < 2:
        raise SpecError("draws", draws, "at least 2")
    if how not in HOW:
        raise SpecError("how", how, one_of(HOW, how))
    logs, kept = torch.zeros(products.dimension, dtype=torch.float64), []
    for _ in range(draws):
        uniform = torch.rand(products.dimension, dtype=torch.float64, generator=generator)
        z = torch.tan(math.pi * (uniform - 0.5)).to(products.device, products.dtype)
        magnitude = products.times(z).abs().to("cpu", torch.float64)
        if how == "median":
            kept.append(magnitude)
        else:  # a row of zeros has the logarithm minus infinity, and the sum 0
            logs += magnitude.log()
    if how == "median":
        rows = torch.stack(kept).quantile(0.5, dim=0)
    else:
        rows = (logs / draws + draws * math.log(math.cos(math.pi / (2 * draws)))).exp()
    norm = float(rows.sum())
    return NormEstimate(norm, math.pi / (2 * math.sqrt(draws)), norm / products.dimension)


class Dominant(NamedTuple):
    """The eigenvector of the eigenvalue largest in magnitude.

    Attributes:
        value: ``v^T H v``.
        vector: v, ``(d,)``, of length 1.
        residual: ``|H v - value v| / |value|``: how far it is from an eigenvector.
    """

    value: float
    vector: Tensor
    residual: float


def dominant_pair(products: Products, iterations: int, generator: torch.Generator) -> Dominant:
    """The dominant eigenvector by ``v <- H v / |H v|`` from a gaussian start.

    Args:
        products: of the Hessian.
        iterations: at least 1; the error shrinks by ``|lambda_2 / lambda_1|`` in each.
        generator: of the start.

    Raises:
        SpecError: no iteration.

    Source: Basis Rotation, Appendix D.3.
    """
    if iterations < 1:
        raise SpecError("iterations", iterations, "at least 1")
    v = torch.randn(products.dimension, dtype=torch.float64, generator=generator)
    v = v.to(products.device, products.dtype)
    image = v
    for _ in range(iterations + 1):
        size = image.norm()
        v = image / size if float(size) else v / v.norm()
        image = products.times(v)
    value = float(v @ image)
    residual = float((image - value * v).norm()) / abs(value) if value else 0.0
    return Dominant(value, v, residual)


def direction_beside(vector: Tensor, generator: torch.Generator) -> Tensor:
    """A random unit vector at a right angle to ``vector``, ``(d,)``: the paper's non-dominant direction."""
    drawn = torch.randn(vector.shape, dtype=torch.float64, generator=generator).to(vector.device, vector.dtype)
    unit = vector / vector.norm()
    beside = drawn - (drawn @ unit) * unit
    return beside / beside.norm()
