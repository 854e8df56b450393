"""Specs of outer optimizers, and of streaming, which averages fragments of the model one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from syncline import optim
from syncline.costmodel import Exchange, TensorShape, model_fragments
from syncline.fields import ByKind, Positive, Rate, Spec, from_name, refusal
from syncline.methods.parts.method_spec import elements, or_object


class NesterovOuter(Spec):
    """Nesterov momentum on the averaged pseudo-gradient.

    Args:
        lr: outer learning rate.
        momentum: momentum coefficient.
    """

    kind: Literal["nesterov"] = "nesterov"
    lr: Positive = 0.7
    momentum: Rate = 0.9

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the parameters at the start of the period and of the momentum."""
        return 2 * elements(tensors)

    def build(self) -> optim.OuterOptimizer:
        """Build the outer optimizer from the fields of the spec."""
        return optim.Nesterov(self.lr, self.momentum)


class FedAdamOuter(Spec):
    """Adam on the averaged pseudo-gradient.

    Args:
        lr: outer learning rate.
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
    """

    kind: Literal["fedadam"] = "fedadam"
    lr: Positive = 0.01
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    eps: Positive = 1e-3

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the parameters at the start of the period and of both moments."""
        return 3 * elements(tensors)

    def build(self) -> optim.OuterOptimizer:
        """Build the outer optimizer from the fields of the spec."""
        return optim.FedAdam(self.lr, self.beta1, self.beta2, self.eps)


def _with_kind(value: Any) -> Any:
    """Return the fields of an outer optimizer with their kind, which is ``nesterov`` by default."""
    fields = from_name(value)
    return {"kind": "nesterov", **fields} if isinstance(fields, dict) else fields


OuterSpec = Annotated[
    NesterovOuter | FedAdamOuter, ByKind(), BeforeValidator(_with_kind), or_object("syncline.optim:OuterOptimizer")
]


FragmentExchange = Callable[[str, Sequence[TensorShape]], Exchange | None]
"""A function from the name of a state and a fragment's tensors to the exchange that averages them, or None."""


class StreamSpec(Spec):
    """Streaming of a model: fragments of each state are averaged in turn while the workers train on.

    Args:
        fragments: number of fragments into which each state is cut.
        strides: number of runs of neighbouring parameters in a fragment. With 1, a fragment is contiguous; with more,
            its runs are spread evenly over the depth of the model.
        tau: number of steps between the start of a fragment's average and its merge into the workers' state.
        alpha: weight of the workers' own values when they merge the average, see `optim.Streaming`.
        in_backward: whether each part of a fragment is sent during the backward pass, after its last local step; by
            default, the fragment is sent after the step.
    """

    fragments: int = Field(default=4, ge=1)
    strides: int = Field(default=1, ge=1)
    tau: int = Field(default=1, ge=0)
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    in_backward: bool = False

    def check(self, periods: Iterable[int], clip_norm: float | None) -> None:
        """Raise an error if ``tau`` is not below every period, or if clipped gradients are sent ``in_backward``."""
        if self.tau >= min(periods):
            raise refusal("stream.tau", self.tau, f"less than every period, at most {min(periods) - 1}")
        if self.in_backward and clip_norm is not None:
            expected = "none with stream.in_backward: every layer steps before the gradients below it are there"
            raise refusal("clip_norm", clip_norm, expected)

    def exchanges(
        self, tensors: Sequence[TensorShape], periods: dict[str, int], fragment_exchange: FragmentExchange
    ) -> list[Exchange]:
        """Return an exchange for each state and fragment, with its offset in the period and ``tau`` steps to arrive.

        Args:
            tensors: parameters of the model.
            periods: number of steps between averages, by state.
            fragment_exchange: function that returns the exchange of a fragment of a state, or None for no exchange.
        """
        fragments = model_fragments([tensor.elements for tensor in tensors], self.fragments, self.strides)
        exchanges = []
        for state, period in periods.items():
            for f, fragment in enumerate(fragments):
                exchange = fragment_exchange(state, [tensors[i] for i in fragment.tensors])
                if exchange is not None:
                    offset = f * period // self.fragments  # spreads the traffic evenly over the period
                    exchanges.append(replace(
                        exchange, period=period, label=f"{state} {f + 1}/{self.fragments}", offset=offset,
                        shares_call=False, wait_steps=self.tau, in_backward=self.in_backward,
                        spans=fragment.spans if self.in_backward else (),
                    ))  # fmt: skip
        return exchanges
