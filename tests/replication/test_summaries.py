"""A picture per paper: legible, of the scoreboard's numbers, saved by the command."""

from __future__ import annotations

import pytest
from PIL import Image

from replication.claims import PAPERS
from replication.scoreboard.board import board_of
from replication.summaries import SUMMARIES, save_summaries, summary_figure
from syncline.errors import SpecError
from tests.analysis.figures.legible import defects, drawn_texts


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_in_one_picture_is_legible_at_600_pixels(paper):
    figure = summary_figure(paper)
    assert defects(figure) == []
    assert figure.get_size_inches()[0] == 6  # at 600 pixels 100 to the inch
    assert min(text.get_fontsize() for text in drawn_texts(figure)) >= 7


@pytest.mark.parametrize("paper", PAPERS)
def test_its_bars_are_of_the_scoreboard_and_its_message_has_their_numbers(paper):
    rows = board_of(paper)
    message, bars, _ = SUMMARIES[paper](rows)
    texts = " ".join(text.get_text() for text in drawn_texts(summary_figure(paper)))
    assert f"{sum(not row['target'] for row in rows)} numbers and claims" in texts
    assert any(character.isdigit() for character in message)
    for group in bars.values():
        if {"paper", "Syncline"} <= set(group) and paper == "curvadion":
            assert group["Syncline"] == pytest.approx(group["paper"], rel=2e-3)


def test_the_command_saves_a_picture_into_a_folder(command, tmp_path):
    done = command("reproduce", "lion-cub", "--plot", str(tmp_path / "new"))
    assert (done.code, done.out) == (0, "")
    assert "summary_lion_cub.png" in done.err.replace("\n", "")
    with Image.open(tmp_path / "new" / "summary_lion_cub.png") as picture:
        assert picture.width == 1800


def test_a_file_is_no_folder_and_an_unknown_paper_none(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"--plot: got .*file.*; expected a folder"):
        save_summaries(tmp_path / "file")
    with pytest.raises(SpecError, match="paper: got 'no-such'"):
        summary_figure("no-such")
