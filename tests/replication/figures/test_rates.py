from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from replication.figures.rates import SHARES, loss_over_tails, sign_shares
from syncline.analysis import save
from syncline.errors import SpecError

PANELS = {
    "4 workers": {"vote": {"match": 0.6, "flip": 0.1, "zero": 0.3}, "L1": {"match": 0.9, "flip": 0.05, "zero": 0.05}},
    "8 workers": {"L1": {"match": 0.8, "flip": 0.2, "zero": 0.0}},
}
LOSSES = {"L1": {2.0: (0.1, 0.05, 0.2), 0.5: (1.0, 0.9, 1.1)}, "Linf": {2.0: (0.2, 0.1, 0.3), 0.5: (np.inf,) * 3}}


def test_bars_are_as_long_as_their_shares_and_end_at_one():
    fig = sign_shares(PANELS)
    first, second = fig.axes[:2]
    assert [ax.get_title(loc="left") for ax in (first, second)] == ["4 workers", "8 workers"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["vote", "L1"]
    colors = {color: share for share, (color, _) in SHARES.items()}
    lengths = [(colors[to_hex(bar.get_facecolor()).upper()], round(bar.get_width(), 6)) for bar in first.patches]
    assert lengths == [("match", 0.6), ("match", 0.9), ("zero", 0.3), ("zero", 0.05), ("flip", 0.1), ("flip", 0.05)]
    ends = [bar.get_x() + bar.get_width() for bar in first.patches[-2:]]
    assert ends == pytest.approx([1.0, 1.0])
    # A bar that a panel lacks keeps its place, empty.
    assert [bar.get_width() for bar in second.patches[::2]] == [0, 0, 0]


def test_only_bars_with_room_have_a_number():
    texts = {text.get_text() for text in sign_shares(PANELS).axes[0].texts}
    assert texts == {"60", "90", "30", "10"}


def test_panels_beyond_a_row_go_into_the_next_one(tmp_path):
    fig = sign_shares({str(number): PANELS["4 workers"] for number in range(5)})
    assert [ax.get_visible() for ax in fig.axes] == [True] * 5 + [False]
    assert save(fig, tmp_path / "shares.png").stat().st_size > 10_000


def test_points_are_medians_with_the_heaviest_tails_at_the_right(tmp_path):
    fig = loss_over_tails(LOSSES)
    (ax,) = fig.axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in ax.lines if line.get_label() in LOSSES}
    assert lines == {"L1": [0.1, 1.0], "Linf": [0.2]}
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "0.5"]
    spans = [segment[:, 1].tolist() for group in ax.collections for segment in group.get_segments()]
    assert spans == [[0.05, 0.2], [0.9, 1.1], [0.1, 0.3]]
    assert ax.get_yscale() == "log" and save(fig, tmp_path / "losses.pdf").exists()


@pytest.mark.parametrize("figure", [sign_shares, loss_over_tails])
def test_nothing_to_draw_is_refused(figure):
    with pytest.raises(SpecError, match="at least one"):
        figure({})
