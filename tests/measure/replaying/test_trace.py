"""What a trace tells: rows, lines, what decides; held to counts by hand."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import syncline as sl
from syncline.costmodel import HARDWARE, Link, Sites
from syncline.costmodel.bases import communication_uncertainty, computing_uncertainty
from syncline.errors import SpecError
from syncline.measure.recording.ranks import ForeignScript, parse_script
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Event,
    Loss,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    Waited,
)
from syncline.measure.replaying.bottlenecks import sensitivities
from syncline.measure.replaying.clocks import (
    TraceRecord,
    bytes_by_step,
    line_rows,
    loss_reached_s,
    loss_rows,
    losses_by_step,
    reachable_loss,
    replay_and_time,
    replay_rows,
    timed_replays,
)
from syncline.measure.replaying.scenario import Changes, ReplayedOn, remove_line, remove_overlap
from syncline.measure.replaying.tables import describe_sensitivities
from syncline.measure.replaying.trace import check_trace, read_records, script_names, trace, whatif
from syncline.planner.bounds import at_bounds, combined_bounds
from syncline.runs.folders.run_index import run_entry
from tests.measure.replaying.records import LINK, SLOW, both, rank, started
from tests.test_docs import documented

RING = ReplayedOn([LINK], SLOW, "ring")


def told_of(ranks: list[RankRecord], question: ReplayedOn = RING) -> dict[str, object]:
    (row,) = replay_rows(timed_replays([TraceRecord("train", ranks)], question), question)
    return row


def test_a_row_is_of_the_steps_after_the_first() -> None:
    """Two seconds of computing and 5.002 s of a ring, of which one second is hidden."""
    late = [rank(Computed(0), *one.events) for one in both(3)]  # what comes before the first step is no step's
    row = told_of(late)
    expected = {"step_time_s": 6.002, "compute_s": 2.0, "communication_s": 5.002, "exposed_communication_s": 4.002}
    for name, value in expected.items():
        assert row[name] == pytest.approx(value), name
    assert row["wall_clock_s"] == pytest.approx(1 + 3 * 6.002)
    assert (row["bytes_per_worker"], row["steps"], row["workers"]) == (5e6, 3, 2)
    assert row["unchanged_step_time_s"] == row["step_time_s"]


def test_bounds_are_those_of_computing_and_of_communication() -> None:
    """The row's bounds are those of replays in which one of both is at a bound (docs/trust.md)."""
    row, record = told_of(both(3)), TraceRecord("train", both(3))
    bounds = computing_uncertainty(SLOW, None), communication_uncertainty(LINK, "ring")
    varied = [np.array(replay_and_time(record, LINK, RING, factors)[1].step_time_s) for factors in at_bounds(*bounds)]
    low, high = combined_bounds(np.array(6.002), varied)
    assert (row["step_time_low_s"], row["step_time_high_s"]) == pytest.approx((float(low), float(high)))
    assert low < 6.002 < high
    assert "collectives of NCCL and gloo" in str(row["basis"])


def test_waits_are_charged_to_the_line_that_began_what_is_waited_for() -> None:
    """Twice the line's 5 MB: one call is waited for with nothing to do, the other is done when it is asked for."""

    def program() -> list[Event]:
        events: list[Event] = []
        for number in range(3):
            first, second = (
                started(2 * number + i + 1, 2 * number + i, nbytes) for i, nbytes in ((0, 5_000_000), (1, 500_000))
            )
            events += [first, Waited(first.call), second._replace(site="train.py:9"), Computed(0)]
            events += [Waited(second.call), Stepped()]
        return events

    record = TraceRecord("train", [rank(*program()) for _ in range(2)])
    replayed, clock = replay_and_time(record, LINK, RING)
    sites = {row["site"]: row for row in line_rows(record, LINK, replayed)}
    assert sites["train.py:7"]["exposed_communication_s"] == pytest.approx(5.002)
    assert sites["train.py:9"]["exposed_communication_s"] == pytest.approx(0.0, abs=1e-9)
    assert sites["train.py:9"]["communication_s"] == pytest.approx(0.502)
    assert [sites["train.py:9"][name] for name in ("calls", "bytes", "collective")] == [1, 500_000, "all_reduce"]
    total_s = sum(row["exposed_communication_s"] for row in sites.values())
    assert total_s == pytest.approx(clock.exposed_communication_s)


def messages() -> list[RankRecord]:
    tags = [("all", 0, 1, number) for number in range(3)]
    sent = [(MessageSent(1 + tag[3], 1, 2_000_000, tag, "p.py:1"), Computed(0), Stepped()) for tag in tags]
    awaited = [
        (MessageAwaited(1 + tag[3], 0, tag, "p.py:2"), Waited(1 + tag[3]), Computed(0), Stepped()) for tag in tags
    ]
    return [rank(*(event for step in steps for event in step)) for steps in (sent, awaited)]


def test_a_message_is_waited_for_by_the_line_that_asks_for_it() -> None:
    """Each takes two seconds and leaves when the one before has: rank 1 waits a second in each step."""
    record = TraceRecord("pipe", messages())
    replayed, clock = replay_and_time(record, LINK, RING)
    sites = {row["site"]: row for row in line_rows(record, LINK, replayed)}
    assert sites["p.py:2"]["exposed_communication_s"] == pytest.approx(clock.exposed_communication_s)
    assert clock.exposed_communication_s == pytest.approx(0.5)
    assert clock.bytes_per_worker == 1_000_000
    assert bytes_by_step(record).tolist() == [1e6, 1e6, 1e6, 0.0]


def test_a_collective_of_a_single_rank_sends_nothing() -> None:
    """Groups of one rank, as of a mesh with a dimension of 1, call collectives, too."""
    alone = [
        rank(*(event._replace(ranks=(0,)) if isinstance(event, Started) else event for event in one.events))
        for one in both(3)
    ]
    assert bytes_by_step(TraceRecord("train", both(3))).tolist() == [5e6, 5e6, 5e6, 0.0]
    assert bytes_by_step(TraceRecord("train", alone)).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_losses_are_means_of_a_step_s_backward_passes_and_of_the_ranks() -> None:
    ranks = [
        rank(Loss(1.0), Loss(3.0), Stepped(), Loss(1.0), Stepped(), Stepped()),
        rank(Loss(4.0), Stepped()),
    ]
    record = TraceRecord("train", ranks)
    assert losses_by_step(record).tolist()[:2] == [3.0, 1.0] and np.isnan(losses_by_step(record)[2])
    rows = loss_rows([record])
    assert [(row["step"], row["train_loss"]) for row in rows[:2]] == [(1, 3.0), (2, 1.0)]


def test_targets_are_reached_by_the_mean_over_the_last_tenth() -> None:
    losses = np.linspace(4.0, 2.1, 20)
    noisy = losses.copy()
    noisy[5] = 0.0
    _, clock = replay_and_time(TraceRecord("train", both(20)), LINK, RING)
    assert loss_reached_s(clock, losses, 3.0) == pytest.approx(6.002 * (11 + 0.5 + 0.5 / 19 * 0.0), rel=0.02)
    assert loss_reached_s(clock, losses, None) == np.inf
    assert reachable_loss([losses, noisy]) == pytest.approx(np.mean(losses[-2:]))
    assert reachable_loss([losses[::-1]]) is None


def test_a_loss_that_is_lost_is_told() -> None:
    ranks = [rank(Loss(1.0), Computed(0), Stepped(), Loss(float("nan")), Computed(0), Stepped()) for _ in range(2)]
    row = told_of(ranks)
    assert (row["diverged_at"], row["loss"], row["last_loss"]) == (1, None, None)


def changed(**how: float) -> float:
    question = ReplayedOn([LINK], SLOW, "ring", changes=Changes(**how))  # type: ignore[arg-type]
    value = told_of(both(3), question)["step_time_s"]
    assert isinstance(value, float)
    return value


def test_changes_are_what_the_closed_form_says() -> None:
    """2 s of computing, of which 1 s is beside 5 s of bytes and two latencies of 1 ms."""
    assert changed(bandwidth=0.5) == pytest.approx(1 + 10.002)
    assert changed(latency=10.0) == pytest.approx(1 + 5.02)
    assert changed(compute=2.0) == pytest.approx(0.5 + 5.002)
    assert changed(bandwidth=100.0) == pytest.approx(2.0)  # all hidden
    assert changed(overlap=False) == pytest.approx(2 + 5.002)


def test_computing_is_faster_as_a_whole_also_if_the_host_of_a_gpu_decides() -> None:
    """A hundred small kernels of an H100 take as long as its host dispatches them, whatever the GPU's speed."""
    ranks = [rank(Computed(0), Stepped(), segments=[(CountedOperation(0.0, 1e3),) * 100])] * 2
    seconds = []
    for compute in (1.0, 2.0):
        question = ReplayedOn([LINK], HARDWARE["h100"], "ring", changes=Changes(compute=compute))
        seconds.append(told_of(ranks, question)["step_time_s"])
    assert seconds[0] == pytest.approx(2 * seconds[1]) and seconds[1] > 0


def test_nothing_else_waits_without_overlap_or_without_a_line() -> None:
    for one in remove_overlap(both(2)):
        for before, after in pairwise(one.events):
            assert isinstance(after, Waited) == isinstance(before, Started)
    (left, _) = remove_line(both(2), "train.py:7")
    assert not any(isinstance(event, Started | Waited) for event in left.events)
    gone = [event for one in remove_line(messages(), "p.py:1") for event in one.events]
    assert not any(isinstance(event, MessageSent | MessageAwaited | Waited) for event in gone)


def decides(ranks: list[RankRecord], on: Link | Sites = LINK) -> dict[tuple[str, str], dict[str, float]]:
    record = TraceRecord("train", ranks)
    question = ReplayedOn([on], SLOW, "ring")
    (one,) = timed_replays([record], question)
    found = sensitivities(one, question, line_rows(record, on, one.replayed))
    return {(row["by"], row["name"]): row for row in found}


def test_sensitivities_are_derivatives_of_the_closed_form() -> None:
    """T = compute / 2 + n / B + 2 alpha, with n / B = 5 s."""
    found = decides(both(3))
    assert found["compute", "hardware"]["elasticity"] == pytest.approx(-1 / 6.002, rel=1e-3)
    assert found["bandwidth", "all links"]["elasticity"] == pytest.approx(-5 / 6.002, rel=1e-3)
    assert found["latency", "all links"]["elasticity"] == pytest.approx(0.002 / 6.002, rel=1e-3)
    line = found["site", "train.py:7"]
    assert (line["step_time_s"], line["share"]) == (pytest.approx(2.0), pytest.approx(1 - 2 / 6.002))
    assert found["rank", "0"]["waited_for_s"] == found["rank", "1"]["waited_for_s"] == 0.0


def test_who_comes_last_is_waited_for() -> None:
    """Rank 1 computes a second longer before the call; rank 0 waits for that, and both for the network."""
    ranks = both(3)
    for at in reversed([at for at, event in enumerate(ranks[1].events) if isinstance(event, Started)]):
        ranks[1].events.insert(at, Computed(0))
    # Rank 0 is beside its second half when rank 1 comes: of the second that it comes later nearly all is hidden.
    assert decides(ranks)["rank", "1"]["waited_for_s"] < 0.001
    at_once = decides(remove_overlap(ranks))
    assert at_once["rank", "1"]["waited_for_s"] == pytest.approx(0.5, rel=2e-3)
    assert at_once["rank", "0"]["waited_for_s"] == 0.0
    assert at_once["rank", "1"]["share"] == pytest.approx(0.5 / (5.002 + 0.5), rel=2e-3)


def test_links_of_a_network_are_told_apart() -> None:
    """Between two sites of one worker each the uplinks decide, not the fast local network."""
    found = decides(both(3), Sites(2, Link(1e-6, 1e9, "lan"), Link(0.5e-3, 1e6, "up"), "homes"))
    assert found["bandwidth", "up"]["elasticity"] == pytest.approx(-5 / 6.002, rel=1e-2)
    assert found["bandwidth", "lan"]["elasticity"] == pytest.approx(0.0, abs=1e-3)
    words = describe_sensitivities(list(found.values()), 6.002)
    assert words[0].startswith("6 s; 0.83% shorter with 1% more bandwidth of up, 0.17% shorter with 1% more speed")
    assert words[1] == "Without train.py:7 2 s (-67%)."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of two scripts that were run by nobody."""
    first, second = both(4), both(4, 1_000_000)
    for one in first:
        one.notes.append("torch.compile: left out")
    records = iter([first, second])
    here = tmp_path / "a.py"
    here.write_text("")
    other = tmp_path / "b.py"
    other.write_text("")
    programs = [ForeignScript(str(here)), ForeignScript(str(other))]
    told = trace(programs, 2, RING, tmp_path / "out", run=lambda program, workers, options: next(records))
    assert [row["method"] for row in told["rows"]] == ["a", "b"]
    assert told["rows"][1]["speedup"] == pytest.approx(6.002 / 2.002)
    return Path(told["folder"])


def test_the_folder_is_that_of_a_comparison(folder: Path) -> None:
    for name in ("ledger", "timeline", "curves", "summary"):
        assert len(pq.read_table(folder / f"{name}.parquet"))
    assert (folder / "figures" / "loss_against_clock.png").is_file()
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    entry = run_entry(folder)
    assert entry is not None
    assert (entry.kind, entry.state, entry.methods, entry.networks) == ("trace", "whole", ("a", "b"), ("link",))
    loaded = sl.load(folder)
    assert [row["method"] for row in loaded.rows] == ["a", "b"]
    assert loaded.curves.groupby("method").seconds.max()["a"] == pytest.approx(4 * 6.002)
    assert len(loaded.json()["losses"]) == 8
    assert "lines that communicate" in str(loaded)
    assert len(loaded.plot())
    ledger = pq.read_table(folder / "ledger.parquet").to_pandas()
    assert ledger.groupby("method").payload_bytes.sum().to_dict() == {"a": 20e6, "b": 4e6}


def test_records_are_compared_again(folder: Path, tmp_path: Path) -> None:
    assert [record.name for record in read_records(folder)] == ["a", "b"]
    told = whatif([folder], ReplayedOn([LINK], SLOW, "ring", changes=Changes(bandwidth=2.0)), tmp_path / "again")
    assert [row["unchanged_step_time_s"] for row in told["rows"]] == pytest.approx([6.002, 2.002])
    assert [row["step_time_s"] for row in told["rows"]] == pytest.approx([3.502, 2.0])
    assert told["sensitivities"] and told["notes"] == [{"script": "a", "note": "torch.compile: left out"}]
    assert sl.load(tmp_path / "again").json()["sensitivities"]
    assert [row["step_time_s"] for row in sl.whatif(folder, networks=LINK, hardware=SLOW, algorithm="ring").rows] == (
        pytest.approx([6.002, 2.002])
    )


def test_scripts_of_one_name_are_told_apart() -> None:
    several = [parse_script(words.split()) for words in ("train.py --lr 1", "train.py --lr 2")]
    assert script_names(several) == ["train --lr 1", "train --lr 2"]
    assert script_names([several[0], parse_script(["-m", "my.other"])]) == ["train", "other"]
    assert script_names([several[0], several[0]]) == ["train --lr 1 (1)", "train --lr 1 (2)"]


def test_refusals(tmp_path: Path) -> None:
    asked = ReplayedOn.from_options(["10gbe"], "a100")
    assert asked.hardware == HARDWARE["a100"]
    with pytest.raises(SpecError, match=r"script: got 'none\.py'; expected a Python file"):
        check_trace(ForeignScript("none.py"), 2, asked)
    with pytest.raises(SpecError, match="--workers: got 0"):
        check_trace(ForeignScript(str(Path(__file__))), 0, asked)
    with pytest.raises(SpecError, match="--hardware"):
        ReplayedOn.from_options(["10gbe"], "a1000")
    with pytest.raises(SpecError, match=r"--algorithm: got 'rang'; .*did you mean 'ring'"):
        ReplayedOn.from_options(["10gbe"], "a100", "rang")
    with pytest.raises(SpecError, match="--scale-latency: got 0"):
        Changes(latency=0)
    with pytest.raises(SpecError, match="script: got '-m'"):
        parse_script(["-m"])
    with pytest.raises(SpecError, match="expected the folder of a trace"):
        sl.whatif(tmp_path)
    with pytest.raises(SpecError, match="workers: got 0"):
        sl.trace(Path(__file__), workers=0)
    with pytest.raises(SpecError, match="what: got 7; expected text or a path or a function or a list"):
        sl.trace(7)  # type: ignore[arg-type]
    assert parse_script(["-m", "my.training", "--lr", "1"]) == ForeignScript("my.training", ("--lr", "1"), True)


def test_it_emits_what_is_documented(folder: Path) -> None:
    told = sl.whatif(folder, networks=LINK, hardware=SLOW).json()
    for section, name in (("trace", "rows"), ("sites", "sites"), ("losses", "losses"), ("sensitivities",) * 2):
        assert {tuple(row) for row in told[name]} == {tuple(told[name][0])}
        assert set(told[name][0]) == documented(section), section
    for name in ("ledger", "timeline", "curves"):
        assert set(pq.read_schema(folder / f"{name}.parquet").names) <= documented(f"{name}.parquet")
    summary = set(pq.read_schema(folder / "summary.parquet").names)
    assert summary <= documented("summary.parquet") | documented("run") | documented("trace")
