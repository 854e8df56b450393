"""The example with tensor, pipeline and data parallelism: by shapes as with real math, and its bytes by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from syncline.measure.recording.ranks import ForeignScript, trace_program
from syncline.measure.recording.record import MessageSent, RankRecord, Started
from syncline.measure.recording.shapes import record_by_shapes

TITAN = str(Path(__file__).parents[3] / "examples" / "titan.py")
WIDTH, LAYERS, BATCH, CONTEXT, MICRO = 64, 4, 8, 32, 2


def collectives(record: RankRecord) -> Counter[tuple[str, int, tuple[int, ...], str]]:
    """Without what sets tensors up: kind, bytes, ranks, and the line."""
    started = (event for event in record.events if isinstance(event, Started) and event.asked != "scatter")
    return Counter((event.asked, event.payload_bytes, event.ranks, event.site) for event in started)


def boundaries(record: RankRecord) -> Counter[tuple[int, int]]:
    """Activations and their gradients, which are sent to other stages."""
    nbytes = 4 * MICRO * CONTEXT * WIDTH // 2  # of a micro-batch, the sequence split in two
    sent = (event for event in record.events if isinstance(event, MessageSent))
    return Counter((event.to, event.payload_bytes) for event in sent if event.payload_bytes == nbytes)


@pytest.mark.slow
def test_a_stage_sends_what_a_hand_count_says() -> None:
    """Two stages of two split ranks: a stage's first layer begins with a gather that the one before left scattered."""
    of = record_by_shapes(ForeignScript(TITAN, ("--tp", "2", "--pp", "2", "--quiet", "--steps", "1")), 4)
    assert of.representatives == [0, 0, 2, 2]
    first, _, last, _ = of.expand()
    micro_batches = BATCH // MICRO
    assert boundaries(first) == {(2, 4 * MICRO * CONTEXT * WIDTH // 2): micro_batches}
    assert boundaries(last) == {(0, 4 * MICRO * CONTEXT * WIDTH // 2): micro_batches}
    half = 4 * MICRO * CONTEXT * WIDTH // 2
    sequence = Counter(
        event.asked
        for event in first.events
        if isinstance(event, Started)
        and event.ranks == (0, 1)
        and (event.asked, event.payload_bytes) in (("all_gather", half), ("reduce_scatter", 2 * half))
    )
    # As V. Korthikanti et al. (2022) count: each layer gathers and scatters twice forward, and backward the other way
    # round; the embedding scatters, and gathers backward. A pipeline's first step runs forward once more, for shapes.
    layers = LAYERS // 2
    assert sequence["reduce_scatter"] == micro_batches * (4 * layers + 1) + 2 * layers + 1
    assert sequence["all_gather"] == micro_batches * (4 * layers + 1) + 2 * layers


@pytest.mark.slow
def test_it_is_one_process_s_training_and_its_shapes_are_the_real_ones(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--tp", "2", "--pp", "2")
    alone = subprocess.run([sys.executable, TITAN, "--batch", "16"], capture_output=True, text=True, check=True)
    real = trace_program(ForeignScript(TITAN, words), 8)
    assert re.findall("step .*", "".join(capfd.readouterr())) == alone.stdout.splitlines()
    by_shapes = record_by_shapes(ForeignScript(TITAN, (*words, "--quiet")), 8)
    assert by_shapes.representatives == [0] * 4 + [4] * 4
    assert sorted(by_shapes.recorded) == [0, 3, 4, 7]
    for mine, theirs in zip(by_shapes.expand(), real, strict=True):
        counted = collectives(theirs)
        for key in [key for key in counted if key[0] == "all_reduce" and len(key[2]) == 8]:
            del counted[key]  # of the loss that is printed
        assert collectives(mine) == counted
        assert boundaries(mine) == boundaries(theirs)
