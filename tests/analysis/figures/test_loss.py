"""Loss figures, by what they hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from syncline.analysis import Curve, loss_against_clock, loss_against_steps, time_to_target_s
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from tests.analysis.figures.legible import defects

METHODS = {"ddp-adam": 1.0, "local-adam": 0.1, "diloco": 0.01, "mt-dao": 0.1}
NETWORKS = {"infiniband": Link(2e-6, 12.5e9), "10gbe": Link(50e-6, 1.25e9), "wan": Link(25e-3, 125e6)}
SYNC_S = {"infiniband": 0.01, "10gbe": 0.9, "wan": 9.5}
STEPS = np.arange(0, 1001, 50)


def curve(label: str, seeds: int = 5, **others) -> Curve:
    clocks = {name: STEPS * (0.1 + sync_s * METHODS[label]) for name, sync_s in SYNC_S.items()}
    loss = 2 + 3.5 * np.exp(-STEPS / 300) + 0.01 * np.arange(seeds)[:, None]
    return Curve(label, STEPS, loss, **({"clock_s": clocks} | others))


CURVES = [curve(label) for label in METHODS]


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def legend(fig):
    return [text.get_text() for text in fig.legends[0].get_texts()]


def marks(ax, label):
    return [mark for mark in ax.lines if mark.get_label() == label]


def test_steps_shows_the_median_and_names_every_line():
    fig = loss_against_steps(CURVES, loss_label="validation loss (nats per byte)")
    (ax,) = fig.axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "validation loss (nats per byte)")
    np.testing.assert_allclose(line(ax, "mt-dao").get_ydata(), np.median(CURVES[3].loss, axis=0))
    assert {text.get_text() for text in ax.texts} == set(METHODS)
    assert len(ax.collections) == len(METHODS)  # the bands
    assert ax.get_xlim() == (0, 1000)


def test_names_at_the_ends_do_not_touch():
    fig = loss_against_steps(CURVES)
    fig.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in fig.axes[0].texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert all(box.x1 <= fig.bbox.x1 for box in boxes)


def test_one_seed_has_no_band():
    assert not loss_against_steps([curve("mt-dao", seeds=1)]).axes[0].collections


def test_clock_has_a_panel_per_network_that_tells_its_link():
    fig = loss_against_clock(CURVES, NETWORKS, loss_label="loss (nats)")
    assert [ax.get_title(loc="left") for ax in fig.axes] == [
        "infiniband\n100 Gbit/s, latency 2 µs",
        "10gbe\n10 Gbit/s, latency 50 µs",
        "wan\n1 Gbit/s, latency 25 ms",
    ]
    assert legend(fig) == list(METHODS)
    assert len({ax.get_ylim() for ax in fig.axes}) == 1
    assert [ax.get_ylabel() for ax in fig.axes] == ["loss (nats)", "", ""]
    np.testing.assert_allclose(line(fig.axes[2], "diloco").get_xdata(), CURVES[2].clock_s["wan"])


def test_time_is_logarithmic_only_where_totals_differ_much():
    assert {ax.get_xscale() for ax in loss_against_clock(CURVES, NETWORKS).axes} == {"symlog"}
    near = loss_against_clock(CURVES, {"infiniband": NETWORKS["infiniband"]})
    assert near.axes[0].get_xscale() == "linear"
    assert near.axes[0].get_xlabel() == "wall-clock time (s)"
    np.testing.assert_allclose(line(near.axes[0], "diloco").get_xdata(), CURVES[2].clock_s["infiniband"])
    assert loss_against_clock(CURVES, NETWORKS, time_scale="linear").axes[2].get_xlabel() == "wall-clock time (h)"


def test_every_curve_is_inside_its_panel():
    for ax in loss_against_clock(CURVES, NETWORKS).axes:
        for label in METHODS:
            x, y = line(ax, label).get_data()
            assert ax.get_xlim()[0] <= min(x)
            assert max(x) <= ax.get_xlim()[1]
            assert ax.get_ylim()[0] < min(y)
            assert max(y) < ax.get_ylim()[1]


def test_a_ring_marks_where_the_target_is_reached():
    fig = loss_against_clock(CURVES, NETWORKS, target=3.0)
    (_, _, wan) = fig.axes
    rings = [float(mark.get_xdata()[0]) for mark in marks(wan, "_reached")]
    assert rings == pytest.approx([time_to_target_s(c.clock_s["wan"], np.median(c.loss, axis=0), 3.0) for c in CURVES])
    assert not marks(loss_against_clock(CURVES, NETWORKS, target=0.1).axes[0], "_reached")


@pytest.mark.parametrize("time_scale", ["linear", "log"])
@pytest.mark.parametrize("evaluations", [2, 3, 21])
@pytest.mark.parametrize("target", [5.2, 4.0])
def test_a_ring_lies_on_its_line(time_scale, evaluations, target):
    steps = np.linspace(0, 1000, evaluations)
    shown = [
        Curve(label, steps, 2 + 3.5 * np.exp(-steps / 300), {"wan": steps * rate}) for label, rate in METHODS.items()
    ]
    (ax,) = loss_against_clock(shown, {"wan": NETWORKS["wan"]}, target=target, time_scale=time_scale).axes
    for label, ring in zip(METHODS, marks(ax, "_reached"), strict=True):
        x, y = ax.transData.transform(line(ax, label).get_xydata()).T
        at_x, at_y = ax.transData.transform(ring.get_xydata()[0])
        assert np.interp(at_x, x, y) == pytest.approx(at_y, abs=0.01)


def test_a_logarithmic_clock_shows_the_start():
    for ax in loss_against_clock(CURVES, NETWORKS).axes:
        assert ax.get_xlim()[0] == 0
        assert ax.get_xticklabels()[0].get_text() == "0"
        assert all(line(ax, label).get_xdata()[0] == 0 for label in METHODS)


def test_bands_end_inside_the_axes_and_a_mark_tells_where_one_is_cut():
    def drawn(worst: float):
        loss = np.stack([CURVES[0].loss[0], CURVES[0].loss[0], np.where(STEPS == 500, worst, CURVES[0].loss[0])])
        (ax,) = loss_against_steps([Curve("ddp-adam", STEPS, loss)]).axes
        (band,) = ax.collections
        return ax, band.get_paths()[0].vertices[:, 1].max()

    ax, highest = drawn(6.0)
    assert highest == 6.0 < ax.get_ylim()[1]
    assert not marks(ax, "_cut")
    ax, highest = drawn(600.0)
    assert highest == ax.get_ylim()[1] < 8
    assert [tuple(mark.get_xydata()[0]) for mark in marks(ax, "_cut")] == [(500.0, highest)]


def test_no_ring_hides_another():
    ax = loss_against_clock(CURVES, NETWORKS, target=3.0).axes[2]
    rings, discs = marks(ax, "_reached"), marks(ax, "_disc")
    assert len(rings) == len(discs) == len(CURVES)
    assert {ring.get_markerfacecolor() for ring in rings} == {"none"}
    assert max(disc.get_zorder() for disc in discs) < min(ring.get_zorder() for ring in rings)


def test_a_target_outside_the_panel_takes_no_room():
    for target in (0.1, 1e6):
        fig = loss_against_clock(CURVES, NETWORKS, target=target)
        assert not any("target" in text.get_text() for ax in fig.axes for text in ax.texts)


def test_a_diverged_run_ends_in_a_cross_and_says_so():
    loss = np.where(STEPS < 500, 5.0 - STEPS / 250, np.nan)
    lost = Curve("local-adam", STEPS, loss, CURVES[1].clock_s)
    fig = loss_against_steps([CURVES[0], lost])
    (ax,) = fig.axes
    (cross,) = marks(ax, "_diverged")
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (450, pytest.approx(3.2))
    assert np.isfinite(line(ax, "local-adam").get_ydata()).all()
    assert "local-adam (diverged)" in {text.get_text() for text in ax.texts}
    assert "local-adam (diverged)" in legend(loss_against_clock([CURVES[0], lost], NETWORKS))


@pytest.mark.parametrize("log_loss", [False, True])
def test_an_exploding_run_leaves_the_panel_and_does_not_stretch_it(log_loss):
    exploding = Curve("local-adam", STEPS, 3 + 1e-3 * np.exp(STEPS / 50.0), diverged_at=900)
    (ax,) = loss_against_steps([CURVES[0], exploding], log_loss=log_loss).axes
    assert ax.get_ylim()[1] < 6
    (cross,) = marks(ax, "_diverged")
    assert cross.get_ydata()[0] == pytest.approx(ax.get_ylim()[1])
    assert 350 < cross.get_xdata()[0] < 400  # between the last evaluation below the top and the next


def test_the_share_of_lost_seeds_is_told():
    loss = CURVES[2].loss.copy()
    loss[4, 10:] = np.nan
    some = Curve("diloco", STEPS, loss, CURVES[2].clock_s)
    assert legend(loss_against_clock([some], NETWORKS)) == ["diloco (1 of 5 diverged)"]


def test_a_run_lost_from_the_start_and_a_clock_that_stands_still_are_drawn():
    nowhere = Curve("local-adam", STEPS, np.full(STEPS.size, np.nan), {"wan": 0.0 * STEPS})
    fig = loss_against_clock([CURVES[0], nowhere], {"wan": NETWORKS["wan"]})
    fig.draw_without_rendering()
    assert legend(fig) == ["ddp-adam", "local-adam (diverged)"]
    assert loss_against_clock([nowhere], {"wan": NETWORKS["wan"]}, time_scale="log").axes[0].get_xscale() == "symlog"


def test_what_is_missing_is_named():
    with pytest.raises(SpecError, match="at least one curve"):
        loss_against_steps([])
    with pytest.raises(SpecError, match=r"diloco\.clock_s: got .*; expected a clock for the network 'lan'"):
        loss_against_clock([CURVES[2]], {"lan": NETWORKS["wan"]})
    with pytest.raises(SpecError, match="at least one network"):
        loss_against_clock(CURVES, {})


def test_names_of_targets_that_lie_close_stand_beside_each_other():
    fig = loss_against_clock(CURVES, NETWORKS, target=(2.5, 2.45, 4.0))
    names = [text.get_text() for text in fig.axes[0].texts if "target" in text.get_text()]
    assert names == ["target 4", "target 2.5", "target 2.45"]
    assert not [found for found in defects(fig) if "target" in found and "overlap" in found]


def test_each_of_several_targets_has_its_line_and_its_rings():
    targets = (4.0, 3.0, 0.1)
    ax = loss_against_clock(CURVES, NETWORKS, target=targets).axes[2]
    assert [mark.get_ydata()[0] for mark in marks(ax, "_target")] == [4.0, 3.0]
    rings = [(float(mark.get_xdata()[0]), float(mark.get_ydata()[0])) for mark in marks(ax, "_reached")]
    median = np.median(CURVES[0].loss, axis=0)
    found = [(time_to_target_s(one.clock_s["wan"], median, target), target) for one in CURVES for target in targets[:2]]
    np.testing.assert_allclose(sorted(rings), sorted(found))


def test_a_logarithmic_loss_below_a_decade_is_labelled_in_plain_numbers():
    ax = loss_against_clock(CURVES, NETWORKS, log_loss=True).axes[0]
    low, high = ax.get_ylim()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["3", "4", "5"] and 2 < low < 3 and 5 < high < 6
