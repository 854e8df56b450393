"""Step times of several models, by what the figure holds."""

from __future__ import annotations

import pytest

from benchmarks.headline.step_times import step_times
from syncline.errors import SpecError

PANELS = {
    "small": {"ddp": {"lan": 1.0, "wan": 15.0}, "local": {"lan": 1.0, "wan": 1.5}},
    "large": {"ddp": {"lan": 1.6, "wan": 130.0}, "local": {"lan": 1.1, "wan": 11.0}, "other": {"wan": 4.0}},
}


def test_a_panel_per_model_a_row_per_method_a_dot_per_network():
    fig = step_times(PANELS)
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["small", "large"]
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == ["ddp", "local", "other"]
    for ax, of in zip(fig.axes, PANELS.values(), strict=True):
        rows = dict(zip(("ddp", "local", "other"), ax.get_yticks(), strict=True))
        for network in ("lan", "wan"):
            (dots,) = [line for line in ax.lines if line.get_label() == network]
            found = dict(zip(dots.get_ydata(), dots.get_xdata(), strict=True))
            assert found == {rows[name]: row[network] for name, row in of.items() if network in row}
    assert fig.axes[0].get_xlim() == fig.axes[1].get_xlim() and fig.axes[0].get_xlim()[1] > 130
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["lan", "wan"]


def test_nothing_and_too_many_networks_are_refused():
    with pytest.raises(SpecError, match="at least one method"):
        step_times({})
    with pytest.raises(SpecError, match="at most 5 networks"):
        step_times({"small": {"ddp": {str(i): 1.0 for i in range(6)}}})
