"""1-bit Adam: Adam for a while, then momentum in a frozen scaling, averaged by signs.

The mean of tensors of which each number travels as one bit, twice, and what that leaves out is sent later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, PackedSigns, encoded_from, first_rows, for_all
from syncline.errors import SpecError
from syncline.optim.base import Row, SyncPolicy, UpdateRule
from syncline.optim.method import Method
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT, momentum_names
from syncline.optim.sync import BufferSync

WORKER_ERROR, SERVER_ERROR = "worker_error", "server_error"

Scale = Literal["rms", "mean"]

SIGNS = PackedSigns()


@dataclass(frozen=True)
class OneBitMean:
    """A two-sided, error-compensated mean of signs.

        worker i:       y_i = x_i + e_i;   q_i = s(y_i) sign(y_i);   e_i <- y_i - q_i
        owner of a
        chunk:          z = mean_i q_i + e;   q = s(z) sign(z);   e <- z - q

    and all workers receive ``q``. A number travels as one bit, with ``sign(0) = +1``. Each tensor has one chunk per
    worker, ``c = ceil(n / M)``; a worker's scale is of the whole tensor, an owner's of its chunk. What travels for each
    tensor, in one all-to-all and one all-gather of all tensors together: ``M (ceil(c / 8) + 4)`` bytes, then
    ``ceil(c / 8) + 4``. The scale has the tensor's own type.

    Args:
        scale: magnitude s(y) of the signs. ``rms``, ``||y||_2 / sqrt(n)`` as in 1-bit Adam and its public code, keeps
            the norm. ``mean``, ``||y||_1 / n``, gives the smallest error, which is never longer than ``y``; with
            ``rms`` it can be longer if a few numbers are large.

    Raises:
        SpecError: the scale is neither ``rms`` nor ``mean``.

    Source: Tang et al. (2021), Algorithm 1.
    """

    scale: Scale = "rms"

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise SpecError("scale", self.scale, "'rms' or 'mean'")

    def init(self, x: Tensor, workers: int) -> dict[str, Tensor]:
        """Return zero errors: of a worker for the whole tensor, and of the owner of a chunk for the chunk."""
        chunk = chunk_length(x[0].numel(), workers)
        return {WORKER_ERROR: torch.zeros_like(x), SERVER_ERROR: x.new_zeros(x.shape[0], chunk)}

    def mean(self, xs: Sequence[Tensor], states: Sequence[dict[str, Tensor]], comm: Communicator) -> list[Tensor]:
        """Return the mean of each ``(R, *s)`` over the workers, as described; the errors in the states are updated."""
        sent = [self._from_worker(x, state, comm) for x, state in zip(xs, states, strict=True)]
        details = encoded_from(*xs)
        arrived = comm.all_to_all(torch.cat(sent, -1), label="worker signs", details=details)
        parts = arrived.split([part.shape[-1] for part in sent], -1)
        owned = [self._from_owner(p, x, s, comm) for p, x, s in zip(parts, xs, states, strict=True)]
        everyone = comm.all_gather(torch.cat(owned, -1), label="owner signs", details=details)
        # All workers of a replica receive the same: decode it once.
        parts = first_rows(everyone, comm).split([part.shape[-1] for part in owned], -1)
        return [self._joined(part, x) for part, x in zip(parts, xs, strict=True)]

    def _from_worker(self, x: Tensor, state: dict[str, Tensor], comm: Communicator) -> Tensor:
        """Return the bytes ``(R, M, b)`` for the owners of the chunks."""
        count, workers = x[0].numel(), comm.world_size
        y = (x + state[WORKER_ERROR]).reshape(-1, count)
        scale = self._size(y, count)
        positive = y >= 0
        state[WORKER_ERROR].copy_((y - torch.where(positive, scale, -scale)).view_as(x))
        chunk = chunk_length(count, workers)
        blocks = torch.nn.functional.pad(positive, (0, chunk * workers - count)).unflatten(1, (workers, chunk))
        return _message(blocks, scale.unsqueeze(1).expand(-1, workers, -1))

    def _from_owner(self, arrived: Tensor, x: Tensor, state: dict[str, Tensor], comm: Communicator) -> Tensor:
        """Return the bytes ``(R, b)`` of each owner's chunk."""
        count, chunk = x[0].numel(), state[SERVER_ERROR].shape[1]
        lengths = torch.tensor([min(max(count - w * chunk, 0), chunk) for w in comm.local_workers], device=x.device)
        real = torch.arange(chunk, device=x.device) < lengths.unsqueeze(1)  # the last chunks may be short, or empty
        z = torch.where(real, _numbers(arrived, chunk, x.dtype).mean(1) + state[SERVER_ERROR], 0)
        scale = self._size(z, lengths.clamp(min=1).unsqueeze(1))
        positive = z >= 0
        state[SERVER_ERROR].copy_(torch.where(real, z - torch.where(positive, scale, -scale), 0))
        return _message(positive, scale)

    def _joined(self, gathered: Tensor, x: Tensor) -> Tensor:
        """Return ``(R, *s)`` from all owners' bytes ``(S, M, b)``."""
        workers = gathered.shape[1]
        chunk = chunk_length(x[0].numel(), workers)
        mean = _numbers(gathered, chunk, x.dtype).flatten(1)[:, : x[0].numel()]
        return for_all(mean, x.shape[0]).view(x.shape)

    def _size(self, y: Tensor, count: Tensor | int) -> Tensor:
        """Return ``s(y)`` of each row, ``(R, 1)``; sums are in fp64, so that their order hardly ever matters."""
        if self.scale == "mean":
            return (y.abs().sum(-1, keepdim=True, dtype=torch.float64) / count).to(y.dtype)
        wide = y.to(torch.promote_types(y.dtype, torch.float32))  # in half precision a small number's square is 0
        return (wide.square().sum(-1, keepdim=True, dtype=torch.float64) / count).sqrt().to(y.dtype)


class OneBitMethod(Method):
    """A method that averages something by ``OneBitMean``: the owners' errors depend on the size of the group."""

    def __init__(
        self, params: Iterable[Any], lr: float, rule: UpdateRule, sync: SyncPolicy, scale: Scale, **options: Any
    ) -> None:
        self.one_bit = OneBitMean(scale)
        super().__init__(params, lr, rule, sync, **options)

    @override
    def rows(self, *, without_gradient: bool = False) -> list[Row]:
        rows = super().rows(without_gradient=without_gradient)
        for row in rows:
            if WORKER_ERROR not in row.state:
                row.state.update(self.one_bit.init(row.x, self.comm.world_size))
        return rows


def chunk_length(count: int, workers: int) -> int:
    """Return ``ceil(n / M)``: how many numbers of a tensor each worker averages for all."""
    return -(-count // workers)


def _message(positive: Tensor, scale: Tensor) -> Tensor:
    """Return packed signs followed by the bytes of the scale: ``(..., n)`` and ``(..., 1)`` to ``(..., b)``."""
    return torch.cat([SIGNS.encode(positive), scale.contiguous().view(torch.uint8)], -1)


def _numbers(message: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Decode a message of ``_message`` to plus and minus the scale, ``(..., n)``."""
    signs, scale = message.split([SIGNS.nbytes(count), message.shape[-1] - SIGNS.nbytes(count)], -1)
    # A copy, so that the bytes begin where a number may.
    return SIGNS.decode(signs, count, dtype) * scale.clone(memory_format=torch.contiguous_format).view(dtype)


(MOMENTUM,) = momentum_names(1)


@dataclass(frozen=True)
class WarmUp(SyncPolicy):
    """The gradient is averaged in the first ``steps`` steps."""

    steps: int

    def due(self, t: int) -> tuple[str, ...]:
        """Return the gradient, or nothing."""
        return ("gradient",) if t < self.steps else ()

    def check(self, available: tuple[str, ...]) -> None:
        """Accept any rule, because gradients and momenta always exist."""


class OneBitAdamMethod(OneBitMethod):
    """Adam on mean gradients; from ``freeze_step`` on the second moment stays, and momenta are averaged by signs.

    The formulas, and why they are so: `syncline.methods.one_bit_adam.OneBitAdamSpec`.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        freeze_step: number of first steps, which are Adam's, at least 1; then the second moment stays constant.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        bias_correction: whether both moments are corrected for their start at zero; the public code has no correction.
        scale: magnitude of the signs, ``rms`` or ``mean``, see ``OneBitMean``.
        **options: options of ``Method``. Gradients are clipped after they are averaged, later each worker's own.

    Raises:
        SpecError: for a value out of range.

    Source: Tang et al. (2021), Algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        freeze_step: int,
        beta1: float,
        beta2: float,
        eps: float,
        bias_correction: bool,
        scale: Scale,
        **options: Any,
    ) -> None:
        self.freeze_step, self.bias_correction = freeze_step, bias_correction
        super().__init__(params, lr, adam(beta1, beta2, eps, bias_correction), WarmUp(freeze_step), scale, **options)

    @override
    def buffers_due(self, t: int) -> BufferSync:
        return "broadcast"  # momenta are averaged in every step, so that parameters stay equal

    @override
    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        if t < self.freeze_step or not rows:
            return super().directions(rows, t)
        for row in rows:
            row.state[MOMENTUM].lerp_(row.g, 1 - row.group["betas"][0])
        means = self.one_bit.mean([row.state[MOMENTUM] for row in rows], [row.state for row in rows], self.comm)
        for row, mean in zip(rows, means, strict=True):
            row.state[MOMENTUM].copy_(mean.masked_fill(row.state[SECOND_MOMENT] == 0, 0))
        share, updates = (t + 1, self.freeze_step) if self.bias_correction else (0, 0)
        return [row.state[MOMENTUM] / momentum_share(row, 0, share) / denominator(row, updates) for row in rows]


def momentum_share(row: Row, j: int, steps: int) -> float:
    """Return ``1 - beta_j^steps``, by which a momentum's start at zero is corrected; 1 for 0 steps, no correction."""
    return float(1 - row.group["betas"][j] ** steps) if steps else 1.0


def denominator(row: Row, updates: int) -> Tensor:
    """Return ``sqrt(v / (1 - beta2^updates)) + eps`` after so many updates of v; uncorrected for 0."""
    root = row.state[SECOND_MOMENT].sqrt()
    if updates:
        root.div_((1 - row.group["beta2"] ** updates) ** 0.5)
    return root.add_(row.group["eps"])
