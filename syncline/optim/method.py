"""The optimizer class of all methods: its step calls rule, reducer, sync policy and outer optimizer in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from inspect import unwrap
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from syncline.acceleration import keep_freed_memory
from syncline.comm import (
    DENSE,
    PLAIN,
    Communicator,
    Details,
    ProcessGroupCommunicator,
    SimulatedCommunicator,
    WireFormat,
    as_own_copies,
    for_rows,
    is_one_copy,
    the_copy,
)
from syncline.errors import SpecError, error_text
from syncline.optim.base import OuterOptimizer, Reducer, Row, SteppingRule, SyncPolicy, UpdateRule
from syncline.optim.compressors import Compressor
from syncline.optim.error_feedback import CompressedAverages
from syncline.optim.groups import (
    PARAMETERS,
    as_list,
    check_gradient,
    check_real,
    checked_knobs,
    joined_groups,
    rules_by_number,
    unzipped,
)
from syncline.optim.sharing import Shared, clip_rows, move, store_states
from syncline.optim.sync import Buffers, BufferSync, EveryStep, Periodic


@dataclass(frozen=True)
class MeanGradient(Reducer):
    """A reducer that averages gradients over the workers in an all-reduce, as data parallelism does.

    Args:
        in_backward: whether a gradient can be sent as soon as it is ready, during the backward pass.
        encoded: whether gradients must be converted to the wire format; false if they are computed in this format.
        is_mean: whether each worker's gradient is the mean already, because the task keeps nothing else. The all-reduce
            is then only noted in the ledger.
    """

    in_backward: bool = False
    encoded: bool = True
    is_mean: bool = False

    @override
    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        """Return the means of the rows' gradients over the workers."""
        details = Details(in_backward=self.in_backward, encoded_bytes=None if self.encoded else 0)
        gradients = [row.g for row in rows]
        if self.is_mean:
            comm.note_mean(gradients, wire, label="gradient", details=details)
            return gradients
        return comm.all_reduce_coalesced(gradients, wire=wire, label="gradient", details=details)


MEAN_GRADIENT = MeanGradient()


AverageHook: TypeAlias = Callable[["Method", list[Row], tuple[str, ...], int], None]
"""A function that is called before an average, with the method, the rows, the names of the states, and the step."""


class Method(torch.optim.Optimizer):
    """An optimizer that combines an update rule, a sync policy, a reducer, an outer optimizer and a wire format.

    One step ``t`` (from 0), for all workers at once:

    1. If ``gradient`` is due, the reducer combines the workers' gradients g, by default to ``mean_m g_m``. Then
       ``g <- g min(1, clip_norm / ||g||)`` for each worker.
    2. The rule computes the direction ``d(g, state, t)``. If ``direction`` is due, the reducer combines the workers'
       directions. Then ``x <- (1 - lr weight_decay) x - lr d``.
    3. All other states that are due are averaged in one call; the outer optimizer gets averaged parameters.

    A subclass changes a step by overriding these methods, which are called in this order:

    - ``rows``: returns the parameters, and creates the states of new ones;
    - ``exchange``: combines the workers' gradients, if ``gradient`` is due;
    - ``directions``: computes directions by the rules;
    - ``exchange_directions``: combines the workers' directions, if ``direction`` is due;
    - ``averaged_rows``: selects the rows to average, if other states are due;
    - ``average``: averages states after the step; it gets no names if none is due;
    - ``buffers_due``: decides how a module's buffers are synchronised, if there are any.

    Args:
        params: parameters or torch's parameter groups. Gradients are expected in ``.grad``.
        lr: learning rate.
        rule: the update rule.
        sync: the sync policy.
        reducer: combines the workers' gradients, or directions, in steps in which they are due.
        outer_optimizer: the outer optimizer; by default, workers adopt averaged parameters.
        weight_decay: coefficient of decoupled weight decay (AdamW's form).
        clip_norm: largest norm of each worker's gradient, over all parameters together; None to not clip.
        wire: number format in which averaged tensors are sent.
        comm: the group of workers; by default ``torch.distributed``'s if initialised, else a single worker.
        worker_axis: whether the parameters' first dimension is the worker axis. An ordinary parameter has none.
        other_lr: learning rate of parameters that are not matrices, if the rule treats matrices differently; by default
            ``lr``.
        compressor: compressor of averages of states with a period, see ``CompressedAverages``; by default, states
            are sent uncompressed.
        error_feedback: whether the part that the compressor leaves out is sent later.
        averages: details of the averages of states with a period, for the ledger.

    Raises:
        SpecError: a value is out of range, the policy names a state that the rule does not have, or a compressor is
            given although no state has a period.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        rule: UpdateRule,
        sync: SyncPolicy,
        *,
        reducer: Reducer = MEAN_GRADIENT,
        outer_optimizer: OuterOptimizer | None = None,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        wire: WireFormat = DENSE,
        comm: Communicator | None = None,
        worker_axis: bool = False,
        other_lr: float | None = None,
        compressor: Compressor | None = None,
        error_feedback: bool = True,
        averages: Details = PLAIN,
    ) -> None:
        """Check that the parts fit together; states are created in the first step."""
        if comm is not None and not isinstance(comm, Communicator):
            raise SpecError("comm", comm, "a communicator, as those in syncline.comm")
        if not isinstance(worker_axis, bool):
            raise SpecError("worker_axis", worker_axis, "true or false")
        if not lr >= 0:
            raise SpecError("lr", lr, "a number >= 0")
        if not weight_decay >= 0:
            raise SpecError("weight_decay", weight_decay, "a number >= 0")
        if clip_norm is not None and not clip_norm > 0:
            raise SpecError("clip_norm", clip_norm, "a number > 0, or none")
        moving = () if isinstance(rule, SteppingRule) else ("direction",)
        sync.check(("gradient", *moving, "params", *rule.states))
        self.rule, self.sync, self.reducer, self.outer_optimizer, self.wire = rule, sync, reducer, outer_optimizer, wire
        self.clip_norm, self.worker_axis, self.details = clip_norm, worker_axis, averages
        self.buffers: Buffers | None = None  # a training of a module with buffers sets it
        self.on_average: AverageHook | None = None  # a training that measures sets it
        if comm is None:  # a worker per process, or a single worker
            is_distributed = dist.is_available() and dist.is_initialized()
            comm = ProcessGroupCommunicator() if is_distributed else SimulatedCommunicator(1)
        self.comm = comm
        self.seeds: tuple[int, ...] = ()  # one per replica; a training sets them
        self._compressed = None if compressor is None else self._averages(compressor, error_feedback)
        self._rules: list[tuple[UpdateRule, bool]] = []  # of each parameter by number, see ``rules_by_number``
        self._shared = Shared()
        keep_freed_memory()
        self._shares: bool | None = None  # whether equal workers are one copy; the next step decides
        self._other_lr = other_lr
        knobs = reducer.hyperparameters() | (outer_optimizer.hyperparameters() if outer_optimizer else {})
        super().__init__(as_list(params), {"lr": lr, "weight_decay": weight_decay, "step": 0, **knobs})
        self._steppers = rule.steppers(self, worker_axis) if isinstance(rule, SteppingRule) else None
        for name in ("betas", "momentum"):  # torch's schedulers that cycle a momentum look for it in the defaults
            if all(group.get(name) for group in self.param_groups):
                self.defaults[name] = self.param_groups[0][name]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as in torch; a rule that treats matrices differently may split it into two parts."""
        fallback = {"lr": self.defaults["lr"], "other_lr": self._other_lr}
        group = {**fallback, **param_group, **unzipped(param_group["params"])}
        check_real(group, len(self._rules))
        parts = self.rule.parts(group, int(self.worker_axis))
        if not parts:
            return
        for _, part in parts:
            part.pop("other_lr")
        joined = joined_groups([checked_knobs(rule, part) for rule, part in parts])
        try:
            # Torch's decorator, which is unwrapped here, would import torch's compiler, which takes a second.
            unwrap(torch.optim.Optimizer.add_param_group)(self, joined)
        except (TypeError, ValueError) as error:
            raise SpecError("params", joined["params"], f"{PARAMETERS} ({error_text(error)})") from None
        self._rules += [(rule, i > 0) for i, (rule, part) in enumerate(parts) for _ in part["params"]]
        self._shares = None

    def _averages(self, compressor: Compressor, error_feedback: bool) -> CompressedAverages:
        """Return the averages through a compressor, after a check that the other options allow a compressor."""
        if not isinstance(self.sync, Periodic):
            expected = "none where no state has a period; for gradients there is the reducer CompressedMean"
            raise SpecError("compressor", compressor, expected)
        if self.wire != DENSE:
            raise SpecError("wire", self.wire, "dense beside a compressor, which itself says what travels")
        compressor.check(self.comm.world_size)
        return CompressedAverages(compressor, error_feedback)

    @property
    def steps_done(self) -> int:
        """Return the number of steps taken, which ``state_dict`` stores in the parameter groups."""
        return self.param_groups[0]["step"]

    @property
    def names(self) -> list[str]:
        """Return the parameters' names by number; a name is empty if the user passed no names."""
        groups = self.param_groups
        return [name for group in groups for name in group.get("param_names", [""] * len(group["params"]))]

    def rows(self, *, without_gradient: bool = False) -> list[Row]:
        """Return a row for each nonempty parameter that has a gradient, and create the states of new parameters.

        With ``without_gradient``, rows of parameters without a gradient in this step are included. Their ``g`` has no
        meaning.
        """
        rows = []
        for index, (p, rule, group) in enumerate(rules_by_number(self.param_groups, self._rules)):
            if (p.grad is None and not (without_gradient and p.requires_grad)) or not p.numel():
                continue
            gradient = p if p.grad is None else p.grad
            check_gradient(gradient, index, lambda: self.names)
            x, g = (p, gradient) if self.worker_axis else (p.unsqueeze(0), gradient.unsqueeze(0))
            state = self.state[p]
            if not state:
                new_state = rule.init(the_copy(x) if is_one_copy(x) else x, index)
                self._shared.state_names[index] = tuple(new_state)
                state.update({name: for_rows(value, len(x)) for name, value in new_state.items()})
                state.update(self.reducer.init(x, index))
                if self.outer_optimizer:
                    state.update(self.outer_optimizer.init(x))
                if self._compressed:
                    state.update(self._references(self._compressed, x, state, rule))
            rows.append(Row(x, g, state, group, rule, number=index))
        return rows

    @property
    def keeps_workers_equal(self) -> bool:
        """Return whether workers that start equal stay equal, because all take the same steps.

        The method then stores one copy of their parameters.
        """
        return isinstance(self.sync, EveryStep) and not isinstance(self.rule, SteppingRule)

    @property
    def stores_one_copy(self) -> bool:
        """Return whether parameters and states of all simulated workers are stored once, see `keeps_workers_equal`.

        Replicas differ because they are separate trainings; absent workers differ because they do not move.
        """
        may_differ = self.comm.replicas > 1 or getattr(self.comm, "membership", None) is not None
        has_several_workers = self.worker_axis and len(self.comm.local_workers) > 1
        return has_several_workers and self.keeps_workers_equal and not may_differ

    @property
    def reads_only_mean(self) -> bool:
        """Return whether the method reads nothing of the simulated workers' gradients but their mean."""
        kind = type(self)
        return (
            isinstance(self.comm, SimulatedCommunicator)
            and isinstance(self.reducer, MeanGradient)
            and self.stores_one_copy
            and self.wire.exact_dtype
            and kind.exchange is Method.exchange
            and kind.rows is Method.rows
        )

    def use_mean_of(self, keep_mean_gradient: Callable[[], bool]) -> None:
        """Let the task keep only the mean of the workers' gradients, if this method reads nothing else of them.

        Args:
            keep_mean_gradient: asks the task; returns whether it does.
        """
        if self.reads_only_mean and keep_mean_gradient():
            assert isinstance(self.reducer, MeanGradient)
            self.reducer = replace(self.reducer, is_mean=True)

    def _share(self) -> None:
        """Store parameters and states that are, and stay, equal on all workers a single time for all workers."""
        self._shares = self.stores_one_copy
        if not self._shares:
            return
        for index, (p, rule, _) in enumerate(rules_by_number(self.param_groups, self._rules)):
            if p.numel():
                self._shared.join(index, p, self.state[p], rule)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch optimizers do; tensors that are equal on all workers are stored once again."""
        super().load_state_dict(state_dict)
        self._shares = None

    def buffers_due(self, t: int) -> BufferSync:
        """Return how a module's buffers are synchronised after step ``t``.

        The result is "broadcast" if gradients or directions are exchanged in this step, "mean" if parameters are
        averaged, and "none" otherwise.
        """
        due_names = self.sync.due(t)
        return (
            "broadcast"
            if "gradient" in due_names or "direction" in due_names
            else "mean"
            if "params" in due_names
            else "none"
        )

    def _references(
        self, compressed: CompressedAverages, x: Tensor, state: dict[str, Tensor], rule: UpdateRule
    ) -> dict[str, Tensor]:
        """Return the reference and error tensors of a parameter and of its averaged states."""
        assert isinstance(self.sync, Periodic)
        references: dict[str, Tensor] = {}
        for name in self.sync.periods:
            if name == "params":
                references |= compressed.init(name, x, has_reference=self.outer_optimizer is None)
            elif name in rule.states:
                references |= compressed.init(name, state[name], has_reference=True)
        return references

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, and return the result of ``closure``, or None without a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._shares is None:
            self._share()
        t = self.comm.ledger.step = self.steps_done
        rows, due_names = self.rows(), self.sync.due(t)
        if "gradient" in due_names and rows:
            rows = self.exchange(rows, t)
        if self.clip_norm is not None:
            rows = clip_rows(rows, self.clip_norm)
        directions = self.directions(rows, t)
        if "direction" in due_names:
            directions = self.exchange_directions(rows, directions, t)
        move(rows, directions)
        names = tuple(name for name in due_names if name not in ("gradient", "direction"))
        averaged = self.averaged_rows(rows) if names else rows
        if self.on_average is not None and names:
            self.on_average(self, averaged, names, t)
        self.average(averaged, names)
        if self.buffers is not None:
            self.buffers.synchronise(self.buffers_due(t))
        for group in self.param_groups:
            group["step"] += 1
        return loss

    def exchange(self, rows: list[Row], t: int) -> list[Row]:
        """Combine the workers' gradients; return the rows with the results, without rows that rest in this step."""
        reduced = self.reducer.reduce(rows, self.comm, self.wire, t)
        return [row._replace(g=g) for row, g in zip(rows, reduced, strict=True) if g is not None]

    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        """Compute each parameter's direction by its rule, ``(R, *s)``, or ``(1, *s)`` if it is equal on all workers.

        A direction is None if the parameter does not move in this step, or if its rule has moved it already.
        """
        directions: list[Tensor | None] = [None] * len(rows)
        if self._steppers:
            self._steppers.step(rows)
            return directions

        rule_rows = [self._shared.for_rule(row) for row in rows] if self._shares else rows
        indices_by_rule: dict[int, list[int]] = {}
        for index, row in enumerate(rule_rows):
            indices_by_rule.setdefault(id(row.rule), []).append(index)
        may_move = "direction" not in self.sync.due(t)
        for indices in indices_by_rule.values():
            group_rows = [rule_rows[index] for index in indices]
            rule = group_rows[0].rule
            # ``isinstance`` with a protocol would take as long as the step of a small parameter.
            move_rows: Callable[[list[Row], int], bool] | None = getattr(rule, "move", None)
            if move_rows and may_move and move_rows(group_rows, t):
                continue
            batched: Callable[[list[Row], int], list[Tensor | None]] | None = getattr(rule, "directions", None)
            if batched:
                group_directions = batched(group_rows, t)
            else:
                group_directions = [rule.direction(row.g, row.state, row.group, t) for row in group_rows]
            for index, d in zip(indices, group_directions, strict=True):
                directions[index] = d
        for row, rule_row in zip(rows, rule_rows, strict=True):
            if rule_row is not row:
                store_states(row, rule_row)
        return directions

    def trace(self) -> dict[str, Tensor]:
        """Return diagnostics of the last step by name, each ``(R,)`` and equal on all workers; by default none."""
        return {}

    def adopt(self, place: int, source: int) -> None:
        """Copy all state of row ``source`` that is not a tensor of the method to row ``place`` of the worker axis."""
        if self._steppers:
            self._steppers.adopt(place, source)

    def exchange_directions(self, rows: list[Row], directions: list[Tensor | None], t: int) -> list[Tensor | None]:
        """Combine the workers' directions; return the replacement of each direction, None for rows without one."""
        moving_rows = [
            row._replace(g=for_rows(d, len(row.x))) for row, d in zip(rows, directions, strict=True) if d is not None
        ]
        combined = iter(self.reducer.reduce(moving_rows, self.comm, self.wire, t) if moving_rows else [])
        return [None if d is None else next(combined) for d in directions]

    def averaged_rows(self, rows: list[Row]) -> list[Row]:
        """Return the rows to average; they include parameters without a gradient in this step."""
        return self.rows(without_gradient=True)

    def average(self, rows: list[Row], names: tuple[str, ...]) -> None:
        """Average the states ``names`` of rows in a single call; the outer optimizer gets the mean of ``params``."""
        due_states: list[tuple[str, Row]] = []
        for name in names:
            # A state is averaged only for the parameters whose rule has it; all parameters have ``params``.
            due_states += [
                (name, row) for row in rows if name == "params" or (name in row.rule.states and name in row.state)
            ]
        if not due_states:
            return
        payloads = [self._payload(row, name) for name, row in due_states]
        label = "+".join(names)
        if self._compressed:
            averages = self._compressed.means(due_states, payloads, self.comm, self.steps_done, label)
        else:
            averages = self.comm.all_reduce_coalesced(payloads, wire=self.wire, label=label, details=self.details)
        for (name, row), average in zip(due_states, averages, strict=True):
            if name != "params":
                row.state[name] = as_own_copies(row.state[name]).copy_(average)
            elif self.outer_optimizer:
                self.outer_optimizer.absorb(row.x, average, row.state, row.group)
            else:
                row.x.copy_(average)
        if self._compressed:
            self._compressed.mend({row.number: row for _, row in due_states}.values(), self.steps_done)

    def _payload(self, row: Row, name: str) -> Tensor:
        """Return the tensor to send when a state of a row is averaged: the outer optimizer's payload for ``params``."""
        if name != "params":
            return row.state[name]
        return self.outer_optimizer.payload(row.x, row.state) if self.outer_optimizer else row.x
