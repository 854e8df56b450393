"""DES-LOC: local Adam or ADOPT whose states are averaged as seldom as their half-lives allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, half_life_period
from syncline.fields import Period, Positive, Rate
from syncline.methods.constructor import constructor
from syncline.methods.parts.method_spec import MethodBase, Presets, Tensors, elements, tensors_of
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator


@register
class DESLOCSpec(MethodBase):
    """DES-LOC: local Adam or ADOPT with periods from half-lives.

    A state that changes slowly need not be averaged often. What travels:
    ``4 N (1/K_x + 1/K_u + 1/K_v)`` bytes per step.

    Args:
        base: ``adam`` or ``adopt``.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment; by default 0.99 for Adam and 0.9999 for ADOPT.
        period: K_x, number of steps between averages of the parameters.
        momentum_period: K_u, number of steps between averages of the momentum; by default from its half-life.
        second_moment_period: K_v, number of steps between averages of the second moment; by default from its half-life.

    Source: Iacob et al. (2025); periods and rates as in MT-DAO, Table 3.
    """

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

    @property
    @override
    def same_for_any_group(self) -> bool:
        return True

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return one exchange per state; those that are due together travel together."""
        return [self._plain(elements(tensors_of(model)), k, state) for state, k in self.periods().items()]

    @property
    def _beta2(self) -> float:
        """Return the decay rate of the second moment; the default is from rows DES-LOC-* of MT-DAO's Table 3."""
        return {"adam": 0.99, "adopt": 0.9999}[self.base] if self.beta2 is None else self.beta2

    def periods(self) -> dict[str, int]:
        """Return the periods K_x, K_u and K_v in steps."""
        return {
            "params": self.period,
            "momentum_1": self.momentum_period or half_life_period(self.beta1, self.period),
            "second_moment": self.second_moment_period or half_life_period(self._beta2, self.period),
        }

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of both moments."""
        return 2 * elements(tensors_of(model))

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        rule = optim.multi_momentum_rule(self.base, (self.beta1,), (1.0,), beta2=self._beta2, eps=self.eps)
        return optim.Method(
            params, self.lr, rule, optim.Periodic(self.periods()), **self.common_options(comm, worker_axis)
        )


DESLOC = constructor(DESLOCSpec)
