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
    expand_rows,
    rows_share_memory,
    separate_rows,
    shared_row,
)
from syncline.errors import SpecError, error_text
from syncline.optim import groups
from syncline.optim.base import OuterOptimizer, ParamRow, Reducer, SteppingRule, SyncPolicy, UpdateRule
from syncline.optim.compressors import Compressor
from syncline.optim.error_feedback import CompressedAverages
from syncline.optim.sharing import SharedRows, apply_directions, clip_gradients, store_states
from syncline.optim.sync import Buffers, BufferSync, EveryStep, Periodic


@dataclass(frozen=True)
class MeanGradient(Reducer):
    """A reducer that averages gradients over the workers in an all-reduce, as data parallelism does.

    Args:
        in_backward: whether a gradient can be sent as soon as it is ready, during the backward pass.
        encoded: whether gradients must be converted to the wire format; false if they are computed in this format.
        is_mean: whether each worker's gradient is already the mean over the workers, because the task computes only
            this mean. The all-reduce is then only recorded in the ledger.
    """

    in_backward: bool = False
    encoded: bool = True
    is_mean: bool = False

    @override
    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        # By default, the communicator counts the bytes that the wire format encodes.
        details = Details(in_backward=self.in_backward, encoded_bytes=None if self.encoded else 0)
        gradients = [row.g for row in rows]
        if self.is_mean:  # only record the all-reduce
            comm.record_mean(gradients, wire, label="gradient", details=details)
            return gradients
        return comm.all_reduce_coalesced(gradients, wire=wire, label="gradient", details=details)


MEAN_GRADIENT = MeanGradient()


AverageHook: TypeAlias = Callable[["Method", list[ParamRow], tuple[str, ...], int], None]
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
    - ``exchange_gradients``: combines the workers' gradients, if ``gradient`` is due;
    - ``directions``: computes directions by the rules;
    - ``exchange_directions``: combines the workers' directions, if ``direction`` is due;
    - ``rows_to_average``: selects the rows to average, if other states are due;
    - ``average_states``: averages states after the step; it gets no names if none is due;
    - ``buffer_sync``: decides how a module's buffers are synchronised, if there are any.

    Args:
        params: parameters or torch's parameter groups. Gradients are expected in ``.grad``.
        reducer: combines the workers' gradients, or directions, in steps in which they are due.
        outer_optimizer: the outer optimizer; by default, workers adopt averaged parameters.
        weight_decay: coefficient of decoupled weight decay (AdamW's form).
        clip_norm: largest norm of each worker's gradient, over all parameters together; None to not clip.
        wire: number format in which averaged tensors are sent.
        comm: the group of workers; by default ``torch.distributed``'s if initialised, else a single worker.
        worker_axis: whether the parameters' first dimension is the worker axis. An ordinary parameter has none.
        other_lr: learning rate of parameters that are not matrices, if the rule treats matrices differently; by default
            ``lr``.
        compressor: compressor of periodic averages, see ``CompressedAverages``; by default none.
        error_feedback: whether workers send later what the compressor left out.
        averages: details of periodic averages, for the ledger.

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
        available_states = ["gradient", "params", *rule.states]
        if not isinstance(rule, SteppingRule):  # a stepping rule returns no directions
            available_states.insert(1, "direction")
        sync.check(tuple(available_states))
        self.rule, self.sync, self.reducer, self.outer_optimizer, self.wire = rule, sync, reducer, outer_optimizer, wire
        self.clip_norm, self.worker_axis, self.details = clip_norm, worker_axis, averages
        self.buffers: Buffers | None = None  # a training of a module with buffers sets it
        self.on_average: AverageHook | None = None  # a training that measures sets it
        if comm is None:  # one worker per process, or a single worker
            is_distributed = dist.is_available() and dist.is_initialized()
            comm = ProcessGroupCommunicator() if is_distributed else SimulatedCommunicator(workers=1)
        self.comm = comm
        self.seeds: tuple[int, ...] = ()  # one per replica; a training sets them
        self._compressed = None if compressor is None else self._compressed_averages(compressor, error_feedback)
        # For each parameter, its rule, and whether it is the rule of parameters that are not matrices.
        self._rules: list[tuple[UpdateRule, bool]] = []
        self._shared = SharedRows()
        keep_freed_memory()  # large tensors are freed and allocated again in every step
        self._shares_rows: bool | None = None  # whether equal workers share memory; the next step decides
        self._other_lr = other_lr
        defaults = {"lr": lr, "weight_decay": weight_decay, "step": 0, **reducer.hyperparameters()}
        if outer_optimizer:
            defaults |= outer_optimizer.hyperparameters()
        super().__init__(groups.as_list(params), defaults)
        self._steppers = rule.steppers(self, worker_axis) if isinstance(rule, SteppingRule) else None
        for name in ("betas", "momentum"):  # torch's cyclic schedulers read the defaults
            if all(group.get(name) for group in self.param_groups):
                self.defaults[name] = self.param_groups[0][name]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as in torch; a rule that treats matrices differently may split it into two parts."""
        group = {"lr": self.defaults["lr"], "other_lr": self._other_lr} | param_group
        group |= groups.split_names(param_group["params"])
        groups.check_real(group, first_index=len(self._rules))
        rules_and_groups = self.rule.split_group(group, worker_axes=int(self.worker_axis))
        if not rules_and_groups:  # the group has no parameters
            return
        rule_groups = []
        rules: list[tuple[UpdateRule, bool]] = []
        for index, (rule, rule_group) in enumerate(rules_and_groups):
            del rule_group["other_lr"]  # ``split_group`` has used it
            rule_groups.append(groups.checked_hyperparameters(rule, rule_group))
            is_other_rule = index > 0  # the first part of a split group has the matrices
            rules += [(rule, is_other_rule)] * len(rule_group["params"])
        torch_group = groups.join_groups(rule_groups)  # one group, so that a scheduler changes both parts
        try:
            # Torch's decorator would take a second to import torch's compiler.
            unwrap(torch.optim.Optimizer.add_param_group)(self, torch_group)
        except (TypeError, ValueError) as error:
            raise SpecError(
                "params", torch_group["params"], f"{groups.EXPECTED_PARAMS} ({error_text(error)})"
            ) from None
        self._rules += rules
        self._shares_rows = None  # the next step decides whether the workers share one copy of the new parameters

    def _compressed_averages(self, compressor: Compressor, error_feedback: bool) -> CompressedAverages:
        """Return the averages of states that are sent through a compressor; refuse options that contradict it."""
        if not isinstance(self.sync, Periodic):
            expected = "none where no state has a period; for gradients there is the reducer CompressedMean"
            raise SpecError("compressor", compressor, expected)
        if self.wire != DENSE:
            raise SpecError("wire", self.wire, "dense with a compressor, which has its own format")
        compressor.check(self.comm.world_size)
        return CompressedAverages(compressor, error_feedback)

    @property
    def steps_done(self) -> int:
        """Return the number of steps taken, from the parameter groups, where ``state_dict`` stores it."""
        return self.param_groups[0]["step"]

    @property
    def names(self) -> list[str]:
        """Return the name of each parameter, in order; names are empty if the user passed no names."""
        names: list[str] = []
        for group in self.param_groups:
            names += group.get("param_names", [""] * len(group["params"]))
        return names

    def rows(self, *, without_gradient: bool = False) -> list[ParamRow]:
        """Return a row for each nonempty parameter that has a gradient, and create the states of new parameters.

        With ``without_gradient``, the result includes trainable parameters that have no gradient in this step. Their
        ``g`` has no meaning.
        """
        rows = []
        for param_index, (p, rule, group) in enumerate(groups.iterate_params(self.param_groups, self._rules)):
            has_gradient = p.grad is not None
            is_included = has_gradient or (without_gradient and p.requires_grad)
            if not is_included or not p.numel():
                continue
            gradient = p.grad if has_gradient else p  # a placeholder of the same shape
            groups.check_gradient(gradient, param_index, names=lambda: self.names)
            x, g = (p, gradient) if self.worker_axis else (p.unsqueeze(0), gradient.unsqueeze(0))
            state = self.state[p]
            if not state:
                self._create_states(state, x, rule, param_index)
            rows.append(ParamRow(x, g, state, group, rule, param_index))
        return rows

    def _create_states(self, state: dict[str, Tensor], x: Tensor, rule: UpdateRule, param_index: int) -> None:
        """Fill the empty ``state`` of a parameter ``x (R, *s)`` with the initial tensors of the method's parts."""
        # If workers share one copy of a parameter, they share its states, too.
        stored_x = shared_row(x) if rows_share_memory(x) else x
        rule_states = rule.init(stored_x, param_index)
        self._shared.state_names[param_index] = tuple(rule_states)
        for name, tensor in rule_states.items():
            state[name] = expand_rows(tensor, num_rows=len(x))
        state.update(self.reducer.init(x, param_index))
        if self.outer_optimizer:
            state.update(self.outer_optimizer.init(x))
        if self._compressed is None:
            return
        assert isinstance(self.sync, Periodic)  # the constructor refuses a compressor with another policy
        for name in self.sync.periods:
            if name == "params":
                # The pseudo-gradients of an outer optimizer are differences already.
                state.update(self._compressed.init(name, x, has_reference=self.outer_optimizer is None))
            elif name in rule.states:
                state.update(self._compressed.init(name, state[name], has_reference=True))

    @property
    def keeps_workers_equal(self) -> bool:
        """Return whether workers that start equal stay equal, because all take the same steps.

        The method then stores one copy of their parameters.
        """
        return isinstance(self.sync, EveryStep) and not isinstance(self.rule, SteppingRule)

    @property
    def stores_one_copy(self) -> bool:
        """Return whether parameters and states are stored once for all simulated workers, because they stay equal.

        Replicas differ because they are separate trainings; absent workers differ because they do not move.
        """
        may_differ = self.comm.replicas > 1 or getattr(self.comm, "membership", None) is not None
        has_several_workers = self.worker_axis and len(self.comm.local_workers) > 1
        return has_several_workers and self.keeps_workers_equal and not may_differ

    @property
    def reads_only_mean_gradient(self) -> bool:
        """Return whether the method reads nothing of the simulated workers' gradients but their mean."""
        cls = type(self)  # a subclass could read gradients in these two functions
        overrides_steps = cls.exchange_gradients is not Method.exchange_gradients or cls.rows is not Method.rows
        averages_exactly = isinstance(self.reducer, MeanGradient) and self.wire.exact_dtype
        is_simulated = isinstance(self.comm, SimulatedCommunicator) and self.stores_one_copy
        return is_simulated and averages_exactly and not overrides_steps

    def keep_only_mean_gradient(self, keep_mean_gradient: Callable[[], bool]) -> None:
        """Let a task store only the mean of the workers' gradients, if this method reads nothing else of them.

        Args:
            keep_mean_gradient: function that makes the task store only the mean, and returns whether it could.
        """
        if self.reads_only_mean_gradient and keep_mean_gradient():
            assert isinstance(self.reducer, MeanGradient)
            self.reducer = replace(self.reducer, is_mean=True)

    def _store_equal_rows_once(self) -> None:
        """Store parameters and states once for all workers, if the workers stay equal."""
        self._shares_rows = self.stores_one_copy
        if not self._shares_rows:
            return
        for param_index, (p, rule, _hyperparameters) in enumerate(
            groups.iterate_params(self.param_groups, self._rules)
        ):
            if p.numel():
                self._shared.share_param(param_index, p, self.state[p], rule)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: all attributes, of which torch's optimizers copy only parameter groups and states.

        A scheduler replaces ``step`` by a function that steps this optimizer, so that a copy must not have it. The next
        step of a copy stores equal tensors once again.
        """
        return {name: value for name, value in vars(self).items() if name != "step"} | {"_shares_rows": None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch optimizers do; the next step stores equal tensors once again."""
        super().load_state_dict(state_dict)
        self._shares_rows = None  # torch has loaded a copy for each worker

    def buffer_sync(self, t: int) -> BufferSync:
        """Return how a module's buffers are synchronised after step ``t``.

        The result is "broadcast" (from worker 0, as in torch's data parallelism) if gradients or directions are
        exchanged in this step, "mean" if parameters are averaged, and "none" otherwise.
        """
        states_due = self.sync.states_due(t)
        if "gradient" in states_due or "direction" in states_due:
            return "broadcast"
        return "mean" if "params" in states_due else "none"

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, and return the result of ``closure``, or None without a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._shares_rows is None:
            self._store_equal_rows_once()
        t = self.steps_done
        self.comm.ledger.step = t
        rows = self.rows()
        states_due = self.sync.states_due(t)

        # Combine the workers' gradients.
        if "gradient" in states_due:
            rows = self.exchange_gradients(rows, t)
        if self.clip_norm is not None:
            rows = clip_gradients(rows, self.clip_norm)

        # Move the parameters.
        directions = self.directions(rows, t)
        if "direction" in states_due:
            directions = self.exchange_directions(rows, directions, t)
        apply_directions(rows, directions)

        # Average parameters and states.
        names = tuple(name for name in states_due if name not in ("gradient", "direction"))
        averaged_rows = self.rows_to_average(rows) if names else rows
        if self.on_average is not None and names:
            self.on_average(self, averaged_rows, names, t)
        self.average_states(averaged_rows, names)  # subclasses may act in every step
        if self.buffers is not None:
            self.buffers.synchronise(self.buffer_sync(t))
        for group in self.param_groups:
            group["step"] += 1
        return loss

    def exchange_gradients(self, rows: list[ParamRow], t: int) -> list[ParamRow]:
        """Combine the workers' gradients; return the rows with the results, without parameters that do not move.

        There are no rows in a step in which no parameter has a gradient.
        """
        if not rows:
            return rows
        reduced = self.reducer.reduce(rows, self.comm, self.wire, t)
        return [row._replace(g=g) for row, g in zip(rows, reduced, strict=True) if g is not None]

    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Compute each parameter's direction by its rule, ``(R, *s)``, or ``(1, *s)`` if it is equal on all workers.

        A direction is None if the parameter does not move in this step, or if its rule has moved it already.
        """
        directions: list[Tensor | None] = [None] * len(rows)
        if self._steppers:
            self._steppers.step(rows)
            return directions

        rule_rows = [self._shared.row_for_rule(row) for row in rows] if self._shares_rows else rows
        # Each rule gets all of its parameters together, because some rules compute several at once.
        indices_by_rule: dict[int, list[int]] = {}
        for index, row in enumerate(rule_rows):
            indices_by_rule.setdefault(id(row.rule), []).append(index)
        exchanges_directions = "direction" in self.sync.states_due(t)  # a fused step would move parameters too early
        for indices in indices_by_rule.values():
            same_rule_rows = [rule_rows[index] for index in indices]
            # For ``fused_step`` and ``directions`` see `UpdateRule`.
            rule: Any = same_rule_rows[0].rule
            if hasattr(rule, "fused_step") and not exchanges_directions and rule.fused_step(same_rule_rows, t):
                continue
            if hasattr(rule, "directions"):
                rule_directions = rule.directions(same_rule_rows, t)
            else:
                rule_directions = [rule.direction(row.g, row.state, row.group, t) for row in same_rule_rows]
            for index, direction in zip(indices, rule_directions, strict=True):
                directions[index] = direction
        for row, rule_row in zip(rows, rule_rows, strict=True):
            if rule_row is not row:  # the rule worked on the row that all workers share
                store_states(row, rule_row)
        return directions

    def trace(self) -> dict[str, Tensor]:
        """Return diagnostics of the last step by name, each ``(R,)`` and equal on all workers; by default none."""
        return {}

    def copy_private_state(self, source_row: int, target_row: int) -> None:
        """Copy one worker's state outside the method's tensors, such as step counters, to the row of another worker."""
        if self._steppers:
            self._steppers.copy_private_state(source_row, target_row)

    def exchange_directions(self, rows: list[ParamRow], directions: list[Tensor | None], t: int) -> list[Tensor | None]:
        """Combine the workers' directions; return a replacement for each direction, and None for each None."""
        moving_rows = []
        for row, d in zip(rows, directions, strict=True):
            if d is not None:
                # A reducer combines the field ``g`` of rows: put the directions there.
                moving_rows.append(row._replace(g=expand_rows(d, num_rows=len(row.x))))
        if not moving_rows:
            return directions
        combined = iter(self.reducer.reduce(moving_rows, self.comm, self.wire, t))
        return [None if d is None else next(combined) for d in directions]

    def rows_to_average(self, rows: list[ParamRow]) -> list[ParamRow]:
        """Return the rows of all parameters, also of those without a gradient in this step."""
        return self.rows(without_gradient=True)

    def average_states(self, rows: list[ParamRow], names: tuple[str, ...]) -> None:
        """Average the states ``names`` of rows in a single call; the outer optimizer gets the mean of ``params``."""
        due_states: list[tuple[str, ParamRow]] = []
        tensors: list[Tensor] = []
        for name in names:
            for row in rows:
                tensor = self._tensor_to_average(row, name)
                if tensor is not None:
                    due_states.append((name, row))
                    tensors.append(tensor)
        if not due_states:
            return
        label = "+".join(names)
        if self._compressed:
            averages = self._compressed.means(due_states, tensors, self.comm, self.steps_done, label)
        else:
            averages = self.comm.all_reduce_coalesced(tensors, wire=self.wire, label=label, details=self.details)
        for (name, row), average in zip(due_states, averages, strict=True):
            if name in row.state:
                # Averages of replicas differ: give workers that share the memory of a state separate memory.
                row.state[name] = separate_rows(row.state[name]).copy_(average)
            elif name != "params":  # the torch optimizer will create this state
                continue
            elif self.outer_optimizer:
                self.outer_optimizer.apply_average(row.x, average, row.state, row.group)
            else:
                row.x.copy_(average)
        if self._compressed:  # compression can make second moments too small
            averaged_rows = {row.param_index: row for _, row in due_states}  # each parameter once
            self._compressed.raise_to_lower_bounds(averaged_rows.values(), self.steps_done)

    def _tensor_to_average(self, row: ParamRow, name: str) -> Tensor | None:
        """Return the tensor to average for a state, or None if the parameter's rule does not have the state.

        For ``params`` it is an outer optimizer's payload if there is one. A torch optimizer creates its states at a
        parameter's first gradient: until then a worker sends zeros, because other workers may have the states.
        """
        if name == "params":
            return self.outer_optimizer.payload(row.x, row.state) if self.outer_optimizer else row.x
        if name not in row.rule.states:  # the rule of matrices or that of other parameters may lack it
            return None
        if name not in row.state and self._steppers:
            zeros: Tensor | None = self._steppers.zero_state(row, name)
            return zeros
        return row.state[name]
