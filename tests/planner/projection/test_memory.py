from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncline as sl
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import HARDWARE, MODELS, ModelShape, TensorShape, activation_bytes
from syncline.costmodel.layouts.memory import Storage, activation_parts
from syncline.errors import SynclineError
from syncline.methods import METHODS, method_of
from syncline.planner.projection.memory_plan import _next_divisor, memory_of, memory_record
from syncline.planner.projection.project import project
from syncline.planner.projection.tables import project_tables
from syncline.problems import TextGPT
from syncline.specs import ProjectSpec
from tests.planner.tables.test_display import lines

N = 1_000_000  # a multiple of 64, so that no word is partly filled
P = 4

BYTES_PER_PARAMETER = {  # weights and gradients, states, error feedback, buffers of the largest call
    "ddp-adam": (8, 8, 0, 4),
    "ddp-lion-16bit": (8, 4, 0, 2),
    "local-adam": (8, 8, 0, 12),  # parameters and both moments together
    "diloco": (8, 8 + 8, 0, 4),  # an anchor and an outer momentum
    "mt-dao": (8, 8, 0, 12),
    "mt-dao-l1": (8, 8 + 12, 12, 3),  # a reference and an error of everything that is averaged
    "lion-cub-1bit": (8, 4, 0, 2 / 8),  # signs to all, and as many from all
    "distributed-lion": (8, 4, 0, (1 + P) / 8),  # the server holds everyone's
    "one-bit-adam": (8, 8, 4 + 4 / P, 4),  # its warm-up sends gradients
    "sign-sgd": (8, 0, 0, 2 / 8),
}


@pytest.mark.parametrize("name", BYTES_PER_PARAMETER)
def test_bytes_per_parameter_counted_by_hand(name: str) -> None:
    model, states, errors, wire = BYTES_PER_PARAMETER[name]
    memory = memory_of(method_of(name), N, P)
    assert memory.weights_bytes + memory.gradients_bytes == model * N
    assert memory.optimizer_state_bytes == states * N
    assert memory.error_feedback_bytes == errors * N
    assert memory.wire_bytes == pytest.approx(wire * N, abs=64)  # scales


def test_errors_are_part_of_what_is_kept_and_one_worker_has_no_buffers() -> None:
    tensors = MODELS["text-gpt"].tensors
    for name in METHODS:
        spec = method_of(name)
        memory, kept = memory_of(spec, tensors, 1), spec.kept_elements(tensors, 1)
        assert 0 <= spec.error_feedback_elements(tensors, 1) <= kept, name
        assert memory.optimizer_state_bytes + memory.error_feedback_bytes == 4 * kept, name
        assert memory.wire_bytes == 0, name


def test_demo_s_momentum_is_a_state_and_powersgd_keeps_errors_of_matrices_alone() -> None:
    assert memory_of(method_of("demo"), N, P).error_feedback_bytes == 0
    tensors = [TensorShape("w", (64, 32), True), TensorShape("b", (64,))]
    assert memory_of(method_of("powersgd"), tensors, P).error_feedback_bytes == 4 * 64 * 32


def test_calls_of_a_stream_are_under_way_together() -> None:
    # Four fragments of three states; those of one fragment leave in the same step.
    tensors = [TensorShape(str(i), (1000,)) for i in range(8)]
    assert memory_of(method_of("streaming-mt-dao"), tensors, P).wire_bytes == 3 * 4 * 2000
    assert memory_of(method_of("streaming-diloco"), tensors, P).wire_bytes == 4 * 2000


def test_activations_are_of_a_micro_batch_in_the_model_s_precision() -> None:
    shape = MODELS["gpt-160m"]
    setting = {"model": "gpt-160m", "tokens_per_worker": 8 * 1024, "methods": ["ddp-adam"], "precision": None}
    for precision, width in (("fp32", 4), ("mixed", 2)):
        memory = {"precision": precision, "micro_batches": 4}
        without, row = (
            project(projected(**setting, memory=memory | {"activations": kept}))[0] for kept in (None, "auto")
        )
        assert without["activations_bytes"] == 0 and without["activations"] is None
        assert row["activations_bytes"] == activation_bytes(shape, 2, "selective", Storage(width))
        assert row["memory_bytes"] == without["memory_bytes"] + row["activations_bytes"]
        assert row["activations"] == "selective"


def test_a_record_has_every_part_the_sum_and_none_where_nothing_is_known() -> None:
    memory = memory_of(method_of("ddp-adam"), N, P)
    told = memory_record(memory, HARDWARE["h100"])
    assert told["memory_bytes"] == sum(v for k, v in told.items() if k.endswith("_bytes") and k != "memory_bytes")
    assert (told["fits"], told["update_s"]) == (True, 28 * N / 3.35e12)
    assert memory_record(memory, None)["fits"] is memory_record(memory, None)["update_s"] is None
    assert memory_record(memory, HARDWARE["cpu-core"])["fits"] is None


def projected(**fields) -> ProjectSpec:
    shape = {"kind": "project", "name": "memory", "model": "gpt-1.3b", "tokens_per_worker": 4096, "workers": 8,
             "methods": ["ddp-adam", "lion-cub"], "networks": ["wan"], "compute": {"hardware": "rtx-3090"},
             "precision": "fp32"}  # fmt: skip
    memory = {"activations": None, "sharding": "none"} | fields.pop("memory", {})
    return ProjectSpec.model_validate(shape | fields | {"memory": memory})


def test_a_method_that_does_not_fit_is_marked_and_not_dropped() -> None:
    spec = projected()
    rows = project(spec)
    # 1.415e9 parameters: 16 + 4 bytes of each with Adam, 12 + 1 with Lion Cub.
    n = MODELS["gpt-1.3b"].parameters
    assert [row["memory_bytes"] for row in rows] == [20 * n, 13 * n]
    assert [row["fits"] for row in rows] == [False, True]
    assert [row["step_time_s"] is None for row in rows] == [True, False]
    assert [row["not_timed"] for row in rows] == ["does not fit into the memory of rtx-3090", None]
    shown = lines(project_tables(rows, spec))
    ddp, lion = ([line for line in shown if line.startswith(f" {name}")][-1] for name in ("ddp-adam", "lion-cub"))
    assert ddp.endswith("28.3 GB *") and lion.endswith("18.4 GB")
    note = " ".join(shown[-5:])
    assert "*: does not fit into 95% of the 25.8 GB (24 GiB) of rtx-3090." in note


@pytest.mark.parametrize(
    ("fields", "fits", "mark"),
    [
        ({"compute": {"seconds": 1}}, None, False),
        ({"compute": {"hardware": "h100"}}, True, False),
        ({"compute": {"seconds": 1}, "memory": {"hardware": "rtx-3090"}}, False, True),
        ({"compute": {"hardware": "h100"}, "memory": {"hardware": "v100"}}, False, True),
        ({"compute": {"hardware": "rtx-3090"}, "memory": {"activations": "stored"}}, False, True),
        ({"compute": {"hardware": "rtx-3090"}, "memory": {"activations": "auto"}}, False, True),
    ],
)
def test_whose_memory_it_has_to_fit_into(fields, fits, mark) -> None:
    spec = projected(**fields)
    rows = project(spec)
    assert rows[0]["fits"] is fits
    assert ("does not fit" in " ".join(lines(project_tables(rows, spec)))) is mark


def test_a_projection_takes_its_time_from_a_table() -> None:
    # 4,096 tokens are 4 sequences of 1,024.
    sequences = projected(compute={"batch_times": {1: "12 ms", 8: "82 ms"}})
    tokens = projected(compute={"batch_times": {1024: "12 ms", 8192: "82 ms"}, "batch_unit": "tokens"})
    for spec in (sequences, tokens):
        assert project(spec)[0]["compute_s"] == pytest.approx(0.042, rel=1e-12)


def test_a_table_survives_its_spec_file_and_warns_of_a_time_that_falls() -> None:
    spec = projected(compute={"batch_times": {1: "12 ms", 8: "10 ms"}})
    again = ProjectSpec.model_validate(spec.model_dump(mode="json"))
    assert again == spec
    assert spec.warnings() == ["compute.batch_times: a batch of 8 takes less time than one of 1"]


def test_states_of_a_model_without_a_worker_axis_are_as_large() -> None:
    import torch

    module = torch.nn.Linear(32, 16)
    method = method_of("mt-dao-l1").build(module.parameters(), SimulatedCommunicator(1), worker_axis=False)
    module(torch.ones(2, 32)).sum().backward()
    method.step()
    real = sum(t.numel() * t.element_size() for state in method.state.values() for t in state.values())
    memory = memory_of(method_of("mt-dao-l1"), [TensorShape("w", (16, 32)), TensorShape("b", (16,))], 1)
    assert memory.optimizer_state_bytes + memory.error_feedback_bytes == real


@pytest.mark.parametrize("layers", [1, 2])
def test_activations_are_what_autograd_keeps_of_a_real_gpt_but_for_dropout_masks(layers: int) -> None:
    """Its attention is fused, so no scores are stored; in fp32, without dropout."""
    import torch

    batch, width, context, vocabulary = 8, 96, 64, 256
    problem = TextGPT(width=width, layers=layers, heads=4, context=context, batch_size=batch)
    module = problem.module().to_empty(device="cpu")
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            kept[x.untyped_storage().data_ptr()] = x
        return x

    tokens = torch.zeros(batch, context, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        logits = module(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    real = sum(x.untyped_storage().nbytes() for pointer, x in kept.items() if pointer not in own)
    shape = ModelShape("", layers, width, 4, vocabulary, context, position_embedding=True, norms_per_layer=2)
    masks = (1 + 2 * layers) * batch * context * width
    parts = activation_parts(shape, batch, "selective", Storage(4))
    assert real == pytest.approx(parts.layers + parts.ends + parts.logits - masks, rel=0.01)


def test_what_does_not_fit_is_recomputed_and_takes_a_third_longer() -> None:
    """A 30 GB card holds the inputs of all layers, but not half of what they keep of a long sequence."""
    card = {"hardware": {"name": "card", "peak_flops": 1e14, "mfu": 0.4, "memory_bytes": "30 GB", "precision": "bf16"}}
    shape = replace(MODELS["gpt-350m"], sequence=65536)
    setting = {"model": shape, "tokens_per_worker": 65536, "methods": ["ddp-adam"], "compute": card, "workers": 2,
               "precision": None}  # fmt: skip
    (row,), (kept,) = (project(projected(**setting, memory={"activations": how})) for how in ("auto", "selective"))
    assert (row["activations"], row["fits"], kept["fits"]) == ("recomputed", True, False)
    assert kept["step_time_s"] is kept["wall_clock_s"] is kept["speedup"] is None
    large = card | {"hardware": card["hardware"] | {"memory_bytes": "160 GB"}}
    (roomy,) = project(projected(**setting | {"compute": large}, memory={"activations": "auto"}))
    assert roomy["activations"] == "selective"
    assert row["compute_s"] == pytest.approx(4 / 3 * roomy["compute_s"], rel=1e-12)
    (asked,) = project(projected(**setting | {"compute": large}, memory={"activations": "recomputed"}))
    assert asked["compute_s"] == row["compute_s"]


def test_as_few_layers_run_again_as_let_the_step_fit() -> None:
    """A 45 GB card holds what 13 of 24 layers keep of a long sequence, and the inputs of the others."""
    card = {"hardware": {"name": "card", "peak_flops": 1e14, "mfu": 0.4, "memory_bytes": "45 GB", "precision": "bf16"}}
    setting = {
        "model": replace(MODELS["gpt-350m"], sequence=65536), "tokens_per_worker": 65536, "methods": ["ddp-adam"],
        "compute": card, "workers": 2, "precision": None,
    }  # fmt: skip

    def row_of(**memory: object) -> dict[str, Any]:
        (row,) = project(projected(**setting, memory=memory))
        return row

    fewest = row_of(activations="auto", recomputed_layers="fewest")
    word, _, layers = fewest["activations"].partition(": ")
    count = int(layers.removesuffix(" layers"))
    assert word == "recomputed" and 1 < count < 24
    assert fewest == row_of(activations="recomputed", recomputed_layers=count)
    assert row_of(activations="recomputed", recomputed_layers=count - 1)["fits"] is False
    whole = row_of(activations="recomputed")
    assert fewest["compute_s"] == pytest.approx(whole["compute_s"] * (1 + count / 24 / 3) / (4 / 3))
    assert row_of(activations="recomputed", layers_per_checkpoint=4)["compute_s"] == whole["compute_s"]


def test_offloaded_activations_free_memory_and_wait_for_a_slow_link() -> None:
    card = {"name": "card", "peak_flops": 1e14, "mfu": 0.4, "memory_bytes": "80 GB", "precision": "bf16"}
    shape = MODELS["gpt-1.3b"]
    layer = 34 * 2048 * 1024 * 4  # bytes of four sequences of 1,024 tokens, 2,048 wide

    def row_of(rate: str, offloaded: int) -> dict[str, Any]:
        machine = card | {"host_bytes_per_s": rate}
        (row,) = project(projected(
            model="gpt-1.3b", tokens_per_worker=4 * 1024, methods=["ddp-adam"], workers=2, precision=None,
            compute={"hardware": machine}, memory={"activations": "selective", "offloaded_layers": offloaded},
        ))  # fmt: skip
        return row

    kept, hidden, slow = row_of("1 TB/s", 0), row_of("1 TB/s", 10), row_of("1 GB/s", 10)
    assert hidden["activations"] == "selective, 10 layers offloaded" and hidden["compute_s"] == kept["compute_s"]
    # The loss's logits take more than the two layers that compute and move, so that these do not count.
    assert kept["activations_bytes"] - hidden["activations_bytes"] == pytest.approx(10 * layer)
    layer_s = kept["compute_s"] / shape.layers
    assert slow["compute_s"] == pytest.approx(kept["compute_s"] + 10 * (2 * layer / 1e9 - layer_s), rel=1e-3)


CARD = {"name": "card", "peak_flops": 1e14, "mfu": 0.4, "memory_bytes": "80 GB"}


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"activations": "selective", "recomputed_layers": 2}, r"memory.recomputed_layers: got 2; expected memory.act"),
        (
            {"activations": "stored", "recomputed_modules": ["mlp"]},
            r"memory.recomputed_modules: got .*selective as well",
        ),
        ({"recomputed_modules": ["attn"]}, r"memory.recomputed_modules.0: got 'attn'; expected 'core_attn'"),
        ({"recomputed_layers": "some"}, r"memory.recomputed_layers"),
        ({"activations": "recomputed", "offloaded_layers": 1}, r"memory.offloaded_layers: got 1; expected memory.act"),
        ({"activations": None, "layers_per_checkpoint": 2}, r"memory.layers_per_checkpoint: got 2"),
        ({"offloaded_layers": 2}, r"memory.offloaded_layers: got 2; expected hardware.host_bytes_per_s as well"),
    ],
)
def test_layers_that_a_policy_does_not_have_are_told(memory: dict[str, object], message: str) -> None:
    with pytest.raises(SynclineError, match=message):
        sl.project(
            model="gpt-160m", methods=["ddp-adam"], networks=["wan"], workers=[2], hardware=[CARD], memory=memory
        )


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_the_next_divisor_is_the_least_that_is_large_enough(minimum: int, count: int) -> None:
    expected = min((divisor for divisor in range(minimum, count + 1) if count % divisor == 0), default=count)
    assert _next_divisor(minimum, float(count)) == expected
    assert _next_divisor(3, 10.0**10 + 19) == 10**10 + 19  # a prime, after 10^5 numbers and not 10^10
