"""Studies recompute the evidence for claims of papers.

Each study is a folder with its spec, computation, tables and figures; `vote_ties` is a short example. The studies
`alignment`, `quantisers`, `staleness`, `swings` and `vote_ties` run for a while and write a folder of results. The
studies in `papers` recompute printed tables and figures in closed form and answer at once. `LIBRARY` has their specs.
"""

from pathlib import Path

LIBRARY = Path(__file__).parent / "library"
"""Folder of the studies' specs, which the commands know by name."""

STUDIES = {
    "alignment": "replication.studies.alignment:STUDY", "quantisers": "replication.studies.quantisers:STUDY",
    "staleness": "replication.studies.staleness:STUDY", "swings": "replication.studies.swings:STUDY",
    "vote-ties": "replication.studies.vote_ties:STUDY",
    "curvadion-table": "replication.studies.papers.curvadion:STUDY",
    "traffic-table": "replication.studies.papers.volumes:TRAFFIC",
    "volume-table": "replication.studies.papers.volumes:VOLUMES",
    "vote-table": "replication.studies.papers.votes:TABLE", "vote-figure": "replication.studies.papers.votes:FIGURE",
    "speed-table": "replication.studies.papers.speed:STUDY",
    "wall-clock-figure": "replication.studies.papers.wall_clock:STUDY",
}  # fmt: skip
"""The ``module:name`` of each study by the kind of its specs."""
