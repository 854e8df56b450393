"""The first look at a module: what it does with one batch, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from syncline.errors import SpecError
from syncline.problems.torch_batches import BatchLoss, answer, loss_of
from syncline.problems.torch_modules import TensorHolders, error_clause
from syncline.randomness import GlobalState


@dataclass(frozen=True)
class ModuleProperties:
    """Measured properties of a module.

    Attributes:
        flops: FLOPs of the forward and backward pass of a batch; None if they were not counted.
        draws: whether the module draws from a global generator.
    """

    flops: float | None
    draws: bool


@contextmanager
def _separate_kernels() -> Iterator[None]:
    """Disable oneDNN, because torch does not count the FLOPs of its fused recurrent layers."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def measure_module(places: TensorHolders, batch: Any, loss: BatchLoss | None, device: torch.device) -> ModuleProperties:
    """Take a batch through the module and back. For inside of `preserved`, with tensors put that may change.

    The multiplications and additions of products of matrices, convolutions and attention are counted, as torch counts
    them; what is elementwise is not. Fused kernels are taken apart, so that recurrent layers and attention count too.

    Raises:
        SpecError: the module raises an error, or there is no scalar loss.
    """
    name = type(places.module).__name__
    before = GlobalState.capture(device)
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
        _separate_kernels(),
        FlopCounterMode(display=False) as counter,
    ):
        try:
            result = answer(places.module, batch, loss)
        except Exception as error:
            raise SpecError(
                "problem.make_model", name, f"a module that takes a batch; {error_clause(error)}"
            ) from error
        draws = not before.equals(GlobalState.capture(device))
        try:
            value = loss_of(result, loss)
        except SpecError:
            raise
        except Exception as error:
            expected = f"a function of output and target; {error_clause(error)}"
            raise SpecError("problem.loss", getattr(loss, "__name__", type(loss).__name__), expected) from error
        if not value.requires_grad:
            raise SpecError("problem.loss", "a number", "a loss that depends on the trainable parameters")
        value.backward()
        draws = draws or not before.equals(GlobalState.capture(device))
    places.gradients()
    return ModuleProperties(float(counter.get_total_flops()) or None, draws)
