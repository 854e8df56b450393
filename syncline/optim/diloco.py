"""DiLoCo's outer optimizers, and streaming, which averages fragments of the model one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import E3M0, Details, Handle, first_row_per_replica, flatten_rows, repeat_for_workers
from syncline.comm.base import fp32_bytes
from syncline.costmodel import model_fragments
from syncline.costmodel.traffic.call import Spans
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, OuterOptimizer, ParamRow, UpdateRule
from syncline.optim.method import Method
from syncline.optim.scalings import check_unit
from syncline.optim.sync import Periodic

PERIOD_START, OUTER_MOMENTUM, OUTER_SECOND_MOMENT = "anchor", "outer_momentum", "outer_second_moment"
"""Names of states: the parameters at the start of a period, and the outer optimizer's moments."""


class PseudoGradientOuter(OuterOptimizer):
    """The base of outer optimizers whose workers average pseudo-gradients instead of parameters."""

    def payload(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Return the pseudo-gradient of each worker, the parameters at the period's start minus those at its end."""
        return state[PERIOD_START] - x


@dataclass(frozen=True)
class FedAdam(PseudoGradientOuter):
    """FedAdam: an outer Adam step with the pseudo-gradient ``delta = mean_m (x_start - x_end,m)`` of a period.

        m <- beta1 m + (1 - beta1) delta;   v <- beta2 v + (1 - beta2) delta^2
        x <- x_start - lr m / (sqrt(v) + eps)

    Source: Reddi et al., "Adaptive Federated Optimization" (2021), Algorithm 2, where eps is called tau. There is no
    bias correction.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-3

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise SpecError("outer_lr", self.lr, "a number > 0")
        check_unit("outer_beta1", self.beta1)
        check_unit("outer_beta2", self.beta2)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``outer_lr``, ``outer_beta1`` and ``outer_beta2`` by name."""
        return {"outer_lr": self.lr, "outer_beta1": self.beta1, "outer_beta2": self.beta2}

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return a copy of the parameters, for the start of the period, and zero moments, by name."""
        zeros = x.new_zeros(x.shape)
        return {PERIOD_START: x.clone(), OUTER_MOMENTUM: zeros, OUTER_SECOND_MOMENT: zeros.clone()}

    def apply_average(self, x: Tensor, average: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> None:
        """Take an Adam step from the period's start, along the mean pseudo-gradient ``average``."""
        m = state[OUTER_MOMENTUM].lerp_(average, 1 - h["outer_beta1"])
        v = state[OUTER_SECOND_MOMENT].mul_(h["outer_beta2"]).addcmul_(average, average, value=1 - h["outer_beta2"])
        state[PERIOD_START].addcdiv_(m, v.sqrt().add_(self.eps), value=-h["outer_lr"])
        x.copy_(state[PERIOD_START])


@dataclass(frozen=True)
class Nesterov(PseudoGradientOuter):
    """DiLoCo's outer step: Nesterov momentum with the pseudo-gradient ``delta = mean_m (x_start - x_end,m)``.

        b <- mu b + delta
        x <- x_start - lr (delta + mu b)

    x_start and x_end,m are the parameters at the start of a period and those of worker m at its end. ``lr = 1`` and
    ``mu = 0`` is parameter averaging.

    Args:
        lr: outer learning rate.
        momentum: mu, coefficient of the momentum, in [0, 1).

    Source: DiLoCo (Douillard et al., 2023), with its defaults 0.7 and 0.9.
    """

    lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise SpecError("outer_lr", self.lr, "a number > 0")
        check_unit("outer_momentum", self.momentum)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``outer_lr`` and ``outer_momentum`` by name."""
        return {"outer_lr": self.lr, "outer_momentum": self.momentum}

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return a copy of the parameters, for the start of the period, and a zero momentum, by name."""
        return {PERIOD_START: x.clone(), OUTER_MOMENTUM: x.new_zeros(x.shape)}

    def apply_average(self, x: Tensor, average: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> None:
        """Take a Nesterov step from the period's start, along the mean pseudo-gradient ``average``."""
        momentum = h["outer_momentum"]
        b = state[OUTER_MOMENTUM].mul_(momentum).add_(average)
        state[PERIOD_START].sub_(average, alpha=h["outer_lr"]).sub_(b, alpha=h["outer_lr"] * momentum)
        x.copy_(state[PERIOD_START])


PENDING = "pending_"
"""Prefix of the names of averages in transit, in a saved state."""


class TensorsInFlight(NamedTuple):
    """Averages in transit: the indices of the parameters, and the handle whose ``wait`` returns the averages."""

    param_indices: list[int]
    handle: Handle


class FragmentState(NamedTuple):
    """One state of one fragment of the model, averaged as a unit."""

    state: str
    fragment: int


class Streaming(Method):
    """Streaming: each fragment of each state is sent on its own schedule, and merged ``tau`` steps later.

    The parameters, in order, are divided into ``fragments x strides`` runs of about equal size; fragment f of F
    consists of the runs f, f + F, f + 2 F and so on. Fragment f of a state with period K is sent after step t if
    ``(t + 1 - t_f) % K == 0`` with ``t_f = floor(f K / F)``, which spreads the traffic evenly. After step ``t + tau`` a
    worker merges the average into its state Z:

        Z <- alpha Z + (1 - alpha) Z~

    Z~ is the average, or the result of the outer optimizer. With one fragment, ``tau = 0`` and ``alpha = 0`` each state
    is averaged as a whole at the end of its period.

    Args:
        rule: the update rule.
        periods: K of each averaged state, number of steps between two averages of a fragment.
        fragments: F, number of fragments.
        strides: number of runs of neighbouring parameters in each fragment.
        tau: number of steps between sending and merging a fragment, less than every K.
        alpha: weight of a worker's own value in a merge, from 0 to 1.
        in_backward: whether the parts of a fragment may be sent during the backward pass.
        outer_optimizer: outer optimizer of the averaged parameters; by default, workers merge the plain average.
        four_bits: whether workers gather the outer gradients in four bits (``E3M0``), and average them in their own
            precision.
        **options: ``weight_decay``, ``clip_norm``, ``wire``, ``comm``, ``worker_axis`` of ``Method``.

    Source: Streaming DiLoCo (Douillard et al., 2025); MT-DAO, Algorithm 5.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        rule: UpdateRule,
        periods: Mapping[str, int],
        *,
        fragments: int = 1,
        strides: int = 1,
        tau: int = 0,
        alpha: float = 0.0,
        in_backward: bool = False,
        outer_optimizer: OuterOptimizer | None = None,
        four_bits: bool = False,
        **options: Any,
    ) -> None:
        if fragments < 1:
            raise SpecError("fragments", fragments, "an integer >= 1")
        if strides < 1:
            raise SpecError("strides", strides, "an integer >= 1")
        if four_bits and outer_optimizer is None:
            raise SpecError("four_bits", four_bits, "false without an outer optimizer: whole parameters travel")
        sync = Periodic(dict(periods))
        if not 0 <= tau < min(periods.values()):
            raise SpecError("tau", tau, f"from 0 to {min(periods.values()) - 1}, less than every period")
        if not 0 <= alpha <= 1:
            raise SpecError("alpha", alpha, "a number from 0 to 1")
        if options.get("compressor") is not None:
            expected = "none: a late merge would use a difference from an outdated reference"
            raise SpecError("compressor", options["compressor"], expected)
        self.fragments, self.strides, self.tau, self.alpha = fragments, strides, tau, alpha
        self.in_backward = in_backward
        self._encoding = E3M0() if four_bits else None
        self._in_flight: dict[FragmentState, TensorsInFlight] = {}
        super().__init__(params, lr, rule, sync, outer_optimizer=outer_optimizer, **options)

    def _due_fragments(self, t: int) -> list[FragmentState]:
        """Return the states of fragments to send after step ``t``, see `Streaming`; ``t`` may be negative."""
        assert isinstance(self.sync, Periodic)
        due = []
        for state, period in self.sync.periods.items():
            for fragment in range(self.fragments):
                offset = fragment * period // self.fragments
                if (t + 1 - offset) % period == 0:
                    due.append(FragmentState(state, fragment))
        return due

    def _fragment_rows(self, fragment_state: FragmentState) -> tuple[list[ParamRow], Spans]:
        """Return the parameters of a fragment that have the state, with or without gradients, and the fragment's spans.

        The spans are the parts of the model that the fragment covers; without ``in_backward`` they are empty.
        """
        rows = self.rows(without_gradient=True)
        sizes = [row.x[0].numel() for row in rows]
        fragment = model_fragments(sizes, self.fragments, self.strides)[fragment_state.fragment]
        name = fragment_state.state
        fragment_rows = []
        for index in fragment.tensors:
            if name == "params" or name in rows[index].rule.states:
                fragment_rows.append(rows[index])
        return fragment_rows, fragment.spans if self.in_backward else ()

    @override
    def average_states(self, rows: list[ParamRow], names: tuple[str, ...]) -> None:
        """Send the model's fragments that are due after this step, and merge the fragments sent ``tau`` steps ago."""
        t = self.steps_done
        for due in self._due_fragments(t):
            fragment_rows, spans = self._fragment_rows(due)
            param_indices, tensors = [], []
            for row in fragment_rows:
                tensor = self._tensor_to_average(row, due.state)
                if tensor is not None:
                    param_indices.append(row.param_index)
                    tensors.append(tensor)
            if tensors:
                label = f"{due.state} {due.fragment + 1}/{self.fragments}"  # for the ledger
                details = Details(wait_steps=self.tau, in_backward=self.in_backward, spans=spans)
                handle = self._start_average(tensors, label, details)
                self._in_flight[due] = TensorsInFlight(param_indices, handle)
        for due in self._due_fragments(t - self.tau):
            in_flight = self._in_flight.pop(due, None)
            if in_flight is not None:  # None: it was due before the first step, or no parameter has this state
                for row, average in self._rows_and_averages(in_flight):
                    self._merge(row, due.state, average)

    def _rows_and_averages(self, in_flight: TensorsInFlight) -> list[tuple[ParamRow, Tensor]]:
        """Wait for averages in transit, and return each with the row of its parameter."""
        averages = dict(zip(in_flight.param_indices, in_flight.handle.wait(), strict=True))
        rows = self.rows(without_gradient=True)
        return [(row, averages[row.param_index]) for row in rows if row.param_index in averages]

    def _start_average(self, tensors: list[Tensor], label: str, details: Details) -> Handle:
        """Start to average a fragment's tensors ``(R, *s)``, and return the handle of the averages."""
        encoding = self._encoding
        if encoding is None:
            return self.comm.start_all_reduce(tensors, wire=self.wire, label=label, details=details)
        messages = [encoding.encode(flatten_rows(x)) for x in tensors]
        details = details._replace(encoded_bytes=fp32_bytes(*tensors))
        gathered = self.comm.start_all_gather(torch.cat(messages, 1), label=label, details=details)
        # Keep the shapes until the averages arrive, but not the tensors.
        shapes_and_dtypes = [(x.shape, x.dtype) for x in tensors]
        message_bytes = [message.shape[1] for message in messages]

        def wait_for_averages() -> list[Tensor]:
            """Wait for the messages of all workers, decode them, and return their means."""
            (all_messages,) = gathered.wait()
            # All workers of a replica receive the same messages, so that one of them decodes for all.
            parts = first_row_per_replica(all_messages, self.comm).split(message_bytes, -1)
            averages = []
            for part, (shape, dtype) in zip(parts, shapes_and_dtypes, strict=True):
                mean = encoding.decode(part, count=shape[1:].numel(), dtype=dtype).mean(1)
                averages.append(repeat_for_workers(mean, num_rows=shape[0]).reshape(shape))
            return averages

        return Handle(wait_for_averages)

    def _merge(self, row: ParamRow, state_name: str, average: Tensor) -> None:
        """Merge an average into a state of a row; the present value of the state gets the weight alpha."""
        row.state.pop(PENDING + state_name, None)  # ``state_dict`` may have stored this average
        if state_name != "params" and state_name not in row.state:  # a torch optimizer will create it
            return
        target = row.x if state_name == "params" else row.state[state_name]
        own_value = target.clone() if self.alpha else None
        if state_name == "params" and self.outer_optimizer:
            self.outer_optimizer.apply_average(row.x, average, row.state, row.group)
        else:
            target.copy_(average)
        if own_value is not None:
            target.lerp_(own_value, self.alpha)

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, see `Method`, after the collectives in flight have ended."""
        for in_flight in self._in_flight.values():
            in_flight.handle.wait()
        return super().__getstate__()

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer state, as in torch, with the averages in transit, so that a resumed run can merge them.

        The call waits for the collectives in flight. Their averages are merged later, as without this call.
        """
        for fragment_state, in_flight in self._in_flight.items():
            for row, average in self._rows_and_averages(in_flight):
                row.state[PENDING + fragment_state.state] = average.clone()
        return super().state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load an optimizer state, as in torch, and the averages that were in transit when it was saved."""
        super().load_state_dict(state_dict)
        self._in_flight = {}
        assert isinstance(self.sync, Periodic)
        for state_name in self.sync.periods:
            pending_name = PENDING + state_name
            if not any(pending_name in state for state in self.state.values()):
                continue  # `_fragment_rows` would create states of parameters whose values may not be loaded yet
            for fragment in range(self.fragments):
                fragment_state = FragmentState(state_name, fragment)
                fragment_rows, _spans = self._fragment_rows(fragment_state)
                rows = [row for row in fragment_rows if pending_name in row.state]
                if rows:
                    averages = [row.state.pop(pending_name) for row in rows]
                    # The default value binds the averages of this fragment, not those of the last one.
                    handle = Handle(lambda averages=averages: averages)  # type: ignore[misc]
                    self._in_flight[fragment_state] = TensorsInFlight([row.param_index for row in rows], handle)
