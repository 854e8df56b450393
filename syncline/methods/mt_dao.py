"""MT-DAO and DES-LOC, which average momenta of different time scales at different periods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape, half_life_period
from syncline.costmodel.compute.update_work import UpdateWork
from syncline.fields import Period, Positive, Rate, refusal
from syncline.methods.parts.compressors import CompressibleBase
from syncline.methods.parts.diloco import OuterSpec
from syncline.methods.parts.method_spec import MethodBase, Presets, Tensors, elements, tensors_of
from syncline.methods.parts.rules import MomentaFields, multi_momentum_work
from syncline.methods.registry import register


@register
class DESLOCSpec(MethodBase):
    """DES-LOC: local Adam or ADOPT that averages each state at a period of its own, which follows from its half-life.

    Slow states are averaged less often. Workers send ``4 N (1/K_x + 1/K_u + 1/K_v)`` bytes per step for N parameters.

    Args:
        base: ``adam`` or ``adopt``.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment; by default 0.99 for Adam and 0.9999 for ADOPT.
        eps: number added to the root of the second moment (Adam), or its lower bound (ADOPT); by default the base's.
        period: K_x, number of steps between averages of the parameters.
        momentum_period: K_u, number of steps between averages of the momentum; by default from its half-life.
        second_moment_period: K_v, number of steps between averages of the second moment; by default from its half-life.

    Source: Iacob et al. (2025); periods and rates as in MT-DAO, Table 3.
    """

    family = "time scales"
    source = "DES-LOC (Iacob et al., 2025)"
    sends_only_means = True

    presets: ClassVar[Presets] = {"des-loc": {"lr": 0.003}, "des-loc-adopt": {"base": "adopt", "lr": 0.003}}

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
        """Return one exchange per state; states that are due in the same step are sent together."""
        count = elements(tensors_of(model))
        return [self._plain_exchange(count, period, state) for state, period in self.periods().items()]

    @property
    def _beta2(self) -> float:
        """Return the decay rate of the second moment; defaults are from the rows DES-LOC-* of MT-DAO's Table 3."""
        if self.beta2 is not None:
            return self.beta2
        return 0.99 if self.base == "adam" else 0.9999

    def periods(self) -> dict[str, int]:
        """Return the periods K_x, K_u and K_v in steps, by the name of the state."""
        return {
            "params": self.period,
            "momentum_1": self.momentum_period or half_life_period(self.beta1, self.period),
            "second_moment": self.second_moment_period or half_life_period(self._beta2, self.period),
        }

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        return 2 * elements(tensors_of(model))

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        return multi_momentum_work(self.base, omegas=(1.0,), tensors=tensors) + self._step_work(tensors)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        rule = optim.multi_momentum_rule(self.base, betas=(self.beta1,), omegas=(1.0,), beta2=self._beta2, eps=self.eps)
        return optim.Method(params, self.lr, rule, sync=optim.Periodic(self.periods()), **options)


@register
class MTDAOSpec(MomentaFields, CompressibleBase):
    """MT-DAO: local steps with several momenta u_j of the gradient g, each with a weight and a period of averages.

        u_j <- beta_j u_j + (1 - beta_j) g
        x   <- x - lr [(1 - sum omega_j) g + sum omega_j u_j] / (sqrt(v) + eps)

    Parameters x, each momentum and the second moment v are averaged every ``K_x``, ``K_j`` and ``K_v`` steps. Workers
    send ``4 P (1/K_x + sum_j 1/K_j + 1/K_v)`` bytes per step for P parameters. One momentum with ``omega = 1`` is Local
    Adam; ``omega = 0`` has no momentum.

    Args:
        period: K_x, number of steps between averages of the parameters.
        momentum_periods: K_j, number of steps between averages of each momentum; by default K_x.
        second_moment_period: K_v, number of steps between averages of the second moment; by default K_x.
        phase: ``aligned`` averages every state at the end of its period, so that states with equal periods are sent
            together. ``paper`` follows Algorithms 2 and 3: momenta when ``t % K == 0``, parameters when
            ``(t + 1) % K_x == 0``. ``random``, as Algorithm 4, averages each state by itself with probability 1 / K.
        outer_optimizer: outer optimizer that is applied to the averaged parameters; by default, workers adopt the
            average.
        switch_step: number of steps of the base optimizer, with one momentum of decay ``warmup_beta``, before MT-DAO
            starts. With 0, MT-DAO starts at once.
        warmup_beta: decay rate of the momenta before the switch.

    Source: MT-DAO, Algorithms 1 to 4. Algorithm 1 as printed does not use the averages; the form is that of 2 and 3.
    """

    family = "time scales"
    source = "MT-DAO, Algorithms 1 to 3"
    sends_only_means = True

    presets: ClassVar[Presets] = {
        "mt-dao": {"lr": 0.003},
        "mt-dao-adopt": {"base": "adopt", "lr": 0.003},
        "mt-dao-sgdm": {"base": "sgdm", "lr": 0.5},
        "mt-dao-muon": {"base": "muon", "lr": 0.02, "other_lr": 0.003},
        "mt-dao-l1": {"compressor": "lp", "lr": 0.003},
        "mt-dao-top-k": {"compressor": "top-k", "lr": 0.003},
    }

    kind: Literal["mt-dao"] = "mt-dao"
    period: Period = 32
    momentum_periods: tuple[Period, ...] | None = None
    second_moment_period: Period | None = None
    phase: Literal["aligned", "paper", "random"] = "aligned"
    outer_optimizer: OuterSpec | None = None
    switch_step: int = Field(default=0, ge=0)
    warmup_beta: Rate = 0.9

    @model_validator(mode="after")
    def _check_compressor_has_periods(self) -> MTDAOSpec:
        """Raise an error for a compressor if averages are random."""
        if self.phase == "random" and self.compressor:
            raise refusal("compressor", self.compressor.kind, "none with phase random, where no state has a period")
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> MTDAOSpec:
        """Raise an error unless there is a period per momentum, and a momentum to switch to."""
        if self.momentum_periods is not None and len(self.momentum_periods) != len(self.betas):
            raise refusal("momentum_periods", self.momentum_periods, f"one period per beta ({len(self.betas)})")
        if self.switch_step and not self.betas:
            raise refusal("switch_step", self.switch_step, "0 where there is no momentum to switch")
        return self

    @property
    @override
    def name(self) -> str:
        base = "" if self.base == "adam" else f"-{self.base}"
        return self.label or f"mt-dao{base}{self._suffix}"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return one exchange per state; states that are due in the same step are sent together.

        With ``phase: random`` each state is sent by itself, every K steps on average.
        """
        tensors, all_exchanges = tensors_of(model), []
        for state, period in self.periods().items():
            state_tensors = self._tensors_with_state(state, tensors)
            if not state_tensors:
                continue
            if self.phase == "random":
                # Two states that are averaged at random share a call for sure only if both are due in every step.
                count, is_in_every_step = elements(state_tensors), period == 1
                all_exchanges.append(self._plain_exchange(count, period, state, shares_call=is_in_every_step))
            else:
                # ``paper`` averages parameters if (t + 1) % K == 0, and momenta if t % K == 0, one step later.
                offset = 1 if self.phase == "paper" and state != "params" else 0
                all_exchanges += self._average_exchanges(state_tensors, workers, period, label=state, offset=offset)
        return all_exchanges

    @override
    def _compressed_tensors(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Return the shapes of the parameters and of all averaged states."""
        return [tensor for state in self.periods() for tensor in self._tensors_with_state(state, tensors)]

    @override
    def _sent_periods(self) -> Iterable[int]:
        return self.periods().values()

    def state_elements(self, state: str, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of one averaged state, for parameters of these shapes."""
        return elements(self._tensors_with_state(state, tensors))

    def _tensors_with_state(self, state: str, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Return the parameters that have this state; with ``muon`` matrices have no second moment."""
        if state == "second_moment" and self.base == "muon":
            return [tensor for tensor in tensors if not tensor.is_matrix]
        return tensors

    def periods(self) -> dict[str, int]:
        """Return the periods K_x, K_j and K_v in steps, by the name of the state."""
        periods = {"params": self.period}
        for j in range(len(self.betas)):
            periods[f"momentum_{j + 1}"] = self.momentum_periods[j] if self.momentum_periods else self.period
        if self.base != "sgdm":
            periods["second_moment"] = self.second_moment_period or self.period
        return periods

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of averaged states, and of the states of outer optimizer and compressor."""
        tensors = tensors_of(model)
        # Parameters are compressed as differences from a reference, unless an outer optimizer averages differences.
        count = self._compressor_elements(tensors, reference=self.outer_optimizer is None)
        for state in self.periods():
            if state != "params":
                state_tensors = self._tensors_with_state(state, tensors)
                count += elements(state_tensors) + self._compressor_elements(state_tensors, reference=True)
        if self.outer_optimizer:
            count += self.outer_optimizer.state_elements(tensors)
        return count

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the momenta, of their mixture and scaling, and of the step."""
        return multi_momentum_work(self.base, self.omegas, tensors) + self._step_work(tensors)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        rule = self.momenta_rule(switch_step=self.switch_step, warmup_beta=self.warmup_beta)
        sync: optim.SyncPolicy
        if self.phase == "random":
            sync = optim.Random(self.periods())
        elif self.phase == "paper":  # momenta are averaged one step later, see `exchanges`
            sync = optim.Periodic(self.periods(), offsets=dict.fromkeys(rule.states, 1))
        else:
            sync = optim.Periodic(self.periods())
        options |= self._compressor_options()
        return optim.Method(params, self.lr, rule, sync, outer_optimizer=self._outer(), **options)

    def _outer(self) -> optim.OuterOptimizer | None:
        """Return the outer optimizer, or None without one."""
        return self.outer_optimizer.build() if self.outer_optimizer else None
