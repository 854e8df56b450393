"""The operations of a step and their seconds: closed forms, limit cases, and steps that this project measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncline.costmodel import HARDWARE, MODELS, ModelShape
from syncline.costmodel.compute.kernel_rates import AttentionKind
from syncline.costmodel.compute.operations import Operation, kernel_s, memory, operations_s, product
from syncline.costmodel.compute.transformer_operations import (
    Module,
    Share,
    Software,
    Work,
    end_operations,
    layer_operations,
    micro_batch_seconds,
    step_seconds,
)
from syncline.errors import SpecError

H100 = HARDWARE["h100"]
RESULTS = Path(__file__).parents[3] / "results"
GPT = ModelShape(
    "gpt", 4, 256, 4, vocabulary=1000, sequence=128, position_embedding=True, norms_per_layer=2, fused_qkv=True
)


def flops_of(operations: Sequence[Operation]) -> float:
    """Return the FLOPs of all kernels of the operations."""
    return sum(operation.kernels * operation.flops for operation in operations)


def test_operations_are_the_flops_of_the_shape() -> None:
    """Products and attention of all layers and the head are the shape's FLOPs; a causal mask halves attention's."""
    share = Share(sequences=3.0)
    every = Software(causal=False)
    layer, ends = layer_operations(GPT, share, every), end_operations(GPT, share, every)
    forward = GPT.layers * flops_of(layer.forward) + flops_of(ends.forward)
    assert forward == pytest.approx(GPT.flops_per_token / 3 * 3 * GPT.sequence)
    masked = layer_operations(GPT, share, Software())
    scores = 4 * 3 * GPT.heads * GPT.sequence**2 * (GPT.width // GPT.heads)
    assert flops_of(layer.forward) - flops_of(masked.forward) == pytest.approx(scores / 2)
    products = [operation for operation in layer.backward if operation.kind == "product"]
    assert flops_of(products) == pytest.approx(2 * sum(op.flops for op in layer.forward if op.kind == "product"))


@pytest.mark.parametrize(("tensor", "context"), [(2, 1), (1, 2), (4, 2)])
def test_parallel_workers_share_the_products(tensor: int, context: int) -> None:
    whole = layer_operations(GPT, Share(2.0), Software())
    part = layer_operations(GPT, Share(2.0, tensor, context), Software())
    for one, other in zip(whole, part, strict=True):
        assert flops_of(other) * tensor * context == pytest.approx(flops_of(one))


def test_tokens_of_experts_move_as_often_as_the_software_sorts_and_pads_them() -> None:
    """Megatron-LM's dispatcher: two moves; two more behind an all-to-all to several experts; two of padding in fp8."""
    shape = replace(GPT, experts=8, experts_per_token=2, expert_hidden=512)

    def moves(share: Share, once_per_node: bool = False) -> float:
        nbytes = 2 * 2 * share.sequences * shape.sequence * 2 * shape.width
        passes = layer_operations(shape, share, Software(once_per_node=once_per_node))
        return sum(operation.kernels for operation in passes.forward if operation.nbytes == nbytes)

    assert moves(Share(3.0)) == moves(Share(3.0, expert=8)) == 2
    assert moves(Share(3.0, expert=4)) == 4
    assert moves(Share(3.0, expert=4, precision="fp8")) == 6
    assert moves(Share(3.0, expert=4, precision="fp8"), once_per_node=True) == 2


def test_experts_process_the_routed_tokens() -> None:
    shape = replace(GPT, experts=8, experts_per_token=2, expert_hidden=512)
    alone = layer_operations(shape, Share(2.0), Software(causal=False))
    assert 3 * flops_of(alone.forward) == pytest.approx(shape.block_flops() * 2 * shape.sequence)
    shared = layer_operations(shape, Share(2.0, expert=4), Software(causal=False))
    assert flops_of(shared.forward) == pytest.approx(flops_of(alone.forward))  # others' tokens come in exchange
    groups = {op.shape[3] for op in shared.forward if op.kind == "product" and len(op.shape) == 4}
    assert groups == {2.0}


def test_a_kernel_is_bounded_by_its_limits() -> None:
    big = product(16384, 16384, 16384, "bf16", 2)
    rate = big.flops / kernel_s(big, H100)
    assert 0.70 * H100.peak_flops < rate < 0.75 * H100.peak_flops
    thin = product(1, 16384, 16384, "bf16", 2)  # reads the matrix once
    assert thin.nbytes / kernel_s(thin, H100) < H100.memory_bytes_per_s
    assert kernel_s(memory(0.0), H100) == H100.kernels.floor_s
    halved = kernel_s(big, replace(H100, power_w=H100.kernels.power_w / 2))
    assert halved == pytest.approx(2 * kernel_s(big, H100), rel=1e-3)
    eighth = kernel_s(product(16384, 16384, 16384, "fp8", 1), H100)
    assert eighth < kernel_s(big, H100) < kernel_s(product(16384, 16384, 16384, "tf32", 4), H100)


def test_a_format_or_attention_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(SpecError, match="got 'nvfp4'; expected one of 'bf16', 'fp16', 'fp32', 'fp8', 'tf32'"):
        kernel_s(product(8, 8, 8, "nvfp4", 1), H100)
    with pytest.raises(SpecError, match="expected one of 'cudnn', 'eager'"):
        kernel_s(Operation("attention", (1, 8, 128, 128, 64)), HARDWARE["b200"], "flash-1")


def test_the_host_limits_many_small_kernels() -> None:
    small = [memory(100.0)] * 50
    times = operations_s(small, H100, eager=True)
    assert times.device_s < times.launch_s == pytest.approx(50 * H100.kernels.eager_s)
    assert operations_s([product(8192, 8192, 8192, "bf16", 2)], H100).device_s > 1e-3


def test_recomputation_is_the_forward_pass_again() -> None:
    work = Work(Share(4.0), micro_batches=2, stages=1, parameters=GPT.parameters, updated=GPT.parameters)
    stored = step_seconds(GPT, work, Software(), H100)
    again = step_seconds(GPT, work._replace(recomputed=(GPT.layers, 0)), Software(), H100)
    assert stored["recomputation"] == 0.0
    layer = micro_batch_seconds(GPT, work.share, Software(), H100)
    assert again["recomputation"] == pytest.approx(2 * GPT.layers * layer.forward.device_s)
    assert {name: again[name] for name in ("layers", "ends", "update")} == {
        name: stored[name] for name in ("layers", "ends", "update")
    }


def test_some_layers_run_again_and_others_wait_for_the_host() -> None:
    work = Work(Share(4.0), micro_batches=2, stages=1, parameters=GPT.parameters, updated=GPT.parameters)
    layer = micro_batch_seconds(GPT, work.share, Software(), H100)
    some = step_seconds(GPT, work._replace(recomputed=(3, 0)), Software(), H100)
    assert some["recomputation"] == pytest.approx(2 * 3 * layer.forward.device_s)
    hidden = work._replace(offloaded=(5, 0), offload_s=0.99 * layer.forward.device_s)
    assert step_seconds(GPT, hidden, Software(), H100)["offloading"] == 0.0
    between = (
        layer.forward.device_s + layer.backward.device_s
    ) / 2  # longer than a forward pass, not than a backward one
    slow = step_seconds(GPT, work._replace(offloaded=(5, 0), offload_s=between), Software(), H100)
    assert slow["offloading"] == pytest.approx(2 * 5 * (between - layer.forward.device_s))


@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_attention_that_runs_again_adds_its_forward_kernels(attention: AttentionKind) -> None:
    once, again = (
        layer_operations(GPT, Share(2.0), Software(attention, recomputed=modules)) for modules in ((), ("core_attn",))
    )
    assert once.forward == again.forward
    extra = again.backward[:]
    for operation in once.backward:
        extra.remove(operation)
    assert flops_of(extra) == 4 * 2.0 * GPT.sequence**2 * GPT.scores_width / (2 if attention == "flash" else 1)


@pytest.mark.parametrize(
    ("module", "products"),
    [
        ("mla_up_proj", [(24576, 1536), (32768, 512)]),  # queries from 1,536 numbers, keys and values from 512
        ("shared_experts", [(2048, 7168), (2048, 7168), (7168, 2048)]),
        ("layernorm", []),
        ("moe_act", []),
    ],
)
def test_modules_that_run_again_add_their_forward_kernels(module: Module, products: list[tuple[int, int]]) -> None:
    shape = MODELS["deepseek-v3"]
    once, again = (
        layer_operations(shape, Share(1.0), Software(recomputed=modules)).backward for modules in ((), (module,))
    )
    extra = again[:]
    for operation in once:
        extra.remove(operation)
    assert sorted(op.shape[1:3] for op in extra if op.kind == "product") == sorted(products)
    assert any(op.kind == "memory" for op in extra) or module == "mla_up_proj"


def test_a_part_of_the_heads_or_of_the_sequence_has_the_same_products() -> None:
    parts = [layer_operations(GPT, Share(2.0, context=2, by_heads=by_heads), Software()) for by_heads in (False, True)]
    for first, second in zip(*parts, strict=True):
        assert flops_of(first) == flops_of(second)


@pytest.mark.parametrize("expert", [1, 4])
def test_workers_that_share_an_expert_s_matrices_share_its_work(expert: int) -> None:
    shape = MODELS["mixtral-8x7b"]
    whole, shared = (
        layer_operations(shape, Share(2.0, tensor=4, expert=expert, expert_tensor=ways), Software()) for ways in (1, 4)
    )
    for first, second in zip(whole, shared, strict=True):
        assert flops_of(first) == pytest.approx(flops_of(second))
    grouped = [op.shape for op in shared.forward if op.kind == "product" and len(op.shape) == 4]
    tokens = 2 * shape.sequence * 2 / (8 / expert)  # twice each token, over the experts of a worker
    assert (tokens, 14336 / 4, 4096.0, 8 / expert) in grouped


def test_a_compiler_saves_bytes_and_no_flops() -> None:
    eager, compiled = (layer_operations(GPT, Share(2.0), Software(compiled=fused)) for fused in (False, True))
    for before, after in zip(eager, compiled, strict=True):
        assert flops_of(before) == flops_of(after)
    moved = [sum(op.kernels * op.nbytes for pass_ in made for op in pass_ if op.kind == "memory")
             for made in (eager, compiled)]  # fmt: skip
    assert moved[1] < 0.8 * moved[0]


def _measured(name: str, model: str) -> list[tuple[int, float]]:
    parts = json.loads((RESULTS / "gpu" / name).read_text())["parts"]
    return [(row["micro_batch"], row["median_s"]) for row in parts["compute"]["rows"] if row["model"] == model]


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("h100", "nvidia-h100-80gb-hbm3.json"),
        ("h200", "nvidia-h200-ceilings-compute-readback-alone-kernels-optimizers.json"),
    ],
)
@pytest.mark.parametrize("model", ["gpt-160m", "gpt-350m"])
def test_steps_that_this_project_measured(gpu: str, name: str, model: str) -> None:
    """Whole steps, of which only the host's constant comes: 8 sequences and more within 10%, one within half."""
    shape = replace(MODELS[model], position_embedding=True, norms_per_layer=2, fused_qkv=True)
    for sequences, measured_s in _measured(name, model):
        work = Work(Share(float(sequences)), 1, 1, shape.parameters, 0)
        parts = step_seconds(shape, work, Software(), HARDWARE[gpu])
        error = sum(parts.values()) / measured_s - 1
        assert abs(error) < (0.10 if sequences >= 8 else 0.5), (sequences, error)


def test_products_that_this_project_measured() -> None:
    rows = json.loads((RESULTS / "gpu" / "nvidia-h100-80gb-hbm3-shapes.json").read_text())["parts"]["shapes"]["rows"]
    for precision, width in (("bf16", 2), ("fp8", 1), ("tf32", 4)):
        errors = [
            kernel_s(product(*row["shape"], precision, width), H100) / row["median_s"] - 1
            for row in rows
            if len(row.get("shape", ())) == 3 and row.get("precision") == precision and "flops" in row
        ]
        assert len(errors) > 200
        assert np.median(np.abs(errors)) < 0.05, precision
        assert abs(np.median(errors)) < 0.02, precision


@pytest.mark.parametrize("kind", ["flash", "cudnn"])
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_attention_that_this_project_measured(kind: str, which: str) -> None:
    rows = json.loads((RESULTS / "gpu" / "nvidia-h100-80gb-hbm3-shapes.json").read_text())["parts"]["shapes"]["rows"]
    errors = []
    for row in rows:
        if row["operation"] == f"attention, {kind}, causal" and row["pass"] == which:
            batch, heads, sequence, head = row["shape"]
            name = "attention" if which == "forward" else "attention backward"
            operation = Operation(name, (batch, heads, sequence, sequence, head), causal=True)  # type: ignore[arg-type]
            assert operation.flops == pytest.approx(row["flops"])
            errors.append(kernel_s(operation, H100, kind) / row["median_s"] - 1)
    assert len(errors) == 12
    assert np.median(np.abs(errors)) < 0.12
