"""The timeline strip, by what it holds."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.analysis import timeline_strip
from syncline.errors import SpecError

# Worker 0 computes for 2 s, waits 1 s for worker 3, and both exchange for 1 s.
SPANS = [
    (0, "compute", "compute", 0.0, 2.0),
    (3, "compute", "compute", 0.0, 3.0),
    (0, "network", "all_reduce", 2.0, 4.0),
    (3, "network", "all_reduce", 3.0, 4.0),
    (0, "compute", "wait", 2.0, 4.0),
    (3, "compute", "wait", 3.0, 4.0),
]


def columns(spans):
    names = ("worker", "stream", "what", "start_s", "end_s")
    return {name: np.array([span[i] for span in spans]) for i, name in enumerate(names)}


def bars(ax, kind):
    (container,) = [container for container in ax.containers if container.get_label() == kind]
    return [(int(bar.get_y()), bar.get_x(), bar.get_width()) for bar in container]


def test_every_span_is_a_bar_in_the_row_of_its_worker():
    (ax,) = timeline_strip(columns(SPANS)).axes
    assert ax.get_xlabel() == "time (s)"
    assert bars(ax, "compute") == [(0, 0, 2), (1, 0, 3)]
    assert bars(ax, "wait") == [(0, 2, 2), (1, 3, 1)]
    assert bars(ax, "network") == [(0, 2, 2), (1, 3, 1)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "3"]


def test_the_share_of_computing_is_written_at_each_row():
    (ax,) = timeline_strip(columns(SPANS)).axes
    assert [text.get_text() for text in ax.texts] == ["50%", "75%", "computes"]


def test_only_the_shown_time_is_drawn_and_counted():
    (ax,) = timeline_strip(columns(SPANS), first_s=1.0, last_s=3.0).axes
    assert ax.get_xlim() == (1, 3)
    assert bars(ax, "compute") == [(0, 1, 1), (1, 1, 2)]
    assert [text.get_text() for text in ax.texts] == ["50%", "100%", "computes"]


def test_messages_to_single_workers_are_waiting_and_network_too():
    spans = [(0, "send", "send", 0.0, 1.0), (1, "compute", "recv", 0.0, 2.0)]
    (ax,) = timeline_strip(columns(spans)).axes
    assert bars(ax, "network") == [(0, 0, 1)]
    assert bars(ax, "wait") == [(1, 0, 2)]
    assert bars(ax, "compute") == []


def test_the_legend_names_what_is_there():
    fig = timeline_strip(columns(SPANS[:2]))
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["compute"]


def test_many_workers_are_named_now_and_then_and_stay_on_the_page():
    fig = timeline_strip(columns([(worker, "compute", "compute", 0.0, 1e-3) for worker in range(256)]))
    assert len(fig.axes[0].get_yticks()) == 16
    assert fig.get_size_inches()[1] < 7
    assert fig.axes[0].get_xlabel() == "time (µs)"


def test_what_cannot_be_drawn_is_named():
    table = columns(SPANS)
    with pytest.raises(SpecError, match="'what' is missing"):
        timeline_strip({name: column for name, column in table.items() if name != "what"})
    with pytest.raises(SpecError, match="rows of one length"):
        timeline_strip(table | {"end_s": [1.0]})
    with pytest.raises(SpecError, match="no span between 10 s and 20 s"):
        timeline_strip(table, first_s=10, last_s=20)
    with pytest.raises(SpecError, match="no span"):
        timeline_strip(columns([]))
    many = columns([(0, "compute", "compute", float(i), i + 1.0) for i in range(50_001)])
    with pytest.raises(SpecError, match=r"50,001 spans.*set first_s and last_s"):
        timeline_strip(many)
