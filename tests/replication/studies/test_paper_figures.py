"""Lion Cub's Table 1, Figure 2 and Table 4; MT-DAO's Figures 9 and 10: the papers' numbers, and ours beside them."""

from __future__ import annotations

import math

import pytest

from replication.studies.papers import speed as speed_table
from replication.studies.papers import votes as vote_tables
from replication.studies.papers import wall_clock
from syncline.costmodel import Exchange, Link, calls_at, communication_factor
from syncline.errors import SpecError
from syncline.planner.projection.project import project
from syncline.sim import Collective, Compute, Wait, run_events
from syncline.specs import load_spec

# Lion Cub, Table 1.


def test_the_votes_cost_what_the_paper_prints_and_what_their_collectives_take():
    rows = {row["vote"]: row for row in project(load_spec("lion-cub-table1", ["workers=[8]", "networks=[10gbe]"]))}
    # Table 1 at P 8, b 32: latencies and bits per parameter.
    paper = {"naive": (14, 512), "efficient": (6, 84), "direct": (6, 7), "one-bit": (10, 1.875)}
    # By hand: 7 others to hear and to tell; a gather of 7 words, a broadcast of 2 * 7/8; Rabenseifner; two times 7/8.
    ours = {"naive": (2, 14 * 32), "efficient": (9, (7 + 7 / 4) * 32), "direct": (6, 7), "one-bit": (10, 1.75)}
    for vote, row in rows.items():
        assert (row["paper_latencies"], row["paper_bits_per_parameter"]) == pytest.approx(paper[vote])
        assert (row["latencies"], row["bits_per_parameter"]) == pytest.approx(ours[vote])
        alpha, beta, n = 50e-6, 1e-10, 162_201_600
        assert row["paper_s"] == pytest.approx(paper[vote][0] * alpha + paper[vote][1] * n * beta, rel=1e-12)
        assert row["closed_form_s"] == pytest.approx(ours[vote][0] * alpha + ours[vote][1] * n * beta, rel=1e-9)
    assert rows["direct"]["deviation"] == pytest.approx(0, abs=1e-12) and not rows["direct"]["slip"]
    assert rows["efficient"]["deviation"] < -0.69  # 84 of 280 bits


def test_the_votes_take_as_long_when_they_are_played():
    for row in project(load_spec("lion-cub-table1")):
        for played in ("lockstep_s", "events_s"):
            assert row[played] == pytest.approx(row["closed_form_s"], rel=1e-9), (row["vote"], row["network"])


def test_events_that_would_take_long_are_left_out():
    rows = project(load_spec("lion-cub-table1", ["workers=[256]", "networks=[10gbe]"]))
    assert {row["vote"] for row in rows if row["events_s"] is None} == {"naive", "one-bit"}
    assert all(row["lockstep_s"] for row in rows)


# Lion Cub, Figure 2.


def test_crossovers_are_where_the_last_two_votes_cost_the_same():
    rows = project(load_spec("lion-cub-fig2", ["ratios=[1]", "workers=[8, 128]"]))
    assert [round(row["crossover_ratio"], 2) for row in rows] == [0.78, 8.64]
    for row in rows:
        spec = load_spec("lion-cub-fig2", [f"ratios=[{row['crossover_ratio']}]", f"workers=[{row['workers']}]"])
        (met,) = project(spec)
        assert met["direct_over_alpha"] == pytest.approx(met["one_bit_over_alpha"], rel=1e-12)


def test_what_the_paper_says_of_its_figure_2_holds_of_its_table():
    rows = project(load_spec("lion-cub-fig2"))
    assert len(rows) == 3 * 14
    for row in rows:
        costs = [row[f"{vote}_over_alpha"] for vote in ("efficient", "direct", "one_bit")]
        assert row["naive_over_alpha"] > max(costs)  # "scales poorly in all situations"
        assert row["fastest"] == ("one-bit" if row["ratio"] > row["crossover_ratio"] else "direct")


def test_a_model_on_a_network_is_a_ratio():
    assert vote_tables.ratio_of(162_201_600, Link(50e-6, 1.25e9)) == pytest.approx(
        324.4032, rel=1e-12
    )  # 162.2e6 bits at 1e-10 s over 50e-6 s


# Lion Cub, Table 4.


def test_two_constants_are_found_in_steps_that_they_made():
    spec = load_spec("lion-cub-table4")
    made = speed_table.SpeedFit(parameters=2e7, software_s_per_bit=1e-3, compute_s=0.3)
    cells = []
    for cell in spec.cells:
        sent_s = made.communication_s(speed_table.wire_bits(cell.bits, 8), 8 * cell.bandwidth)
        percent = 100 * sent_s / (sent_s + 0.3)
        cells.append(cell.model_copy(update={"step": sent_s + 0.3, "communication_percent": percent}))
    found = speed_table.fit(spec.model_copy(update={"cells": tuple(cells)}))
    assert found == pytest.approx(made, rel=1e-9)


def test_table_4_s_cells_and_how_far_the_constants_are_from_them():
    rows = project(load_spec("lion-cub-table4"))
    assert len(rows) == 15 and sum(row["fitted"] for row in rows) == 3
    first, last = rows[0], rows[-1]  # Table 4: Lion(32bit) at 1 Gbps, LionCub(1bit) at 200 Gbps
    assert (first["paper_step_s"], first["paper_communication_share"]) == (1.0, 0.748)
    assert (last["paper_step_s"], last["paper_communication_share"]) == (0.3, 0.25)
    assert first["compute_s"] == pytest.approx(1.0 * (1 - 0.748), rel=1e-12)
    assert f"{first['parameters'] / 1e6:.1f} {first['software_s_per_bit'] * 1e3:.2f}" == "13.2 1.31"
    told = [row for row in rows if not row["fitted"]]
    errors = sorted(abs(row["step_error"]) for row in told)
    assert (round((errors[5] + errors[6]) / 2, 2), round(errors[-1], 2)) == (0.11, 0.36)
    assert sum(row["within_rounding"] for row in told) == 7
    for row in rows:
        assert row["step_s"] == pytest.approx(row["compute_s"] + row["communication_s"], rel=1e-12)
        assert row["unexplained_s"] == pytest.approx(row["paper_communication_s"] - row["communication_s"], rel=1e-9)
    assert "11% (median) and 36% (worst)" in speed_table.verdict(rows)


def test_no_model_of_the_paper_is_as_small_as_its_table_4_would_need():
    """Two nodes that reduce 124M fp32 gradients exchange them once: at 1 Gbit/s 4 s, over four cards each 1 s."""
    row = project(load_spec("lion-cub-table4"))[0]
    assert row["paper_communication_s"] < 124e6 * 32 / 1e9 / 4


@pytest.mark.parametrize("fitted", ["cells.1.fitted=false", "cells.0.fitted=false"])
def test_one_bandwidth_does_not_tell_two_constants(fitted):
    with pytest.raises(SpecError, match="cells"):
        load_spec("lion-cub-table4", [fitted, "cells.2.fitted=false"])


# MT-DAO, Figures 9 and 10.


@pytest.fixture(scope="module")
def rows():
    return project(load_spec("mt-dao-fig10", ["bandwidths=[1 Gbit/s, 10 Gbit/s, 100 Gbit/s]"]))


def of(rows, panel, method, gbit):
    (row,) = [row for row in rows if (row["panel"], row["method"], row["bandwidth_bytes_per_s"]) ==
              (panel, method, gbit * 1e9 / 8)]  # fmt: skip
    return row


def test_equations_5_and_6_by_hand(rows):
    """1,310,558,208 parameters in fp32, T 40,960, M 4, l 50 us: 2 d / B (3 / 4) + l."""
    d, steps = 4 * 1_310_558_208, 40_960
    unified = of(rows, "Adam", "Local Adam", 10)["equation_communication_s"]
    assert unified == pytest.approx(steps / 32 * (1.5 * 3 * d / 1.25e9 + 50e-6), rel=1e-9)
    apart = of(rows, "Adam", "MT-DAO (half-life)", 10)["equation_communication_s"]
    assert apart == pytest.approx((steps / 32 + 2 * steps / 693) * (1.5 * d / 1.25e9 + 50e-6), rel=1e-9)


def test_the_events_say_what_the_equations_say_up_to_latencies_and_averages_that_are_not_due(rows):
    for row in rows:
        assert row["events_communication_s"] == pytest.approx(row["equation_communication_s"], rel=3e-3)
        assert row["overlap_communication_s"] <= row["events_communication_s"]
        assert row["events_total_s"] == pytest.approx(row["compute_s"] + row["events_communication_s"], rel=1e-12)


def test_savings_are_the_communication_factors_of_table_3(rows):
    unified = of(rows, "Adam", "Local Adam", 1)["equation_communication_s"]
    for panel, method, periods in [
        ("Adam", "DES-LOC", (32, 32, 69)),
        ("ADOPT", "DES-LOC", (32, 32, 6931)),
        ("Adam", "MT-DAO (half-life)", (32, 693, 693)),
        ("ADOPT", "MT-DAO (half-life)", (32, 693, 6931)),
    ]:
        saved = unified / of(rows, panel, method, 1)["equation_communication_s"]
        assert saved == pytest.approx(communication_factor(periods) / communication_factor((32,) * 3), rel=1e-3)


def test_a_step_of_overlap_hides_a_step_of_computing(rows):
    row = of(rows, "Adam", "Local Adam", 1)  # 1,280 averages of 188 s, each beside one step of 1.5 s
    hidden = row["events_communication_s"] - row["overlap_communication_s"]
    assert hidden == pytest.approx(1_280 * row["compute_s"] / row["steps"], rel=1e-9)
    assert of(rows, "ADOPT", "MT-DAO (half-life)", 100)["overlap_communication_s"] == 0


@pytest.mark.parametrize("wait_steps", [0, 1])
def test_a_whole_training_takes_as_long_as_its_synchronisations_counted_by_kind(wait_steps):
    spec = load_spec("mt-dao-fig9", ["steps=60", "model=mt-dao-16m"])
    strategy = spec.strategies[2].model_copy(update={"periods": (4, 6, 10)})
    link, step_s = Link(1e-3, 1e8), wall_clock.step_compute_s(spec)
    sent, program = wall_clock.exchanges(spec, strategy), []
    for step in range(spec.steps + 1):
        for waited in [step - 1 - wait_steps]:
            program += [Wait((waited, i)) for i, _ in enumerate(calls_at(sent, waited))] if waited >= 0 else []
        if step < spec.steps:
            program.append(Compute(step_s))
            program += [Collective(call.collective, call.payload_bytes, (step, i))
                        for i, call in enumerate(calls_at(sent, step))]  # fmt: skip
    simulated = wall_clock.simulated_s(spec, strategy, link, wait_steps)
    played = float(run_events([program] * 4, link).end_s.max())
    # The last average has no step after it that could hide it.
    assert simulated == pytest.approx(played - (step_s if wait_steps else 0), rel=1e-9)


def test_states_that_are_due_together_travel_together():
    spec = load_spec("mt-dao-fig9")
    sent = wall_clock.exchanges(spec, spec.strategies[0])
    assert [type(one) for one in sent] == [Exchange] * 3
    assert [call.payload_bytes for call in calls_at(sent, 31)] == [3 * 4 * 1_310_558_208]
    assert not math.isnan(wall_clock.equation_s(spec, spec.strategies[0], Link(0.0, 1e9)))


def test_two_periods_are_refused():
    with pytest.raises(SpecError, match=r"strategies\.0\.periods: got \(32, 69\); expected one period, or three"):
        load_spec("mt-dao-fig9", ["strategies.0.periods=[32, 69]"])
