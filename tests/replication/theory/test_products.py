"""Hessian-vector products, and what is estimated from them, against Hessians written down."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F

from replication.theory.hessian import norm_11
from replication.theory.products import (
    Products,
    cauchy_norm_11,
    dominant_pair,
    hessian_products,
    orthogonal_direction,
)
from syncline.errors import SpecError
from syncline.problems.gpt import GPT


def source(seed):
    return torch.Generator().manual_seed(seed)


def network(seed=0):
    """A tanh network's loss on fixed data, 31 parameters in double precision."""
    g = source(seed)
    x, y = (torch.randn(16, n, generator=g, dtype=torch.float64) for n in (4, 1))
    shapes = {"a": (5, 4), "b": (5,), "c": (1, 5), "d": (1,)}
    params = {name: torch.randn(*shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}

    def loss(p):
        return F.mse_loss(torch.tanh(x @ p["a"].T + p["b"]) @ p["c"].T + p["d"], y)

    return loss, params


def written_down(products):
    eye = torch.eye(products.dimension, dtype=products.dtype)
    return torch.stack([products.times(column) for column in eye])


def of_matrix(h):
    return Products(len(h), h.dtype, h.device, lambda v: h @ v)


def test_products_are_those_of_autograd_s_hessian():
    loss, params = network()
    flat = torch.cat([p.reshape(-1) for p in params.values()])

    def of_flat(v):
        parts = v.split([p.numel() for p in params.values()])
        return loss({name: part.view(p.shape) for (name, p), part in zip(params.items(), parts, strict=True)})

    exact = torch.autograd.functional.hessian(of_flat, flat)
    for repeat in (True, False):
        assert torch.allclose(written_down(hessian_products(loss, params, repeat)), exact, atol=1e-12)


def test_a_quadratic_has_its_matrix_and_a_linear_loss_none():
    h = torch.tensor([[2.0, 1.0], [1.0, -3.0]])
    assert torch.allclose(written_down(hessian_products(lambda p: 0.5 * p["x"] @ h @ p["x"], {"x": torch.ones(2)})), h)
    assert not written_down(hessian_products(lambda p: p["x"].sum(), {"x": torch.ones(2)})).any()
    with pytest.raises(SpecError, match="loss: got"):
        hessian_products(lambda p: p["x"], {"x": torch.ones(2)})
    with pytest.raises(SpecError, match="params: got"):
        hessian_products(lambda p: torch.zeros(()), {})


def test_attention_is_differentiated_twice():
    """A GPT's Hessian is symmetric, and its products are the slopes of its gradient."""
    model = GPT(vocabulary=5, width=4, layers=1, heads=2, context=3)
    tokens, draw = torch.tensor([[0, 3, 2], [4, 1, 1]]), source(0)
    # A GPT's own weights are memory as it is found: a problem draws them.
    params = {name: torch.randn(p.shape, generator=draw, dtype=torch.float64) for name, p in model.named_parameters()}

    def loss(p):
        return F.cross_entropy(functional_call(model, p, (tokens,)).flatten(0, 1), tokens.flatten())

    products = hessian_products(loss, params)
    u, v = (torch.randn(products.dimension, generator=source(seed), dtype=torch.float64) for seed in (1, 2))
    assert (u @ products.times(v)).item() == pytest.approx((v @ products.times(u)).item(), rel=1e-8)


@pytest.mark.parametrize("how", ["geometric", "median"])
def test_the_norm_is_estimated_to_the_error_that_is_told(how):
    """Of 40 estimates by 100 draws each, the root mean square error is within what one row's would be."""
    loss, params = network()
    products = hessian_products(loss, params)
    exact = norm_11(written_down(products)).item()
    estimates = [cauchy_norm_11(products, 100, source(seed), how) for seed in range(40)]
    errors = [one.norm / exact - 1 for one in estimates]
    told = estimates[0].relative_error
    assert told == pytest.approx(math.pi / 20)
    assert math.sqrt(statistics.mean(e * e for e in errors)) < told
    assert abs(statistics.mean(errors)) < 3 * told / math.sqrt(40)
    assert estimates[0].per_parameter == pytest.approx(estimates[0].norm / 31)


def test_the_geometric_mean_has_no_bias_even_of_few_draws():
    """One row, three draws: without the cosines it would be a fifth too large, the median far more."""
    products = of_matrix(torch.tensor([[2.0]], dtype=torch.float64))
    g = source(0)
    estimates = [cauchy_norm_11(products, 3, g).norm for _ in range(20_000)]
    error = statistics.stdev(estimates) / math.sqrt(len(estimates))
    assert statistics.mean(estimates) == pytest.approx(2.0, abs=5 * error)
    assert 5 * error < 2.0 * (math.cos(math.pi / 6) ** -3 - 1)  # so that a missing correction would show


def test_rows_of_zeros_add_nothing():
    h = torch.diag(torch.tensor([3.0, 0.0], dtype=torch.float64))
    for how in ("geometric", "median"):
        assert cauchy_norm_11(of_matrix(h), 400, source(0), how).norm == pytest.approx(3.0, rel=0.3)


def test_what_is_wrong_is_told():
    products = of_matrix(torch.eye(2))
    with pytest.raises(SpecError, match="draws: got 1"):
        cauchy_norm_11(products, 1, source(0))
    with pytest.raises(SpecError, match="estimator: got 'mean'"):
        cauchy_norm_11(products, 9, source(0), "mean")
    with pytest.raises(SpecError, match="iterations: got 0"):
        dominant_pair(products, 0, source(0))


def test_power_iteration_finds_the_eigenvector_of_the_largest_magnitude():
    loss, params = network()
    products = hessian_products(loss, params)
    values, vectors = torch.linalg.eigh(written_down(products))
    which = values.abs().argmax()
    found = dominant_pair(products, 300, source(1))
    assert found.value == pytest.approx(values[which].item(), rel=1e-6)
    assert abs(found.vector @ vectors[:, which]).item() == pytest.approx(1.0, abs=1e-6)
    assert found.residual < 1e-3


def test_of_no_curvature_every_vector_is_an_eigenvector():
    found = dominant_pair(of_matrix(torch.zeros(3, 3)), 5, source(0))
    assert found.value == 0 and found.residual == 0
    assert found.vector.norm().item() == pytest.approx(1.0)


def test_the_direction_beside_is_at_a_right_angle():
    vector = torch.randn(50, generator=source(0), dtype=torch.float64)
    beside = orthogonal_direction(vector, source(1))
    assert beside.norm().item() == pytest.approx(1.0)
    assert (beside @ vector).item() == pytest.approx(0.0, abs=1e-12)
