"""Hessian-vector products of a Hessian too large to store: estimates of its (1,1)-norm and dominant eigenvector."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncline import SpecError
from syncline.errors import one_of

Product = Callable[[Tensor], Tensor]
"""``v -> H v`` of vectors ``(d,)``; each call may look at another batch of data."""

ESTIMATORS = ("geometric", "median")


class Products(NamedTuple):
    """Products with the Hessian of a loss at some parameters.

    Attributes:
        dimension: d, the number of parameters.
        dtype: data type of the parameters.
        device: device of the parameters.
        times: the product ``v -> H v``.
    """

    dimension: int
    dtype: torch.dtype
    device: torch.device
    times: Product


def hessian_products(
    loss: Callable[[dict[str, Tensor]], Tensor], params: Mapping[str, Tensor], repeat: bool = True
) -> Products:
    """Return products by differentiating twice: ``H v = grad (grad loss . v)``, one backward pass each.

    Args:
        loss: a scalar of the parameters by name; autograd has to differentiate it twice.
        params: the parameters at which the Hessian is taken; they are not changed.
        repeat: keep the graph of the gradient for all products; otherwise each product builds it anew, for a ``loss``
            that looks at another batch each time.

    Raises:
        SpecError: no parameter, or a loss that is no scalar.
    """
    if not params:
        raise SpecError("params", {}, "at least one parameter")
    point = {name: p.detach().clone().requires_grad_() for name, p in params.items()}
    inputs = list(point.values())

    def gradient() -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no second derivative
            value = loss(point)
        if value.numel() != 1:
            raise SpecError("loss", tuple(value.shape), "a scalar")
        return _flat(torch.autograd.grad(value, inputs, create_graph=True, materialize_grads=True))

    kept_gradient = gradient() if repeat else None

    def times(v: Tensor) -> Tensor:
        first = gradient() if kept_gradient is None else kept_gradient
        if not first.requires_grad:  # a linear loss
            return torch.zeros_like(v)
        parts = torch.autograd.grad(first, inputs, v, retain_graph=kept_gradient is not None, materialize_grads=True)
        return _flat(parts).detach()

    return Products(sum(p.numel() for p in inputs), inputs[0].dtype, inputs[0].device, times)


def _flat(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


class NormEstimate(NamedTuple):
    """An estimate of a (1,1)-norm, with the error to expect.

    Attributes:
        norm: the estimate of ``sum_ij |H_ij|``.
        relative_error: error of one row's sum as a share of it, ``pi / (2 sqrt(draws))``. Rows share their vectors, so
            the relative error of the total is at most this, and smaller where many unlike rows add up.
        per_parameter: ``norm / d``, the paper's "normalised" norm.
    """

    norm: float
    relative_error: float
    per_parameter: float


def cauchy_norm_11(
    products: Products,
    draws: int,
    generator: torch.Generator,
    estimator: Literal["geometric", "median"] = "geometric",
) -> NormEstimate:
    """Estimate the (1,1)-norm of H from products with vectors of independent standard Cauchy entries.

    ``(H z)_i`` is Cauchy with scale ``sum_j |H_ij|``, and ``log |.|`` of it has that scale's logarithm as its mean and
    median. The estimate of each row sum uses n draws; the norm is the sum over the rows::

        geometric:  cos(pi / (2 n))^n prod_k |(H z_k)_i|^(1/n)    unbiased, and one number per row is kept
        median:     median_k |(H z_k)_i|                          n numbers per row are kept

    Both have the relative variance ``pi^2 / (4 n)``, to leading order.

    Args:
        products: products with the Hessian.
        draws: n, the number of random vectors, at least 2.
        generator: generator of the random vectors.
        estimator: combine the draws by the ``geometric`` mean or by the ``median``.

    Raises:
        SpecError: too few draws, or an unknown ``estimator``.

    Source: Basis Rotation, Appendix D.3, after S. Xie et al. (2025); the geometric mean is that of P. Li, T. Hastie,
    K. Church, "Nonlinear estimators and tail bounds for dimension reduction in l1 using Cauchy random projections"
    (2007).
    """
    if draws < 2:
        raise SpecError("draws", draws, "at least 2")
    if estimator not in ESTIMATORS:
        raise SpecError("estimator", estimator, one_of(ESTIMATORS, estimator))
    logs, magnitudes = torch.zeros(products.dimension, dtype=torch.float64), []
    for _ in range(draws):
        uniform = torch.rand(products.dimension, dtype=torch.float64, generator=generator)
        z = torch.tan(math.pi * (uniform - 0.5)).to(products.device, products.dtype)
        magnitude = products.times(z).abs().to("cpu", torch.float64)
        if estimator == "median":
            magnitudes.append(magnitude)
        else:  # a row of zeros has the logarithm minus infinity, so its sum is 0
            logs += magnitude.log()
    if estimator == "median":
        rows = torch.stack(magnitudes).quantile(0.5, dim=0)
    else:
        rows = (logs / draws + draws * math.log(math.cos(math.pi / (2 * draws)))).exp()
    norm = float(rows.sum())
    return NormEstimate(norm, math.pi / (2 * math.sqrt(draws)), norm / products.dimension)


class Dominant(NamedTuple):
    """The eigenvector of the eigenvalue largest in magnitude.

    Attributes:
        value: ``v^T H v``.
        vector: v, ``(d,)``, of length 1.
        residual: ``|H v - value v| / |value|``, 0 for an exact eigenvector.
    """

    value: float
    vector: Tensor
    residual: float


def dominant_pair(products: Products, iterations: int, generator: torch.Generator) -> Dominant:
    """Return the dominant eigenvector by power iteration, ``v <- H v / |H v|``, from a gaussian start.

    Args:
        products: products with the Hessian.
        iterations: number of iterations, at least 1; each shrinks the error by ``|lambda_2 / lambda_1|``.
        generator: generator of the start.

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


def orthogonal_direction(vector: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a random unit vector at a right angle to ``vector``, ``(d,)``: the paper's non-dominant direction."""
    drawn = torch.randn(vector.shape, dtype=torch.float64, generator=generator).to(vector.device, vector.dtype)
    unit = vector / vector.norm()
    rejection = drawn - (drawn @ unit) * unit
    return rejection / rejection.norm()
