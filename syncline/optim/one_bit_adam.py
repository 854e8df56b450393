"""1-bit Adam, whose workers average signs of their momenta after a start with Adam."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, encoding_details, first_row_per_replica, repeat_for_workers
from syncline.errors import SpecError
from syncline.optim.base import ParamRow, SyncPolicy, UpdateRule
from syncline.optim.compressors import SIGNS, view_as_numbers
from syncline.optim.method import Method
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT, momentum_names
from syncline.optim.sync import BufferSync

WORKER_ERROR, OWNER_ERROR = "worker_error", "server_error"

Scale = Literal["rms", "mean"]


@dataclass(frozen=True)
class OneBitMean:
    """A mean over workers that sends one bit per number in both directions, with two errors (1-bit Adam).

        worker i:               y_i = x_i + e_i;   q_i = s(y_i) sign(y_i);   e_i <- y_i - q_i
        owner of a chunk:       z = mean_i q_i + e;   q = s(z) sign(z);   e <- z - q

    Each of the M workers owns a chunk of ``c = ceil(n / M)`` numbers of each tensor x of n numbers. The signs go to the
    owners by an all-to-all of ``M (ceil(c / 8) + 4)`` bytes; the result q goes to all workers by an all-gather of
    ``ceil(c / 8) + 4`` bytes. ``sign(0)`` is +1. A worker has one scale s per tensor, an owner one per chunk; scales
    have the type of the tensor.

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
        """Return zero errors by name: an error of each worker for ``x``, and an error of each owner for its chunk."""
        chunk = chunk_length(x[0].numel(), workers)
        return {WORKER_ERROR: torch.zeros_like(x), OWNER_ERROR: x.new_zeros(x.shape[0], chunk)}

    def mean(self, xs: Sequence[Tensor], states: Sequence[dict[str, Tensor]], comm: Communicator) -> list[Tensor]:
        """Return the one-bit mean of each tensor ``(R, *s)`` over the workers, and update the errors in the states."""
        details = encoding_details(*xs)

        # Send the signs of each chunk to its owner.
        worker_messages = [self._worker_messages(x, state, comm) for x, state in zip(xs, states, strict=True)]
        received = comm.all_to_all(torch.cat(worker_messages, -1), label="worker signs", details=details)
        received_parts = received.split([message.shape[-1] for message in worker_messages], -1)

        # Send the mean of each chunk to all workers.
        owner_messages = []
        for part, x, state in zip(received_parts, xs, states, strict=True):
            owner_messages.append(self._owner_message(part, x, state, comm))
        gathered = comm.all_gather(torch.cat(owner_messages, -1), label="owner signs", details=details)

        # All workers of a replica receive the same bytes, so that one of them decodes for all.
        part_bytes = [message.shape[-1] for message in owner_messages]
        gathered_parts = first_row_per_replica(gathered, comm).split(part_bytes, -1)
        return [self._decode_mean(part, like=x) for part, x in zip(gathered_parts, xs, strict=True)]

    def _worker_messages(self, x: Tensor, state: dict[str, Tensor], comm: Communicator) -> Tensor:
        """Return each worker's b-byte messages ``(R, M, b)`` to the owners of chunks of ``x``, and update its error."""
        n, workers = x[0].numel(), comm.world_size
        y = (x + state[WORKER_ERROR]).reshape(-1, n)
        scale = self._scale(y, count=n)
        is_positive = y >= 0
        decoded = torch.where(is_positive, scale, -scale)
        state[WORKER_ERROR].copy_((y - decoded).view_as(x))
        chunk = chunk_length(n, workers)
        padded = torch.nn.functional.pad(is_positive, (0, chunk * workers - n))
        scale_of_chunks = scale.unsqueeze(1).expand(-1, workers, -1)  # the same for each owner
        return _encode_message(padded.unflatten(1, (workers, chunk)), scale_of_chunks)

    def _owner_message(self, received: Tensor, x: Tensor, state: dict[str, Tensor], comm: Communicator) -> Tensor:
        """Return each owner's message ``(R, b)`` with the mean of its chunk of ``x``, and update the owner's error.

        Args:
            received: messages ``(R, M, b)`` of all workers to each owner.
            x: the tensor ``(R, *s)`` that is averaged.
        """
        n, chunk = x[0].numel(), state[OWNER_ERROR].shape[1]
        # The last chunks may be shorter or empty: they end with padding.
        lengths = torch.tensor([min(max(n - w * chunk, 0), chunk) for w in comm.local_workers], device=x.device)
        is_in_tensor = torch.arange(chunk, device=x.device) < lengths.unsqueeze(1)
        mean = _decode_message(received, chunk, x.dtype).mean(1)
        z = torch.where(is_in_tensor, mean + state[OWNER_ERROR], 0)
        scale = self._scale(z, count=lengths.clamp(min=1).unsqueeze(1))
        is_positive = z >= 0
        decoded = torch.where(is_positive, scale, -scale)
        state[OWNER_ERROR].copy_(torch.where(is_in_tensor, z - decoded, 0))
        return _encode_message(is_positive, scale)

    def _decode_mean(self, gathered: Tensor, like: Tensor) -> Tensor:
        """Return the mean in the shape of ``like (R, *s)`` from the messages of all owners of chunks, ``(S, M, b)``."""
        n, workers = like[0].numel(), gathered.shape[1]
        chunks = _decode_message(gathered, chunk_length(n, workers), like.dtype)
        mean = chunks.flatten(1)[:, :n]  # without the padding of the last chunks
        return repeat_for_workers(mean, like.shape[0]).view(like.shape)

    def _scale(self, y: Tensor, count: Tensor | int) -> Tensor:
        """Return the scale s ``(R, 1)`` of the first ``count`` numbers of each row of ``y (R, n)``.

        ``count`` is one number for all rows, or ``(R, 1)``; the other numbers must be 0. Sums are in fp64, so that
        their order hardly matters.
        """
        if self.scale == "mean":
            return (y.abs().sum(-1, keepdim=True, dtype=torch.float64) / count).to(y.dtype)
        y_float = y.to(torch.promote_types(y.dtype, torch.float32))  # half precision squares small numbers to 0
        return (y_float.square().sum(-1, keepdim=True, dtype=torch.float64) / count).sqrt().to(y.dtype)


class OneBitMethod(Method):
    """The base of methods that average tensors by ``OneBitMean``."""

    def __init__(
        self, params: Iterable[Any], lr: float, rule: UpdateRule, sync: SyncPolicy, scale: Scale, **options: Any
    ) -> None:
        self.one_bit = OneBitMean(scale)
        super().__init__(params, lr, rule, sync, **options)

    @override
    def rows(self, *, without_gradient: bool = False) -> list[ParamRow]:
        """Return the parameters as ``Method.rows``, with errors of one-bit means among their states.

        The errors start again at zero if a loaded state is that of another number of workers, who own other chunks.
        """
        rows = super().rows(without_gradient=without_gradient)
        for row in rows:
            chunk = chunk_length(row.x[0].numel(), self.comm.world_size)
            if OWNER_ERROR not in row.state or row.state[OWNER_ERROR].shape[1] != chunk:
                row.state.update(self.one_bit.init(row.x, self.comm.world_size))
        return rows


def chunk_length(count: int, workers: int) -> int:
    """Return ``ceil(n / M)``, the number of elements of a tensor of n elements that each of M workers averages."""
    return -(-count // workers)


def _encode_message(positive: Tensor, scale: Tensor) -> Tensor:
    """Encode signs, true for plus, ``(..., n)``, and their scale ``(..., 1)`` as bytes ``(..., b)``."""
    return torch.cat([SIGNS.encode(positive), scale.contiguous().view(torch.uint8)], -1)


def _decode_message(message: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Decode messages of ``_encode_message`` to ``count`` numbers each, plus or minus the scale, ``(..., count)``."""
    sign_bytes = SIGNS.nbytes(count)
    scale = view_as_numbers(message[..., sign_bytes:], dtype)
    return SIGNS.decode(message[..., :sign_bytes], count, dtype) * scale


(MOMENTUM,) = momentum_names(1)


@dataclass(frozen=True)
class WarmUp(SyncPolicy):
    """A sync policy that averages the gradient in the first ``steps`` steps, and nothing later."""

    steps: int

    def states_due(self, t: int) -> tuple[str, ...]:
        """Return ``gradient`` in the first steps, later no state."""
        return ("gradient",) if t < self.steps else ()


class OneBitAdamMethod(OneBitMethod):
    """1-bit Adam: Adam until ``freeze_step``; then momenta are averaged by signs, and the second moment v is constant.

        m_i = beta1 m + (1 - beta1) g_i;   m <- OneBitMean(m_i);   x <- x - lr m^ / (sqrt(v^) + eps)

    g_i is the gradient of worker i; hats denote bias correction. `OneBitAdamSpec` explains details.

    Args:
        freeze_step: number of Adam's steps at the start, at least 1.
        beta1, beta2, eps, bias_correction: as in ``adam``.
        scale: magnitude of the signs, ``rms`` or ``mean``, see ``OneBitMean``.
        **options: options of ``Method``. Until ``freeze_step`` mean gradients are clipped, later each worker's
            gradient.

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
        rule = adam(beta1, beta2, eps, bias_correction)
        super().__init__(params, lr, rule, sync=WarmUp(freeze_step), scale=scale, **options)

    @override
    def buffer_sync(self, t: int) -> BufferSync:
        return "broadcast"  # momenta are averaged in every step, so that parameters stay equal

    @override
    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Return Adam's directions; from ``freeze_step`` on, the momentum is the one-bit mean over the workers."""
        if t < self.freeze_step or not rows:
            return super().directions(rows, t)
        for row in rows:
            row.state[MOMENTUM].lerp_(row.g, 1 - row.group["betas"][0])
        means = self.one_bit.mean([row.state[MOMENTUM] for row in rows], [row.state for row in rows], self.comm)
        for row, mean in zip(rows, means, strict=True):
            # Where v is 0, no worker has had a gradient: replace the sign by 0.
            row.state[MOMENTUM].copy_(mean.masked_fill(row.state[SECOND_MOMENT] == 0, 0))
        # Since ``freeze_step`` the second moment is constant, and so is its bias correction.
        updates = self.freeze_step if self.bias_correction else None
        directions: list[Tensor | None] = []
        for row in rows:
            correction = momentum_bias_correction(row.group, steps=t + 1) if self.bias_correction else 1.0
            directions.append(row.state[MOMENTUM] / correction / adam_denominator(row, updates))
        return directions


def momentum_bias_correction(group: dict[str, Any], steps: int) -> float:
    """Return ``1 - beta1^steps``, the divisor that corrects a momentum for its start at zero."""
    (beta1,) = group["betas"]
    return float(1 - beta1**steps)


def adam_denominator(row: ParamRow, updates: int | None) -> Tensor:
    """Return the divisor of Adam's step: ``sqrt(v / (1 - beta2^updates)) + eps``.

    Args:
        row: parameter, with the second moment v and its hyperparameters.
        updates: number of updates of v so far; None for no bias correction.
    """
    root = row.state[SECOND_MOMENT].sqrt()
    if updates:
        root.div_((1 - row.group["beta2"] ** updates) ** 0.5)
    return root.add_(row.group["eps"])
