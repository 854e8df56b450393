"""Placements at equal counts, measures along trainings and crossings, as a replication keeps them."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from replication.replications.averages import read_averages
from replication.replications.crossings import below_from, crossing_rows
from replication.replications.replicate import replicate
from replication.replications.spec import Cell, Crossing, ReplicationSpec, load_replication
from replication.replications.stages import ReplicationStage, final_stages, placed_as_often, search_stage
from syncline.errors import SpecError, SynclineError
from syncline.fields import validate
from syncline.methods.dion import placed_steps
from syncline.runs.sweep.jobs import Allowance
from syncline.specs.load import with_overrides

STEPS, TUNE = 12, {"lr": "0.01..0.1"}
EVEN_IS_WORSE = {"lower": "triggered", "higher": "even @ as-many"}
PLACED = {"kind": "placed-dion", "num_averages": 3, "steps": STEPS, "lr": 0.02}
FIELDS: dict[str, Any] = {
    "kind": "replication",
    "name": "placed",
    "training": {
        "problem": {"kind": "digits", "hidden": 6, "batch_size": 4}, "workers": 2, "steps": STEPS, "eval_every": 4,
        "compute": {"seconds": 0.001},
    },
    "methods": [
        {"method": {"kind": "curvadion", "label": "triggered", "threshold": 0.25, "lr": 0.02}, "tune": TUNE},
        {"method": {**PLACED, "label": "even"}, "tune": TUNE},
        {"method": {**PLACED, "label": "drawn", "placement": "random"}, "tune": TUNE},
        {"method": {"kind": "local", "label": "local", "period": 4, "lr": 0.01}, "tune": TUNE},
    ],
    "search": {"trials": 1, "seeds": [101]},
    "rerun": {"top_trials": 1, "seeds": [102]},
    "finals": {"seeds": 2, "methods": ["triggered", "local"]},
    "extras": [
        {"name": "as-many", "methods": ["even", "drawn"], "seeds": 2, "match_averages_of": "triggered"},
        {"name": "rare", "methods": ["triggered"], "seeds": 2, "set": {"method.threshold": 0.6}},
        {"name": "as-many-rare", "methods": ["even"], "seeds": [1], "match_averages_of": "triggered @ rare"},
        {"name": "longer", "methods": ["local"], "seeds": 1, "set": {"steps": 16}},
    ],
    "measured": [{"name": "rounds", "methods": ["local", "triggered"], "seeds": 1, "measures": ["rounds"]}],
    "crossings": [{"lower": "triggered", "higher": "local"}],
    "claims": [
        {"claim": "the trigger wins", "comparisons": [EVEN_IS_WORSE], "settled_by": "more"},
        {"claim": "by far", "comparisons": [EVEN_IS_WORSE | {"margin": 9.0}], "settled_by": "more"},
    ],
}  # fmt: skip


def placed(changes: dict[str, Any] | None = None) -> ReplicationSpec:
    return validate(ReplicationSpec, with_overrides(FIELDS, changes or {}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    result = replicate(placed(), tmp_path_factory.mktemp("whole") / "out", jobs=1)
    assert result.num_remaining == 0
    return result


def test_placements_average_as_often_as_the_trigger_did_on_each_seed(whole):
    averages = read_averages(whole.tables())
    for cell, counted, seeds in [
        (Cell("even", "as-many"), Cell("triggered"), (0, 1)),
        (Cell("drawn", "as-many"), Cell("triggered"), (0, 1)),
        (Cell("even", "as-many-rare"), Cell("triggered", "rare"), (1,)),
    ]:
        assert tuple(averages[cell]) == seeds
        for seed in seeds:
            count = sum(averages[counted][seed].averaged)
            at = [t for t, one in enumerate(averages[cell][seed].averaged) if one]
            assert at == list(placed_steps(count, STEPS, "even" if cell.method == "even" else "random", seed))
            assert 0 < count < STEPS and averages[cell][seed].trigger is None
            assert whole.last("averages")[counted][seed] == whole.last("averages")[cell][seed] == count
    for cell, threshold in ((Cell("triggered"), 0.25), (Cell("triggered", "rare"), 0.6)):
        for one in averages[cell].values():  # what was kept is what decided
            assert one.averaged == [value > threshold for value in one.trigger]
    assert Cell("local") not in averages and set(whole.last("averages")[Cell("local")].values()) == {None}


def test_finals_train_those_that_are_named_and_extras_as_long_as_they_say(whole):
    finals = pq.read_table(whole.folder / "finals.parquet").to_pylist()
    assert {row["method"] for row in finals} == {"triggered", "local"}
    longer = pq.read_table(whole.folder / "extra-longer.parquet").to_pylist()
    assert max(row["step"] for row in longer) == 16
    assert whole.planned == {
        "search": 4, "rerun": 4, "finals": 4, "extra as-many": 4, "extra rare": 2, "extra as-many-rare": 1,
        "extra longer": 1, "measured rounds": 2,
    }  # fmt: skip


def test_on_the_network_of_the_trainings_recorded_averages_are_their_clock(whole):
    """Seed by seed, flags and averages, by another account than the ledger; on a slow network they take longer."""
    rows = {(row["method"], row["setting"], row["network"]): row for row in whole.networks}
    own = whole.last("step_time_s"), whole.last("bytes_per_worker")
    for cell, extra in [("triggered", ""), ("triggered", "rare"), ("even", "as-many"), ("drawn", "as-many")]:
        row, wan = (rows[cell, extra or "finals", name] for name in ("10gbe", "wan"))
        step_s, sent = (list(one[Cell(cell, extra)].values()) for one in own)
        assert row["timed_by"] == "averages" and row["step_time_s"] == pytest.approx(sum(step_s) / 2, rel=1e-12)
        assert row["bytes_per_worker"] == pytest.approx(sum(sent) / 2) and wan["step_time_s"] > 1.5 * row["step_time_s"]
    assert rows["local", "finals", "wan"]["timed_by"] == "calls"
    assert "timed seed by seed with the averages" in " ".join((whole.folder / "README.md").read_text().split())


def test_what_was_measured_is_kept_and_judges_nothing(whole):
    rows = pq.read_table(whole.folder / "measured-rounds.parquet").to_pylist()
    assert {row["method"] for row in rows} == {"local"}  # a trigger of gradients averages no parameters
    assert {row["step"] for row in rows} == {4, 8, 12} and set(rows[0]) >= {"seed", "measure", "layer", "value"}
    assert {row["claim"]: row["state"] for row in whole.verdicts} == {
        "the trigger wins": "unknown",
        "by far": "unknown",
    }
    near, far = (row["difference"] for row in whole.verdicts)
    assert far == pytest.approx(near + 9.0) and whole.verdicts[1]["comparison"] == "triggered + 9 < even @ as-many"
    assert {cell.extra for cell in whole.losses()} == {"", "as-many", "rare", "as-many-rare", "longer"}


def test_the_page_tells_when_it_was_averaged_and_what_was_measured(whole):
    page = (whole.folder / "README.md").read_text()
    for words in (
        "## When it was averaged", "| rare | triggered |", "## Along a training: rounds", "| parameter_variance |",
        "## From which step", "| triggered < local | 12 |", "`as-many` is as many averages on each seed as triggered",
    ):  # fmt: skip
        assert words in page
    for name in ("averages.png", "measured-rounds.png"):
        assert (whole.folder / name).stat().st_size > 5000


@pytest.mark.slow
def test_in_pieces_it_is_the_same(whole, tmp_path):
    """A piece can end between the seeds of an extra."""
    result = replicate(placed(), tmp_path, jobs=1, allowance=Allowance(max_trainings=13))
    assert result.finished == {"search": 4, "rerun": 4, "finals": 4, "extra as-many": 1}
    assert replicate(placed(), tmp_path, jobs=1).verdicts == whole.verdicts
    for path in whole.folder.glob("*.parquet"):
        assert pq.read_table(path).to_pylist() == pq.read_table(tmp_path / path.name).to_pylist(), path.name


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"extras.0.match_averages_of": "trigered"}, r"match_averages_of: got 'trigered'; expected .*'triggered'"),
        ({"extras.0.match_averages_of": "triggered @ rare"}, "match_averages_of: got 'triggered @ rare'"),  # later
        ({"extras.0.seeds": 3}, r"extras.0.seeds: got \[2\]; expected seeds of triggered, whose averages are counted"),
        ({"extras.1.set": {}}, "extras.1.set: got {}; expected what is set otherwise, or match_averages_of"),
        ({"finals.methods": ["lokal"]}, "finals.methods: got 'lokal'; expected one of .*'local'"),
        ({"measured.0.methods": ["x"]}, "measured.0.methods: got 'x'"),
        ({"crossings.0.lower": "even"}, "crossings.0: got 'even'; expected one of .*'local', 'local @ longer'"),
        ({"measured.0.seeds": [101]}, r"measured.0.seeds: got \[101\]; expected seeds that search has not seen"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_or_watched_is_refused(changes, line):
    with pytest.raises(SpecError, match=line):
        placed(changes)


def test_only_what_triggers_says_how_often_it_averaged(tmp_path):
    with pytest.raises(SpecError, match=r"^extras.0.match_averages_of: got 'local'; expected a method with a trigger"):
        replicate(placed({"extras.0.match_averages_of": "local"}), tmp_path / "out", jobs=1)
    with pytest.raises(SpecError, match=r"watch\.measures"):
        replicate(placed({"measured.0.measures": ["round"]}), tmp_path / "out", jobs=1)
    with pytest.raises(SynclineError, match="only methods with a trigger do"):
        placed_as_often(Cell("local"), 0, None)


def test_crossings_are_from_a_step_to_the_end():
    down, flat = {1: 3.0, 2: 2.0, 3: 1.0}, {1: 2.0, 2: 2.5, 3: 0.5}
    assert below_from(down, {1: 2.5, 2: 2.5, 3: 2.5}) == 2 and below_from(flat, down) == 3
    assert below_from(down, flat) is None and below_from(down, {9: 1.0}) is None
    losses = {Cell("a"): {0: down, 1: down}, Cell("b"): {0: {1: 9.0, 2: 1.0, 3: 9.0}, 1: flat}}
    (row,) = crossing_rows([Crossing(lower="a", higher="b"), Crossing(lower="a", higher="c")], losses)
    assert row == {"lower": "a", "higher": "b", "steps": {0: 3, 1: None}, "last": 3}


IDENTITIES = {
    "search": "66a88f6c96e7abeb6759", "finals": "5ba610e6d077816da44d", "extra K8": "c54ed70279c3a4dd15cc",
    "extra K128": "0f064728f6520748c6d2", "extra M8": "eb2919fba3512f3b411f",
    "extra slow-Kx128": "162647aaa20aa281707a",
}  # fmt: skip
"""Of `mt-dao` with the knobs that its file says: with other digests tables that are kept are another spec's."""


def test_stages_that_were_trained_are_still_the_same_stages():
    spec = load_replication("mt-dao")
    own = {one.label: dict(one.method) for one in spec.methods}
    stages = {one.name: one.identity for one in (search_stage(spec), *final_stages(spec, own, lambda _: {}))}
    assert {name: stages[name] for name in IDENTITIES} == IDENTITIES
    one = ReplicationStage(
        "extra a", {}, [], (0, 1), by_seed={0: {"method.num_averages": 3}, 1: {"method.num_averages": 4}}
    )
    other = ReplicationStage(
        "extra a", {}, [], (0, 1), by_seed={0: {"method.num_averages": 3}, 1: {"method.num_averages": 5}}
    )
    assert one.identity != other.identity and [part.changes for part in one.parts()] == list(one.by_seed.values())
