"""What nobody says: what they would otherwise run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncline.costmodel import HARDWARE, MODELS
from syncline.planner.projection.project import project
from syncline.specs import ProjectSpec, load_spec

N = MODELS["gpt-160m"].parameters


def rows_of(*overrides: str, methods: str = "[ddp-adam, diloco, curvadion]", **on: Any) -> dict[str, dict[str, Any]]:
    given = [f"methods={methods}", f"networks=[{json.dumps(on.get('on', '10gbe'))}]", *overrides]
    spec = load_spec("project-gpt-160m", given, ProjectSpec)
    return {row["method"]: row for row in project(spec)}


def test_gradients_travel_in_what_the_hardware_computes_in_and_parameters_in_fp32() -> None:
    for hardware, precision in (("h100", "bf16"), ("v100", "fp16"), ("cpu-core", "fp32")):
        rows = rows_of(f"compute.hardware={hardware}")
        width = 4 if precision == "fp32" else 2
        assert rows["ddp-adam"]["precision"] == precision
        assert rows["ddp-adam"]["bytes_per_worker"] == width * N
        assert rows["diloco"]["bytes_per_worker"] == 4 * N / 32
        assert rows["curvadion"]["bytes_per_worker"] == pytest.approx(4 + width * N * 99 / 9984)


def test_a_precision_or_a_wire_that_is_asked_for_holds() -> None:
    assert rows_of("precision=fp32")["ddp-adam"]["bytes_per_worker"] == 4 * N
    (row,) = rows_of(methods="[{kind: ddp, lr: 0.1, wire: dense}]").values()
    assert (row["precision"], row["bytes_per_worker"]) == ("bf16", 4 * N)
    (seconds,) = rows_of("compute=1 s", methods="[ddp-adam]").values()
    assert seconds["precision"] == "fp32"


def test_gradients_that_are_computed_in_it_are_not_encoded() -> None:
    told = rows_of("compute.encode_bandwidth=1e9", methods="[ddp-adam, {kind: ddp, lr: 0.1, wire: fp16, label: half}]")
    assert told["ddp-adam"]["encode_s"] == 0
    assert told["half"]["encode_s"] == pytest.approx(4 * N / 1e9)


def test_a_flag_is_no_ring_and_a_link_that_knows_its_library_keeps_it() -> None:
    rows = rows_of("workers=64")
    assert rows["curvadion"]["algorithm"].split(", ")[-1] == "recursive-doubling"
    link = {"latency": "50us", "bandwidth": "10 Gbit/s", "gloo": {}, "name": "sockets"}
    assert rows_of("workers=64", on=link)["ddp-adam"]["algorithm"] == "gloo-ring"
    assert rows_of("workers=64", "algorithm=ring")["curvadion"]["algorithm"] == "ring"


def test_data_parallelism_over_two_sites_is_hierarchical() -> None:
    (row,) = rows_of("workers=16", on="two-sites", methods="[ddp-adam]").values()
    assert "hierarchical" in row["algorithm"]
    (flat,) = rows_of("workers=16", on="wan", methods="[ddp-adam]").values()
    assert row["step_time_s"] < flat["step_time_s"]


def held(*overrides: str, methods: str = "[ddp-adam]", **on: Any) -> tuple[str, int, bool]:
    (row,) = rows_of("model=mt-dao-1.3b", "tokens_per_worker=32768", *overrides, methods=methods, **on).values()
    return row["sharding"], row["micro_batches"], row["fits"]


def test_as_little_is_shared_out_as_fits_and_in_as_few_micro_batches() -> None:
    assert held("compute.hardware=h200") == ("none", 1, True)
    assert held("compute.hardware=a100-40gb") == ("none", 8, True)
    assert held("compute.hardware=rtx-4090", "workers=8")[0] == "optimizer"
    assert held("compute.hardware=v100", "workers=64")[2] is True
    # Of 1.3e9 parameters 2 bytes each and a half of 16 are 13 of 16 GiB, which leaves too little for a sequence.
    assert held("compute.hardware=v100", "workers=2")[0] == "full"
    # Of 6.7e9 2 bytes each and an eighth of 14 are 23 of 24 GiB.
    assert held("compute.hardware=rtx-4090", "workers=8", "model=gpt3-6.7b")[0] == "full"


def test_what_is_asked_for_is_not_changed() -> None:
    card = "compute.hardware=rtx-4090"
    assert held(card, "workers=8", "memory.sharding=none") == ("none", 16, False)
    assert held(card, "workers=8", "memory.sharding=full", "memory.micro_batches=32") == ("full", 32, True)
    assert held(card, "workers=8", "memory.activations=null", "memory.sharding=optimizer")[1] == 1


def test_a_replica_of_another_method_is_not_shared_out() -> None:
    assert held("compute.hardware=rtx-4090", "workers=8", methods="[diloco]") == ("none", 16, False)


def test_micro_batches_part_the_sequences_evenly() -> None:
    # 48 sequences of 2,048: not in five of 9.6.
    given = "compute.hardware=a100-40gb", "tokens_per_worker=98304", "memory.activations=selective"
    sharding, micro_batches, fits = held(*given)
    assert (sharding, fits) == ("none", True) and 48 % micro_batches == 0
    one_less = max(n for n in range(1, micro_batches) if 48 % n == 0)
    assert held(*given, f"memory.micro_batches={one_less}", "memory.sharding=none")[2] is False


def test_silent_micro_batches_leave_less_to_hide_behind() -> None:
    exposed = [
        rows_of(f"memory.micro_batches={n}", methods="[ddp-adam]")["ddp-adam"]["exposed_communication_s"]
        for n in (1, 4, 16)
    ]
    assert exposed == sorted(exposed) and exposed[0] < exposed[-1]


def test_settings_that_are_held_in_different_ways_are_those_of_each() -> None:
    from syncline.planner.projection.project import project_all

    def spec(workers: int) -> ProjectSpec:
        given = ["model=mt-dao-1.3b", "compute.hardware=rtx-4090", f"workers={workers}", "networks=[10gbe, ib-hdr]"]
        return load_spec("project-gpt-160m", given, ProjectSpec)

    counts = (1, 2, 4, 8, 64)
    together = list(project_all([spec(workers) for workers in counts]))
    assert together == [row for workers in counts for row in project(spec(workers))]
    assert len({(row["sharding"], row["micro_batches"]) for row in together if row["method"] == "ddp-adam"}) > 1
    assert all(row["memory_bytes"] <= HARDWARE["rtx-4090"].memory_bytes for row in together if row["fits"])
