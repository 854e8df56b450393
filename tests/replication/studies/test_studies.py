"""Studies: what no network times, yet leaves a folder like every run."""

from __future__ import annotations

import json
import math

import pyarrow.parquet as pq
import pytest
import torch

from replication.studies.draws import DistributionSpec, draw_of
from replication.studies.quantisers import QuantisersSpec
from replication.studies.quantisers import study as quantisers
from replication.studies.quantisers.figures import quantiser_figures
from replication.studies.vote_ties import VoteTiesSpec
from replication.studies.vote_ties import study as vote_ties
from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.optim import DirectVote, OneBitVote
from syncline.runs.run import run_study, steps_of
from syncline.specs import CompareSpec, load_spec
from tests.runs.examples import trained

TIES = ("votes=20000",)
SMALL = (
    "seeds=[0, 1]",
    "vectors.entries=500",
    "vectors.distributions=[laplace, {kind: stable, alpha: 0.5}]",
    "training.noises=[{alpha: 1.5, noise_scale: 0.1}]",
    "training.methods=[{kind: lion-cub, label: L1, lr: 1}, {kind: lion-cub, label: Linf, lr: 1, p: inf}]",
    "training.steps=4",
    "training.schedule={}",
    "training.rates=[0.01, 0.003]",
    "training.problem={kind: teacher-student, inputs: 3, hidden: 4, batch_size: 2}",
    "workers=2",
)


def ties(*overrides: str) -> VoteTiesSpec:
    return load_spec("lion-cub-ties", (*TIES, *overrides), VoteTiesSpec)


def small(*overrides: str) -> QuantisersSpec:
    return load_spec("lion-cub-quantisers", (*SMALL, *overrides), QuantisersSpec)


def nothing(done: int) -> None:
    pass


def stop(done: int) -> None:
    raise KeyboardInterrupt


# Ties.


@pytest.mark.parametrize(("workers", "rate"), [(1, 0.0), (2, 0.5), (3, 0.0), (4, 6 / 16), (8, 70 / 256)])
def test_fair_votes_tie_as_often_as_coins_balance(workers, rate):
    assert vote_ties.tie_rate(workers) == rate


def test_measured_ties_are_the_binomial_s_and_gaussian_votes_are_the_paper_s(tmp_path):
    result = run_study(ties(), tmp_path / "out", jobs=1)
    rows = {(row["workers"], row["distribution"]): row for row in result["rows"]}
    assert list(rows) == [(4, "gaussian"), (4, "laplace"), (8, "gaussian"), (8, "laplace")]
    for (workers, distribution), row in rows.items():
        exact = math.comb(workers, workers // 2) / 2**workers
        error = math.sqrt(exact * (1 - exact) / row["votes"])
        assert row["tie_rate_exact"] == exact and row["votes"] == 20_000
        assert row["tie_rate"] == row["zero"] == pytest.approx(exact, abs=5 * error)
        assert row["match"] + row["flip"] + row["zero"] == pytest.approx(1.0)
        # Gaussian votes are within a point of the paper's; Laplace votes match and flip two points off.
        off = max(abs(row["match"] - row["paper_match"]), abs(row["flip"] - row["paper_flip"]))
        assert off < 0.013 if distribution == "gaussian" else off > 0.013


def test_the_vote_that_is_counted_is_that_of_every_all_reduce():
    signs = torch.randn(4, 999, generator=torch.Generator().manual_seed(0)).sign()
    comm = SimulatedCommunicator(4)
    one_bit, direct = OneBitVote(ties="zero").verdict(signs, comm, 0), DirectVote().verdict(signs, comm, 0)
    assert torch.equal(one_bit[0], signs.sum(0).sign().to(one_bit.dtype))
    assert torch.equal(direct.double(), one_bit.double())


# Quantisers.


def test_vectors_are_quantised_as_the_parts_say():
    spec = small("vectors.distributions=[laplace]", "workers=8", "vectors.entries=20000")
    records = quantisers.vector_records(spec, spec.vectors.distributions[0], nothing)
    assert len(records) == 2 * 9
    rates = {r["quantiser"]: r["match"] for r in records if r["seed"] == 0}
    # Of one vote, the geometric mean, the mean and the maximum of 8 workers: 61, 87, 93 and 82 in a prototype.
    for name, expected in {"vote": 0.61, "L0.01": 0.87, "L1": 0.93, "Linf": 0.82}.items():
        assert rates[name] == pytest.approx(expected, abs=0.025)
    for record in records:
        assert record["match"] + record["flip"] + record["zero"] == pytest.approx(1.0)


def test_the_heaviest_tails_leave_l1_with_zeros_and_small_powers_with_votes():
    spec = small("workers=8", "vectors.entries=20000")
    records = quantisers.vector_records(spec, spec.vectors.distributions[1], nothing)
    for seed in (0, 1):
        match = {r["quantiser"]: r["match"] for r in records if r["seed"] == seed}
        assert match["L0.01"] > 0.7 > match["vote"] > 0.45 > match["L1"] > match["Linf"]


def test_a_training_takes_the_rate_that_was_best_on_other_seeds():
    spec = small("training.steps=20", "training.rates=[0.01, 1e-9]")
    told: list[int] = []
    records = quantisers.training_records(spec, spec.training.noises[0], spec.training.methods[0], told.append)
    tuning, final = [r for r in records if r["stage"] == "tuning"], [r for r in records if r["stage"] == "final"]
    assert [(r["lr"], r["seed"]) for r in tuning] == [(lr, seed) for lr in (0.01, 1e-9) for seed in (100, 101)]
    assert [(r["lr"], r["seed"]) for r in final] == [(0.01, 0), (0.01, 1)]
    assert told == sorted(told) and told[-1] == 60 == quantisers.quantiser_pieces(spec)[-1].length


@pytest.mark.parametrize(
    ("medians", "rate"), [([3.0, 1.0, 2.0], 0.2), ([math.inf, 1.0, 1.0], 0.2), ([math.inf] * 3, 0.1)]
)
def test_the_best_rate_has_the_lowest_median(medians, rate):
    assert quantisers.best_rate((0.1, 0.2, 0.3), medians) == rate


def test_seeds_that_were_lost_count_as_worse():
    spec = small()
    own = quantisers.RECORD | {"part": "training", "distribution": "stable 1.5", "stage": "final", "lr": 0.1}
    losses = {"L1": [1.0, 2.0], "Linf": [math.nan, 1.5]}
    records = [own | {"quantiser": q, "seed": s, "loss": loss} for q, of in losses.items() for s, loss in enumerate(of)]
    rows = {row["quantiser"]: row for row in quantisers.quantiser_rows(spec, records)}
    assert (rows["L1"]["worse_than_reference"], rows["Linf"]["worse_than_reference"]) == (0, 1)
    assert (rows["L1"]["loss"], rows["Linf"]["loss_min"], rows["Linf"]["loss_max"]) == (1.5, 1.5, 1.5)


def test_a_figure_takes_alpha_itself_and_not_its_name():
    spec = small("training.noises=[{alpha: 1.25, noise_scale: 0.1}]")
    own = quantisers.RECORD | {"part": "training", "distribution": "stable 1.25", "stage": "final", "lr": 0.1}
    rows = quantisers.quantiser_rows(spec, [own | {"quantiser": q, "seed": 0, "loss": 1.0} for q in ("L1", "Linf")])
    assert [row["alpha"] for row in rows] == [1.25, 1.25]
    renamed = [row | {"distribution": "as people call it"} for row in rows]
    (ax,) = dict(quantiser_figures(spec, [], renamed))["loss_over_tails"].axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1.25"]


# Folders.


def test_a_study_leaves_a_folder_with_records_rows_and_figures(tmp_path):
    spec, told = small(), []
    result = run_study(spec, tmp_path / "out", jobs=1, on_progress=told.append)
    folder = tmp_path / "out"
    assert result["folder"] == str(folder) and not result["interrupted"]
    files = sorted(path.name for path in folder.rglob("*.*"))
    assert files == [
        "loss_over_tails.png",
        "manifest.json",
        "metrics.parquet",
        "run.json",
        "sign_shares.png",
        "spec.yaml",
    ]
    assert json.loads((folder / "run.json").read_text())["rows"] == json.loads(json.dumps(result["rows"]))
    assert load_spec(folder / "spec.yaml", (), QuantisersSpec) == spec
    table = pq.read_table(folder / "metrics.parquet").to_pylist()
    assert len(table) == 2 * 2 * 9 + 2 * (2 * 2 + 2)
    assert [(row["part"], row["distribution"]) for row in result["rows"]] == (
        [("vectors", "laplace")] * 9 + [("vectors", "stable 0.5")] * 9 + [("training", "stable 1.5")] * 2
    )
    assert told[-1] == steps_of(spec) == 2 * 2 + 2 * 4 * 3


def test_the_number_of_processes_changes_no_number(tmp_path):
    one, two = (run_study(small(), tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert one["rows"] == two["rows"]
    tables = [pq.read_table(tmp_path / jobs / "metrics.parquet") for jobs in "12"]
    assert tables[0].equals(tables[1])


def test_what_was_not_finished_leaves_no_records():
    spec = small()
    assert quantisers.vector_records(spec, spec.vectors.distributions[0], stop) == []
    assert quantisers.training_records(spec, spec.training.noises[0], spec.training.methods[0], stop) == []
    assert vote_ties.vote_blocks(ties(), 4, DistributionSpec(kind="gaussian"), stop) == []
    assert quantisers.quantiser_rows(spec, []) == vote_ties.tie_rows(ties(), []) == []


@pytest.mark.parametrize(("fields", "share"), [
    ({"kind": "gaussian"}, 0.6745),
    ({"kind": "laplace"}, math.log(2)),
    ({"kind": "log-normal", "sigma": 2.0}, 1.0),
    ({"kind": "stable", "alpha": 1.0}, 1.0),
])  # fmt: skip
def test_distributions_have_their_median_magnitude(fields, share):
    x = draw_of(DistributionSpec(**fields))(torch.Generator().manual_seed(1), (40_000,))
    # Half of the entries are smaller in magnitude: within five standard errors of a fair coin.
    assert (x.abs() < share).double().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / 200)
    assert (x > 0).double().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / 200)


REFUSED = [
    (small, "vectors.distributions=[stable]", "vectors.distributions.0.alpha: got None; expected a number above 0"),
    (small, "vectors.distributions=[{kind: laplace, alpha: 1}]", "vectors.distributions.0.alpha: got 1.0; expected"),
    (small, "vectors.distributions=[laplace, laplace]", "vectors.distributions: got ['laplace', 'laplace']; expected"),
    (small, "vectors.bits=2", "vectors.bits: got 2; expected at least 3 for sums over 2 workers"),
    (small, "training.reference=L2", "training.reference: got 'L2'; expected one of the methods: 'L1', 'Linf'"),
    (small, "training.problem=digits", "training.problem: got 'digits'; expected a problem with stable noise"),
    (small, "training.tuning_seeds=[1, 5]", "training.tuning_seeds: got (1, 5); expected seeds that are not among"),
    (small, "seeds=[1, 1]", "seeds: got ['seed 1', 'seed 1']; expected different names"),
    (ties, "groups.0.workers=8", "groups: got ['8 workers', '8 workers']; expected different names"),
]


@pytest.mark.parametrize(("load", "override", "said"), REFUSED, ids=[override for _, override, _ in REFUSED])
def test_a_mistake_is_told_with_its_path(load, override, said):
    with pytest.raises(SpecError) as refused:
        load(override)
    assert str(refused.value).startswith(said)


# Zeros of a one-bit vote.


def test_always_plus_drifts_by_every_step_and_alternating_by_none():
    overrides = ("steps=64", "seeds=[0, 1]", "eval_every=0")
    done = {one.method: one.history for one in trained(load_spec("lion-cub-zeros", overrides, CompareSpec))}
    lr, steps = 2**-8, 64  # powers of two: the drift is exact
    flat = {method: history.trace["position"][:, :, 1] for method, history in done.items()}
    assert (flat["always plus"][-1] == -lr * steps).all()
    assert (flat["alternate"][1::2] == 0).all() and (flat["alternate"][0::2] == -lr).all()
    assert (flat["kept"] == 0).all()
    assert (abs(flat["random"]).max(0) > lr).all()
