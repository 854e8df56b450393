"""Studies recompute the evidence for claims of papers.

Each study is a folder with its spec, computation, tables and figures; `vote_ties` is a short example. The studies
`alignment`, `quantisers`, `staleness`, `swings` and `vote_ties` run for a while and write a folder of results. The
studies in `papers` recompute printed tables and figures in closed form and answer at once. Another package adds a
`Study` with an entry point of the group ``syncline.studies`` or with a call of `register_study`.
"""

from syncline.specs.study import STUDIES, Figures, Piece, Record, Report, Study, register_study, study_of

__all__ = ["STUDIES", "Figures", "Piece", "Record", "Report", "Study", "register_study", "study_of"]
