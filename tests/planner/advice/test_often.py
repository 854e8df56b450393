"""Plans that fail too often to be played."""

from __future__ import annotations

import syncline as sl


def test_failures_without_end_are_not_played():
    """Every 125 ms something fails: 10**8 failures and more, of which none is played."""
    asked = {
        "network": "wan",
        "hardware": "h100",
        "workers": 4,
        "methods": ["ddp-adam", {"kind": "diloco", "lr": 0.003}],
    }
    often, seldom = (sl.advise("gpt-160m", failures=failures, **asked) for failures in ("0.5 s", "200 d"))
    assert all(row["events_goodput"] is None for row in often.rows)
    assert any(row["events_goodput"] is not None for row in seldom.rows)
