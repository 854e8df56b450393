"""DES-LOC: local Adam or ADOPT whose states are averaged as seldom as their half-lives allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from syncline.costmodel import (
    Exchange,
    half_life_period,
)
from syncline.fields import Period, Positive, Rate
from syncline.methods.base import (
    MethodBase,
    Presets,
    Tensors,
    elements,
    tensors_of,
)
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


@register
class DESLOCSpec(MethodBase):
    """DES-LOC: local Adam or ADOPT with periods from half-lives."""

    family: ClassVar[str] = "time scales"
    source: ClassVar[str] = "DES-LOC (Iacob et al., 2025)"
    means_alone: ClassVar[bool] = True

    presets: ClassVar[Presets] = {
        "des-loc": {"lr": 0.003},
        "des-loc-adopt": {"base": "adopt", "lr": 0.003},
    }

    kind: Literal["des-loc"] = "des-loc"
    base: Literal["adam", "adopt"] = "adam"
    beta1: Rate = 0.95
    beta2: Rate | None = None
    eps: Positive | None = None
    period: Period = 32
    momentum_period: Period | None = None
    second_moment_period: Period | None = None

    @property
    @override
    def name(self) -> str:
        return self.label or ("des-loc" if self.base == "adam" else f"des-loc-{self.base}")

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """One exchange per state; those that are due together travel together."""
        return [self._plain(elements(tensors_of(model)), k, state) for state, k in self.periods().items()]

    def periods(self) -> dict[str, int]:
        """K_x, K_u, K_v."""
        beta2 = {"adam": 0.99, "adopt": 0.9999}[self.base] if self.beta2 is None else self.beta2
        return {
            "params": self.period,
            "momentum_1": self.momentum_period or half_life_period(self.beta1, self.period),
            "second_moment": self.second_moment_period or half_life_period(beta2, self.period),
        }

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Both moments."""
        return 2 * elements(tensors_of(model))

    @override
    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        from syncline.optim import DESLOC

        return DESLOC(
            params,
            self.lr,
            base=self.base,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            period=self.period,
            momentum_period=self.momentum_period,
            second_moment_period=self.second_moment_period,
            **self._common(comm, worker_axis),
        )
