"""Pieces and rows of a study of swings: Basis Rotation's Figure 12 on a small network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from replication.studies.swings.spec import SwingsSpec
from syncline.methods import MethodBase
from syncline.specs import Piece, Record, Report

if TYPE_CHECKING:
    from torch import Tensor

    from replication.theory.products import Products
    from syncline.optim import Method
    from syncline.problems import Task

MEASURED = (
    *("loss", "eigenvalue", "residual", "norm_per_parameter", "own_norm_per_parameter", "norm_error"),
    *("rms", "undone", "reversals", "rms_beside", "undone_beside", "reversals_beside"),
)
"""Fields measured once per training; a row has their medians over the seeds."""


def swing_pieces(spec: SwingsSpec) -> list[Piece]:
    """Return a piece per method, number of stages and seed; lengths are in steps."""
    return [
        Piece(spec.at_step + spec.window, partial(swing_records, spec, method, stages, seed))
        for method, stages, seed in product(spec.methods, spec.stages, spec.seeds)
    ]


def swing_records(spec: SwingsSpec, method: MethodBase, stages: int, seed: int, report: Report) -> list[Record]:
    """Train one seed and return a record per step of the window.

    Each record also has the values measured at the start of the window. There are no records after Ctrl-C.
    """
    import torch

    from replication.theory.hessian import oscillation
    from replication.theory.products import cauchy_norm_11, dominant_pair, orthogonal_direction
    from syncline.comm import SimulatedCommunicator
    from syncline.problems import DelayedTask
    from syncline.problems.random_draws import torch_generator
    from syncline.runs.training.delayed_gradients import delays_of
    from syncline.training import parameter_groups, rows_of

    torch.set_num_threads(1)
    comm = SimulatedCommunicator(1)
    task = spec.problem.build(rows_of(comm, (seed,)))
    delays = delays_of(task, stages, "per-stage")
    optimizer = method.build(parameter_groups(task, delays), comm)
    optimizer.seeds = (seed,)
    delayed_task = DelayedTask(task, delays)
    schedule = spec.schedule.build(optimizer, spec.at_step + spec.window)

    def step(t: int) -> None:
        delayed_task.step_gradients(t)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        report(t + 1)

    try:
        for t in range(spec.at_step):
            step(t)
        products = products_of(task, spec.batches)
        dominant = dominant_pair(products, spec.iterations, torch_generator(seed, "power iteration"))
        orthogonal = orthogonal_direction(dominant.vector, torch_generator(seed, "beside"))
        norms = [
            cauchy_norm_11(hessian, spec.draws, torch_generator(seed, "cauchy"))
            for hessian in (products, in_own_basis(products, task, optimizer))
        ]
        moves, before = [], _flat(task)
        for t in range(spec.at_step, spec.at_step + spec.window):
            step(t)
            after = _flat(task)
            moves.append(after - before)
            before = after
    except KeyboardInterrupt:
        return []
    updates = torch.stack(moves)
    along, across = oscillation(updates, dominant.vector), oscillation(updates, orthogonal)
    means = {name: p.detach() for name, p in task.params.items()}
    measured = {
        "loss": float(task.evaluate(means)["loss"]), "eigenvalue": dominant.value, "residual": dominant.residual,
        "norm_per_parameter": norms[0].per_parameter, "own_norm_per_parameter": norms[1].per_parameter,
        "norm_error": norms[0].relative_error, **{name: float(value) for name, value in along._asdict().items()},
        **{f"{name}_beside": float(value) for name, value in across._asdict().items()},
    }  # fmt: skip
    fields = {"method": method.name, "stages": stages, "seed": seed, "lr": method.lr} | measured
    return [
        fields | {"step": spec.at_step + t, "along": float(p), "beside": float(q)}
        for t, (p, q) in enumerate(zip(updates @ dominant.vector, updates @ orthogonal, strict=True))
    ]


def _flat(task: Task) -> Tensor:
    import torch

    return torch.cat([p.detach()[0].flatten() for p in task.params.values()])


def products_of(task: Any, batches: int) -> Products:
    """Return products with the Hessian of a network's mean loss on its first training batches."""
    import torch
    from torch.func import functional_call
    from torch.nn import functional as F

    from replication.theory.products import hessian_products

    first_batches = [task.batch(step) for step in range(batches)]
    inputs = torch.cat([batch_inputs[0] for batch_inputs, _ in first_batches])
    targets = torch.cat([batch_targets[0] for _, batch_targets in first_batches])

    def loss(weights: dict[str, Tensor]) -> Tensor:
        logits = functional_call(task.module, weights, (inputs,))
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten())

    return hessian_products(loss, {name: p.detach()[0] for name, p in task.params.items()})


def in_own_basis(products: Products, task: Task, optimizer: Method) -> Products:
    """Return Hessian products in the basis in which a method scales: ``z -> Q^T H Q z``.

    Q holds the method's bases of each matrix. A method without bases gets the same products back.
    """
    import torch

    from syncline.optim.rotation import BASES, rotate, rotate_back

    shapes = [(p.detach()[0].shape, optimizer.state[p]) for p in task.params.values()]
    if not any(name in state for _, state in shapes for name in BASES):
        return products

    def turn(v: Tensor, rotation: Callable[..., Tensor]) -> Tensor:
        """Return a vector of all parameters with each matrix rotated between the usual and the method's basis."""
        turned_parts = []
        for part, (shape, state) in zip(v.split([shape.numel() for shape, _ in shapes]), shapes, strict=True):
            left_basis, right_basis = (state[name][0] if name in state else None for name in BASES)
            matrix = part.view(shape)
            if left_basis is not None or right_basis is not None:
                matrix = rotation(matrix, left_basis, right_basis)
            turned_parts.append(matrix.reshape(-1))
        return torch.cat(turned_parts)

    return products._replace(times=lambda v: turn(products.times(turn(v, rotate_back)), rotate))


def swing_rows(spec: SwingsSpec, records: list[Record]) -> list[Record]:
    """Return a row of medians over the seeds per finished method and number of stages."""
    rows = []
    for method, stages in product(spec.methods, spec.stages):
        key = method.name, stages, spec.at_step
        seeds = [r for r in records if (r["method"], r["stages"], r["step"]) == key]  # a record per seed
        if seeds:
            medians = {name: float(np.median([record[name] for record in seeds])) for name in MEASURED}
            rows.append({"method": method.name, "stages": stages, "lr": method.lr, "seeds": len(seeds)} | medians)
    return rows
