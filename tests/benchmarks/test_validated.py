"""The README's table of what is validated how well is that of the measurements that are kept."""

from pathlib import Path

import pytest

from benchmarks.validated import row, validated
from tests.measure.validation.priced import priced_rows

ROOT = Path(__file__).parents[2]


def test_the_readme_has_the_errors_of_what_is_kept(monkeypatch):
    monkeypatch.setattr("benchmarks.validated.predicted_rows", priced_rows)
    assert validated() in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("errors", "told"), [([0.01, -0.03, 0.02], "| 3 | 2.0% | 3% |"), ([-0.5], "| 1 | 50.0% | 50% |")]
)
def test_errors_are_told_without_their_sign(errors, told):
    assert row("what", errors) == f"| what {told}\n"
