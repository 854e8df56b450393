"""Replications: a paper's claims at equal effort, stage by stage, in pieces of one training each.

`spec` is a file of a replication. In the order of the work: `stages` makes sweeps of its stages, `replicate` trains
them as far as its allowance permits and stores each completed one (`stage_tables`); `choosing` picks knobs by the rule
that the spec fixes, `verdicts` compares losses seed by seed; `readme` writes the page of the results, and `results`
returns them.
"""

from pathlib import Path

LIBRARY = Path(__file__).parent / "library"
"""Folder of the replications that ``syncline replicate`` knows by name."""


def bundled_replications() -> dict[str, Path]:
    """Return the files of the bundled replications by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.yaml"))}
