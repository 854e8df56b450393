"""Measures of the angle between a Hessian's eigenvectors and the coordinate axes: exact (1,1)-norms of a given H.

``||H||_(1,1) = sum_ij |H_ij|`` is the curvature that a step bounded per coordinate can meet. Bounds for Adam
therefore contain it. For any symmetric H and orthogonal Q ::

    sum_i |lambda_i(H)|  <=  ||Q^T H Q||_(1,1)  <=  d sum_i |lambda_i(H)|

The lower end is the trace norm, which rotation leaves alone, and is reached where Q^T H Q is diagonal: H is a sum of
``H_ij e_i e_j^T``, whose trace norms are ``|H_ij|``. So the eigenbasis is a minimum over all rotations, indefinite H
included. Estimates from products with vectors alone are in `replication.theory.products`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from syncline import SpecError


def norm_11(hessian: Tensor) -> Tensor:
    """Return ``sum_ij |H_ij|`` of matrices ``(..., d, d)``, shape ``(...)``.

    Source: Basis Rotation, section 2.3.

    >>> norm_11(torch.tensor([[2.0, -1.0], [-1.0, 3.0]])).item()
    7.0
    """
    return hessian.abs().sum((-2, -1))


def least_norm_11(hessian: Tensor) -> Tensor:
    """Return the least (1,1)-norm over all rotations of symmetric matrices ``(..., d, d)``: ``sum_i |lambda_i|``.

    >>> round(least_norm_11(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).item(), 6)  # eigenvalues 1 and -1
    2.0
    """
    return torch.linalg.eigvalsh(hessian).abs().sum(-1)


def misalignment(hessian: Tensor) -> Tensor:
    """Return the (1,1)-norm over the least that a rotation reaches: 1 where H is diagonal, at most d.

    >>> [round(misalignment(torch.tensor([[10.5, c], [c, 10.5]])).item(), 4) for c in (0.0, 9.5)]
    [1.0, 1.9048]
    """
    return norm_11(hessian) / least_norm_11(hessian)


def dominant_eigenvector(hessian: Tensor) -> Tensor:
    """Return the unit eigenvector of the eigenvalue largest in magnitude, ``(..., d)``, its largest entry positive."""
    values, vectors = torch.linalg.eigh(hessian)
    index = values.abs().argmax(-1, keepdim=True).unsqueeze(-2).expand(*vectors.shape[:-1], 1)
    vector = vectors.gather(-1, index).squeeze(-1)
    largest = vector.gather(-1, vector.abs().argmax(-1, keepdim=True))
    return vector * torch.where(largest < 0, -1.0, 1.0).to(vector.dtype)


def angle_to_axes_deg(hessian: Tensor) -> Tensor:
    """Return the degrees between the dominant eigenvector and the nearest coordinate axis: ``arccos(max_i |e_i|)``.

    In two dimensions the angle lies between 0 and 45.
    """
    largest = dominant_eigenvector(hessian).abs().amax(-1).clamp(max=1.0)
    return torch.rad2deg(torch.arccos(largest))


class Oscillation(NamedTuple):
    """Statistics of the steps' projections ``(T, ...)`` on one direction; each of shape ``(...)``.

    Attributes:
        rms: root mean square of a step's projection, in the unit of the parameters.
        undone: ``1 - |sum p_t| / sum |p_t|``, the part of the path length that other steps took back: 0 for steps
            straight on, 1 for steps to and fro.
        reversals: share of steps whose direction is opposite to that of the step before.
    """

    rms: Tensor
    undone: Tensor
    reversals: Tensor


def oscillation(updates: Tensor, direction: Tensor) -> Oscillation:
    """Measure the swings of updates ``(T, ..., d)`` along a nonzero direction ``(..., d)`` or ``(d,)``.

    Raises:
        SpecError: fewer than two updates.

    Source: Basis Rotation, Figure 12 and Appendix D.3, which draw the projections; the numbers are ours.

    >>> to_and_fro = oscillation(torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]]), torch.eye(2))
    Traceback (most recent call last):
        ...
    syncline.errors.SpecError: direction: got (2, 2); expected the shape of one update, (2,)
    >>> steps = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> [[round(x.item(), 3) for x in oscillation(steps, axis)] for axis in torch.eye(2)]
    [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if updates.shape[0] < 2:
        raise SpecError("updates", tuple(updates.shape), "at least two updates, to tell a swing")
    if direction.shape not in (updates.shape[1:], updates.shape[-1:]):
        raise SpecError("direction", tuple(direction.shape), f"the shape of one update, {tuple(updates.shape[1:])}")
    unit = direction / direction.norm(dim=-1, keepdim=True)
    p = (updates * unit).sum(-1)
    path_length = p.abs().sum(0)
    undone = 1 - p.sum(0).abs() / torch.where(path_length > 0, path_length, 1.0)
    reversals = ((p[1:] * p[:-1]) < 0).to(p.dtype).mean(0)
    return Oscillation(p.square().mean(0).sqrt(), torch.where(path_length > 0, undone, 0.0), reversals)
