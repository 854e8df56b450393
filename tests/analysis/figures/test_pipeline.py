from __future__ import annotations

import pytest
from matplotlib.collections import PatchCollection

from syncline.analysis import save
from syncline.analysis.timelines import MAX_LABELS, SchedulePanel, draw_schedules
from syncline.errors import SpecError
from syncline.sim.pipelines.report import TaskSpan

BOXES = [TaskSpan(0, "forward", 0, 0, 0.0, 1.0, False), TaskSpan(0, "backward", 0, 0, 1.0, 3.0, True)]


def bars(ax):
    return [
        path.get_extents().bounds
        for collection in ax.collections
        if isinstance(collection, PatchCollection)
        for path in collection.get_paths()
    ]


def test_boxes_numbers_and_updates_are_where_they_happened():
    (ax,) = draw_schedules([SchedulePanel("one", 2, BOXES)]).axes
    assert [(x, width) for x, _, width, _ in bars(ax)] == [(0, 1), (1, 2)]
    assert [(text.get_text(), *text.get_position()) for text in ax.texts] == [("1", 0.5, 0), ("1", 2.0, 0)]
    (marks,) = ax.lines
    assert list(marks.get_xdata()) == [3.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "2"]
    assert ax.get_ylabel() == "stage"


def test_panels_of_one_group_share_their_time_axis():
    longer = [*BOXES, TaskSpan(1, "weight", 0, 1, 3.0, 9.0, False)]
    panels = [SchedulePanel(name, 2, tasks, group) for name, tasks, group in (
        ("a", BOXES, "near"), ("b", longer, "near"), ("c", BOXES, "far"),
    )]  # fmt: skip
    fig = draw_schedules(panels)
    assert [ax.get_xlim()[1] for ax in fig.axes] == [9, 9, 3]
    assert [ax.get_xlabel() for ax in fig.axes] == ["", "time (s)", "time (s)"]
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "forward", "backward", "weight gradient", "darker: every second chunk", "update",
    ]  # fmt: skip


def test_many_stages_and_narrow_boxes_are_still_a_picture(tmp_path):
    tasks = [TaskSpan(k, "forward", i, 0, k + i, k + i + 1, False) for k in range(200) for i in range(3)]
    fig = draw_schedules([SchedulePanel("deep", 200, tasks)])
    (ax,) = fig.axes
    assert fig.get_figheight() < 30 and len(ax.get_yticklabels()) <= MAX_LABELS and not ax.texts
    assert save(fig, tmp_path / "deep.png").stat().st_size


def test_no_panel_is_refused():
    with pytest.raises(SpecError, match="panels"):
        draw_schedules([])
