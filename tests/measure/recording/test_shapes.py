"""A script by shapes alone: FLOPs and bytes by formulas, the same as with real math, and who stands for whom."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from syncline.errors import SpecError, SynclineError
from syncline.measure.recording.operations import OperationCounter
from syncline.measure.recording.ranks import ForeignScript, trace_program
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Event,
    HostWaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
)
from syncline.measure.recording.shaped_ddp import assign_to_buckets
from syncline.measure.recording.shapes import Families, ShapedRecord, record_by_shapes
from tests.measure.recording.shaped_scripts import BATCH, CONTEXT, LAYERS, STEPS, VOCABULARY, WIDTH, Model

SCRIPT = str(Path(__file__).with_name("shaped_scripts.py"))
TOKENS = BATCH * CONTEXT


def by_shapes(workers: int, *words: str, ranks: tuple[int, ...] = ()) -> ShapedRecord:
    return record_by_shapes(ForeignScript(SCRIPT, words), workers, ranks)


def flops_of(record: RankRecord) -> float:
    """Per step."""
    computed = (event for event in record.events if isinstance(event, Computed))
    return sum(op.flops for event in computed for op in record.segments[event.segment]) / record.steps


def last_step(record: RankRecord) -> list[Event]:
    ends = [i for i, event in enumerate(record.events) if isinstance(event, Stepped)]
    return record.events[ends[-2] : ends[-1]]


def operations_of_last_step(record: RankRecord) -> Counter[CountedOperation]:
    """Return how often the last step runs each operation."""
    computed = (event for event in last_step(record) if isinstance(event, Computed))
    return Counter(op for event in computed for op in record.segments[event.segment])


def calls_of_record(record: RankRecord) -> Counter[tuple[str, int]]:
    return Counter((event.asked, event.payload_bytes) for event in record.events if isinstance(event, Started))


def closed_form(recompute: bool) -> float:
    """6 N + 12 layers width context per token (PaLM), and 2 more as attention makes its scores a second time.

    A causal mask leaves half of the attention.

    A checkpoint makes the forward pass of a layer again, but for its last product, of which nothing is kept.
    """
    multiplying = sum(p.numel() for p in Model().parameters() if p.ndim == 2) - VOCABULARY * WIDTH
    attention = LAYERS * WIDTH * CONTEXT / 2
    again = 2 * 8 * WIDTH**2 * LAYERS + 4 * attention if recompute else 0
    return float(TOKENS * (6 * multiplying + 14 * attention + again))


@pytest.mark.parametrize(
    "words", [("fsdp2",), ("ddp", "bf16"), ("fsdp2", "recompute"), ("ddp", "fused", "clip", "cuda")]
)
def test_flops_are_the_closed_form(words: tuple[str, ...]) -> None:
    of = by_shapes(4, *words, ranks=(0,))
    assert flops_of(of.recorded[0]) == closed_form("recompute" in words)


def test_fully_sharded_bytes_are_those_of_a_hand_count() -> None:
    workers = 4
    of = by_shapes(workers, "fsdp2", "bf16")
    assert sorted(of.recorded) == [0, workers - 1] and of.representatives == [0] * workers
    layer, rest = 12 * WIDTH**2 + WIDTH, 2 * VOCABULARY * WIDTH
    # Each layer is gathered for the forward and the backward pass, the root once, as it stays between them.
    gathered = {("all_gather", 2 * layer // workers): 2 * LAYERS, ("all_gather", 2 * rest // workers): 1}
    scattered = {("reduce_scatter", 2 * layer): LAYERS, ("reduce_scatter", 2 * rest): 1}
    # Between steps nothing but the first gather of the next differs.
    assert calls_of_record(of.recorded[0]) == {key: STEPS * n for key, n in (gathered | scattered).items()}


@pytest.mark.parametrize(
    "words",
    [
        "ddp",
        "ddp unused",
        "ddp static",
        "ddp static unused",
        "ddp accumulate",
        "ddp clip cuda",
        "fsdp2",
        "fsdp2 clip cuda",
        "split",
    ],
)
def test_bytes_and_flops_are_those_of_real_math(words: str) -> None:
    """With the reducer of DDP in C++, and every value."""
    real = trace_program(ForeignScript(SCRIPT, words.split()), 2)[0]
    shaped = by_shapes(2, *words.split(), ranks=(0,)).recorded[0]
    operations = operations_of_last_step(shaped)
    assert operations == operations_of_last_step(real)
    # The first step computes no more: a DTensor finds shapes on fake tensors, which take no time.
    assert flops_of(shaped) == flops_of(real) == sum(op.flops * count for op, count in operations.items())
    assert calls_of_record(shaped) == calls_of_record(real)
    assert real.segment_cpu_s and not shaped.segment_cpu_s  # fake tensors compute nothing


@pytest.mark.parametrize("words", ["ddp clip cuda", "fsdp2 clip cuda", "ddp unused", "ddp static"])
def test_the_host_of_a_gpu_waits_for_values_that_a_step_reads_there(words: str) -> None:
    """A norm stays on the GPU. The map of used parameters is read once if one has no gradient, else not at all."""
    for record in (trace_program(ForeignScript(SCRIPT, words.split()), 2)[0],
                   by_shapes(2, *words.split(), ranks=(0,)).recorded[0]):  # fmt: skip
        waits = [event for event in last_step(record) if isinstance(event, HostWaited)]
        assert len(waits) == (words == "ddp unused")


def test_an_optimizer_on_a_gpu_updates_all_parameters_at_once() -> None:
    """Torch's default there; on a CPU it is a loop, of eight operations for each parameter and Adam's step."""
    num_parameters = len(list(Model().parameters()))
    operations = {}
    for words in ("ddp", "ddp cuda"):
        operations[words] = sum(operations_of_last_step(by_shapes(2, *words.split(), ranks=(0,)).recorded[0]).values())
    assert operations["ddp"] - operations["ddp cuda"] == 9 * (num_parameters - 1)


def test_a_hook_that_sends_bf16_halves_the_bytes() -> None:
    """Torch refuses it without CUDA, so that a script with GPUs must see its version."""
    plain, halved = (
        trace_program(ForeignScript(SCRIPT, ("ddp", "cuda", *words)), 2)[0] for words in ((), ("bf16_hook",))
    )
    reduced = {(kind, nbytes // 2 if kind == "all_reduce" else nbytes): n
               for (kind, nbytes), n in calls_of_record(plain).items()}  # fmt: skip
    assert calls_of_record(halved) == reduced


def test_an_operation_that_only_finds_a_shape_takes_no_time() -> None:
    counted: list[CountedOperation] = []
    with OperationCounter(counted.append, lambda: True):
        torch.ones(4, 4, device="meta").mul_(2)
        with FakeTensorMode():
            torch.ones(4, 4) @ torch.ones(4, 4)
        assert not counted
        torch.ones(4, 4)
    assert len(counted) == 1


def test_all_ranks_are_told_of_their_own_groups() -> None:
    every = by_shapes(3, "ddp").expand()
    assert [one.events for one in every[1:]] == [every[0].events] * 2  # one group of all


def test_a_first_rank_that_does_more_stands_for_itself() -> None:
    of = by_shapes(6, "ddp", "mean")
    assert of.representatives == [0, *[1] * 5]
    assert set(of.recorded) == {0, 1, 5}


def test_shards_that_are_uneven_are_found() -> None:
    of = by_shapes(5, "fsdp2", "fused")
    assert of.representatives[:2] == [0, 0] and of.representatives[-1] == 4


def test_a_value_is_refused_with_its_line() -> None:
    with pytest.raises(SynclineError, match=r"shaped_scripts\.py:\d+: asks for values \(\.item\(\)"):
        by_shapes(2, "ddp", "log")
    of = by_shapes(3, "ddp", "log", ranks=(1,))
    assert of.representatives == [1, 1, 1]


def test_a_bucket_is_full_at_its_limit() -> None:
    tensors = [torch.zeros(n) for n in (100, 10, 300, 5)]
    assert [[len(x) for x in one] for one in assign_to_buckets(tensors, 400, 1200)] == [[100], [10, 300], [5]]
    mixed = [torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3)]
    assert [[x.dtype for x in one] for one in assign_to_buckets(mixed, 24)] == [[torch.float32] * 2, [torch.bfloat16]]


def test_places_of_a_mesh() -> None:
    """Two stages of two replicas: the stage counts, as messages travel along it; the replica does not."""
    stages, replicas = [("a", (0, 2)), ("b", (1, 3))], [("c", (0, 1)), ("d", (2, 3))]
    of = Families([("all", (0, 1, 2, 3)), *stages, *replicas])
    assert len({of.role(rank, {1}) for rank in (0, 1)}) == 1
    assert of.role(0, {1}) != of.role(2, {1})
    record = RankRecord([
        MessageSent(1, 2, 8, ("a", 0, 2, 0), "x:1"),
        Started(2, "all_reduce", "all_reduce", 8, (0, 1), ("c", 0), "x:2"),
    ])  # fmt: skip
    assert of.families_with_messages([record]) == {1}
    sent, started = of.translate(record, 1).events
    assert sent == MessageSent(1, 3, 8, ("b", 1, 3, 0), "x:1") and started == record.events[1]


def test_ranks_that_are_not_there_are_refused() -> None:
    with pytest.raises(SpecError, match="--ranks: got '7'"):
        by_shapes(4, "ddp", ranks=(7,))


def test_parts_that_differ_between_ranks_are_one_size_of_the_same_time() -> None:
    """Rank 1 of three sends 100 numbers to each rank, the others one: nobody sends more, and nobody receives more."""
    ranks = trace_program(ForeignScript(str(Path(__file__).parents[2] / "trace" / "scripts" / "uneven.py")), 3)
    for rank in ranks:
        started = [(event.kind, event.payload_bytes) for event in rank.events if isinstance(event, Started)]
        assert started == [("all_to_all", 4 * 300), ("all_to_all", 4 * 300), ("all_gather", 4 * 101 // 2)]
