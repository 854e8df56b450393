"""Swings of a network's steps along its steepest direction."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
import torch

from replication.studies.swings import STUDY, SwingsSpec
from replication.studies.swings import study as swings
from replication.theory.products import Products
from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.planner.tables.display import run_tables
from syncline.problems import TextGPT
from syncline.runs.run import run_study, steps_of
from syncline.specs import load_spec
from syncline.training import rows_of

TINY = (
    "problem={kind: text-gpt, layers: 2, width: 4, heads: 1, context: 8, batch_size: 2, tied: false}",
    *("stages=[1, 2]", "at_step=3", "window=4", "iterations=2", "draws=2", "batches=2", "seeds=[0]"),
)


def tiny(*overrides: str) -> SwingsSpec:
    return load_spec("basis-rotation-fig12", (*TINY, *overrides), SwingsSpec)


def task():
    return TextGPT(layers=1, width=4, heads=1, context=4, batch_size=2, tied=False).build(
        rows_of(SimulatedCommunicator(1), (0,)), dtype=torch.float64
    )


def test_a_study_leaves_records_rows_and_a_figure(tmp_path):
    spec, told = tiny(), []
    result = run_study(spec, tmp_path / "out", jobs=1, on_progress=told.append)
    assert [(row["method"], row["stages"]) for row in result["rows"]] == [
        (method, stages) for method in ("adam", "basis rotation") for stages in (1, 2)
    ]
    assert (tmp_path / "out" / "figures" / "swings.png").exists()
    table = pq.read_table(tmp_path / "out" / "metrics.parquet").to_pylist()
    assert len(table) == 2 * 2 * 4 and {row["step"] for row in table} == {3, 4, 5, 6}
    assert told[-1] == steps_of(spec) == 4 * 7
    adam, rotated = result["rows"][0], result["rows"][2]
    assert adam["norm_per_parameter"] == adam["own_norm_per_parameter"]  # its basis is the coordinates
    assert rotated["norm_per_parameter"] != rotated["own_norm_per_parameter"]
    (group,) = STUDY.tables(result["rows"], spec)
    assert group.renderables[0].plain == spec.description


def test_without_delay_the_training_is_plain():
    """One stage: the losses are those of the ordinary loop."""
    from syncline.training import train

    spec = tiny("window=2")
    (record, *_) = swings.swing_records(spec, spec.methods[0], 1, 0, lambda done: None)
    comm = SimulatedCommunicator(1)
    plain = spec.problem.build(rows_of(comm, (0,)))
    history = train(plain, spec.methods[0].build(plain.params.items(), comm), (0,), 5, eval_every=5)
    assert record["loss"] == pytest.approx(float(history.evaluation["loss"][-1, 0]), rel=1e-6)


def test_products_are_of_the_mean_loss_of_the_batches():
    """Of one batch twice as those of it once; of two batches, their mean."""
    one = task()
    v = torch.randn(sum(p[0].numel() for p in one.params.values()), generator=torch.Generator().manual_seed(0)).double()
    both = swings.products_of(one, 2).times(v)
    first = swings.products_of(one, 1).times(v)

    class Second:
        params, module = one.params, one.module

        def batch(self, step):
            return one.batch(1)

    assert torch.allclose(both, (first + swings.products_of(Second(), 1).times(v)) / 2, atol=1e-12)


def test_in_its_own_basis_is_the_hessian_of_the_rotated_parameters():
    """``Q^T H Q`` with Q built entry by entry from the bases of one matrix and the identity of the rest."""
    one = task()
    spec = tiny().methods[1]
    optimizer = spec.build([{"params": list(one.params.items()), "matrix": False}], SimulatedCommunicator(1))
    g = torch.Generator().manual_seed(1)
    name = one.matrices[0]
    m, n = one.params[name][0].shape
    bases = [torch.linalg.qr(torch.randn(d, d, generator=g, dtype=torch.float64)).Q for d in (m, n)]
    optimizer.state[one.params[name]].update(left_basis=bases[0][None], right_basis=bases[1][None])
    d = sum(p[0].numel() for p in one.params.values())
    h = torch.randn(d, d, generator=g, dtype=torch.float64)
    plain = Products(d, h.dtype, h.device, lambda v: (h + h.T) @ v)
    own = swings.in_own_basis(plain, one, optimizer)
    q, start = torch.eye(d, dtype=torch.float64), 0
    for other, p in one.params.items():
        size = p[0].numel()
        if other == name:
            q[start : start + size, start : start + size] = torch.kron(bases[0].contiguous(), bases[1].contiguous())
        start += size
    v = torch.randn(d, generator=g, dtype=torch.float64)
    assert torch.allclose(own.times(v), q.T @ (h + h.T) @ q @ v, atol=1e-9)


def test_what_was_not_finished_leaves_no_records():
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    spec = tiny()
    assert swings.swing_records(spec, spec.methods[0], 1, 0, stop) == []
    assert STUDY.rows(spec, []) == run_tables([], spec) == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("problem=digits", "problem: got 'digits'; expected text-gpt"),
        ("stages=[2, 2]", "stages: got ['2', '2']; expected different"),
        ("seeds=[2, 2]", "seeds: got ['2', '2']; expected different"),
        ("methods=[ddp-adam, ddp-adam]", "methods: got ['ddp-adam', 'ddp-adam']; expected different"),
        ("schedule={warmup_steps: 8}", "schedule.warmup_steps: got 8"),
    ],
)
def test_a_mistake_is_told_with_its_path(override, said):
    with pytest.raises(SpecError) as refused:
        tiny(override)
    assert str(refused.value).startswith(said)
