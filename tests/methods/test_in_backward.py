"""DiLoCo whose pseudo-gradient travels layer by layer beside the backward pass of its last local step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncline as sl
from syncline.methods import method_of

FIELDS = {"kind": "diloco", "lr": 0.003, "wire": "bf16"}
ASKED = {"model": "gpt-160m", "hardware": "h100", "workers": 4, "precision": "bf16", "thresholds": False}


def steps_of(network: str, *methods: object, **more: object) -> list[float]:
    rows = sl.project(**ASKED | more, methods=list(methods), networks=[network]).rows
    return [row["step_time_s"] for row in rows]


@pytest.mark.parametrize("network", ["wan", "10gbe", "infiniband", "two-sites"])
def test_in_every_step_it_is_data_parallelism(network: str) -> None:
    ddp, hidden = steps_of(network, "ddp-adam", FIELDS | {"period": 1, "in_backward": True})
    assert hidden == pytest.approx(ddp, rel=1e-9)


@given(st.sampled_from([1, 4, 32, 100]), st.sampled_from(["10gbe", "infiniband", "25gbe"]))
def test_it_hides_a_part_of_the_backward_pass_and_no_more(period: int, network: str) -> None:
    plain, hidden = (FIELDS | {"period": period, "in_backward": one, "label": str(one)} for one in (False, True))
    whole, less = steps_of(network, plain, hidden, overlap="ddp")
    (alone,) = steps_of(network, plain, overlap="none")
    assert alone == whole  # nothing of it was beside computing
    (row,) = sl.project(**ASKED, methods=[plain], networks=[network]).rows
    assert less >= whole - 2 / 3 * row["compute_s"] / period - 1e-12


@pytest.mark.parametrize("overlap", ["none", "ddp"])
@pytest.mark.parametrize("strides", [1, 3])
def test_one_fragment_at_once_has_the_clock_of_diloco(overlap: str, strides: int) -> None:
    stream = {"fragments": 1, "strides": strides, "tau": 0, "in_backward": True}
    streaming = {"kind": "streaming-diloco", "lr": 0.003, "wire": "bf16", "period": 8, "stream": stream}
    diloco = FIELDS | {"period": 8, "in_backward": True}
    fragment, whole = steps_of("10gbe", streaming, diloco, overlap=overlap)
    assert fragment == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("sequences", [1, 4])
def test_a_fragment_in_the_backward_pass_is_hidden_for_longer(sequences: int) -> None:
    """Of several micro-batches only the last has a backward pass that sends."""
    stream = {"fragments": 4, "strides": 3, "tau": 0}
    streaming = {"kind": "streaming-diloco", "lr": 0.003, "period": 8}
    memory = {"micro_batches": sequences}
    after, during = (
        steps_of("10gbe", streaming | {"stream": stream | {"in_backward": inside}}, memory=memory)[0]
        for inside in (False, True)
    )
    (row,) = sl.project(**ASKED, methods=[streaming | {"stream": stream}], networks=["10gbe"], memory=memory).rows
    hidden_s = (after - during) * 8 / 4
    assert 0 < hidden_s <= 2 / 3 * row["compute_s"] / sequences + 1e-9


def test_without_overlap_it_is_diloco() -> None:
    plain, hidden = (FIELDS | {"period": 8, "in_backward": one, "label": str(one)} for one in (False, True))
    assert len(set(steps_of("10gbe", plain, hidden, overlap="none"))) == 1


@pytest.mark.parametrize("more", [{"clip_norm": 1.0}, {"compressor": "top-k", "wire": None}])
def test_what_needs_all_gradients_at_once_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(sl.SpecError, match="in_backward"):
        method_of(FIELDS | {"in_backward": True} | more)


def test_a_training_is_the_same_and_its_clock_is_shorter() -> None:
    both = [FIELDS | {"wire": None, "period": 4, "in_backward": one, "label": str(one)} for one in (False, True)]
    asked = {"problem": "digits", "workers": 2, "networks": ["10gbe"], "bucket_size": "1 KiB", "algorithm": "ring"}
    plain, hidden = sl.compare(**asked, methods=both, steps=8, seeds=1, compute={"seconds": 0.01}).rows
    assert hidden["loss"] == plain["loss"] and hidden["step_time_s"] < plain["step_time_s"]
    assert hidden["bytes_per_worker"] == plain["bytes_per_worker"]
