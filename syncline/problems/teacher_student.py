"""Teacher and student: a small network learns the function of another one, with heavy-tailed gradient noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from syncline.errors import SpecError
from syncline.problems.base import Rows, check_sizes
from syncline.problems.digits import uniform_weights
from syncline.problems.network import Execution, gradient_function, parameter_count, shape_only, with_autocast
from syncline.problems.random_draws import StepStream, gaussian, stable, torch_generator

VALIDATION_INPUTS = 2048
"""Number of inputs of an evaluation."""

TEACHER_SEED = 0
"""Seed of the teacher and of the inputs of evaluations, the same for all seeds of a training."""


@dataclass(frozen=True, kw_only=True)
class TeacherStudent:
    """An MLP with one hidden layer of ReLUs learns a random MLP of the same shape, under alpha-stable gradient noise.

    Each worker draws new inputs from N(0, I) in each step, and takes the stochastic gradient::

        g = grad mean((student(x) - teacher(x))^2) + noise_scale * S

    with a draw of S for each parameter, worker and step from the symmetric law ``E exp(i t S) = exp(-|t|^alpha)``. The
    teacher and the inputs of an evaluation are the same for all seeds. On these inputs each output of the teacher has
    mean 0 and variance 1, so that a constant has a loss of 1, and the teacher a loss of 0.

    Args:
        inputs: number of inputs of both networks.
        hidden: width of the hidden layer of both networks.
        outputs: number of outputs of both networks.
        batch_size: number of inputs per worker and step.
        alpha: index of stability of the noise, in (0, 2]. With 2 it is gaussian with variance ``2 noise_scale^2``, with
            1 it is Cauchy; a smaller index gives heavier tails.
        noise_scale: scale of the noise, per parameter, worker and step; 0 for no noise.

    Source: Lion Cub, figure 11, has such a problem; the paper does not print its sizes.
    """

    name: ClassVar[str] = "teacher-student"
    inputs: int = 16
    hidden: int = 32
    outputs: int = 1
    batch_size: int = 32
    alpha: float = 1.5
    noise_scale: float = 0.05

    def __post_init__(self) -> None:
        check_sizes(self, "inputs", "hidden", "outputs", "batch_size")
        if not 0 < self.alpha <= 2:
            raise SpecError("problem.alpha", self.alpha, "a number above 0 (heaviest tails) and at most 2 (gaussian)")
        if not 0 <= self.noise_scale < math.inf:
            raise SpecError("problem.noise_scale", self.noise_scale, "a finite number, 0 or larger")

    def module(self) -> nn.Module:
        """Return the network of student and teacher on the meta device, without memory."""
        return shape_only(
            lambda: nn.Sequential(nn.Linear(self.inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.outputs))
        )

    def validation_inputs(self) -> Tensor:
        """Return the inputs of an evaluation, ``(2048, inputs)`` in double precision."""
        draw = gaussian(std=1.0)
        return draw(torch_generator(TEACHER_SEED, "teacher-student", "validation"), (VALIDATION_INPUTS, self.inputs))

    def teacher(self) -> dict[str, Tensor]:
        """Return the teacher's weights by name, in double precision.

        Weights and biases of a layer are drawn from N(0, 1 / fan in). Then the outputs are shifted and scaled to mean 0
        and variance 1.
        """
        source, module = torch_generator(TEACHER_SEED, "teacher-student", "teacher"), self.module()
        fan_in_of_layer = {"0": self.inputs, "2": self.hidden}  # layer 1 is the ReLU
        weights = {}
        for name, parameter in module.named_parameters():
            layer, _, _ = name.partition(".")
            draw = gaussian(fan_in_of_layer[layer] ** -0.5)
            weights[name] = draw(source, tuple(parameter.shape))
        outputs = functional_call(module, weights, (self.validation_inputs(),))
        mean, std = outputs.mean(0), outputs.std(0, correction=0)
        std = torch.where(std > 0, std, torch.ones_like(std))  # 0 if no ReLU is ever active
        scaled_weights = {"2.weight": weights["2.weight"] / std[:, None], "2.bias": (weights["2.bias"] - mean) / std}
        return weights | scaled_weights

    def build(
        self,
        rows: Rows,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        execution: Execution = "auto",
        autocast: torch.dtype | None = None,
    ) -> TeacherStudentTask:
        """Return the task of ``rows``, with gradients computed as ``execution`` says, see `gradient_function`."""
        return TeacherStudentTask(self, rows, dtype, torch.device(device), execution=execution, autocast=autocast)


class TeacherData:
    """The data of a `TeacherStudentTask`: new inputs in each step, and the teacher's outputs for them."""

    def __init__(self, problem: TeacherStudent, rows: Rows, dtype: torch.dtype, device: torch.device | str) -> None:
        self._module = problem.module()
        self._teacher = {name: weight.to(device, dtype) for name, weight in problem.teacher().items()}
        shape = (problem.batch_size, problem.inputs)
        self._inputs = StepStream(rows, "inputs", shape, draw=gaussian(std=1.0), dtype=dtype, device=device)
        self.validation = self._add_targets(problem.validation_inputs().to(device, dtype))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs ``(R, batch, inputs)`` of a step and the teacher's outputs ``(R, batch, outputs)``."""
        return self._add_targets(self._inputs[step])

    def _add_targets(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs, and the teacher's outputs for them as targets."""
        targets: Tensor = functional_call(self._module, self._teacher, (inputs,))
        return inputs, targets


class TeacherStudentTask:
    """The task of a student in each row, with the mean squared error as the loss."""

    matrices: tuple[str, ...] = ("0.weight",)  # the second layer is the output head

    def __init__(
        self,
        problem: TeacherStudent,
        rows: Rows,
        dtype: torch.dtype,
        device: torch.device,
        execution: Execution,
        autocast: torch.dtype | None,
    ) -> None:
        self.rows = rows
        self.module = problem.module()
        self.params = rows.parameters(
            lambda seed: uniform_weights(self.module, torch_generator(seed, "weights")), dtype, device
        )
        # Two operations per weight and input forwards, twice that backwards.
        weights = problem.hidden * (problem.inputs + problem.outputs)
        self.flops_per_step: float | None = 6.0 * weights * problem.batch_size
        self._data = TeacherData(problem, rows, dtype, device)
        self._gradients = gradient_function(execution, with_autocast(self._loss, device, autocast), device)
        self._sizes = [parameter.numel() for parameter in self.module.parameters()]
        self._noise = None
        if problem.noise_scale:
            draw = stable(problem.alpha, problem.noise_scale)
            self._noise = StepStream(rows, "noise", shape=(sum(self._sizes),), draw=draw, dtype=dtype, device=device)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` on each worker's batch of this step, and set ``.grad`` to the noisy gradients."""
        losses = self._gradients(self.params, *self._data.batch(step))
        if self._noise is not None:
            noise_by_param = self._noise[step].split(self._sizes, dim=1)
            for param, noise in zip(self.params.values(), noise_by_param, strict=True):
                assert param.grad is not None
                param.grad = param.grad + noise.view_as(param)
        return losses

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the ``loss`` of the mean parameters ``(S, *s)`` on the inputs of an evaluation."""
        inputs, targets = self._data.validation
        losses = []
        for replica in range(len(self.rows.seeds)):
            weights = {name: mean[replica] for name, mean in means.items()}
            losses.append(self._loss(weights, inputs, targets))
        return {"loss": torch.stack(losses)}

    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics; the distance to the teacher's weights says little, because units may be permuted."""
        return {}

    def describe(self) -> dict[str, object]:
        """Return the number of parameters of one worker and the number of inputs of an evaluation."""
        return {"parameters": parameter_count(self.module), "validation_inputs": VALIDATION_INPUTS}

    def _loss(self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(functional_call(self.module, weights, (inputs,)).to(targets.dtype), targets)
