"""Studies of papers: what a claim rests on, computed anew. A folder each: its spec, computation, tables and figures.

Read a small one first: `vote_ties`. Those that compute for a while and leave a folder: `alignment`, `quantisers`,
`staleness`, `swings`, `vote_ties`. `papers`: printed tables and figures, answered at once. Another package adds its own
by the same door: a `Study`, named by an entry point of the group ``syncline.studies``, or given to `register_study`.
"""

from syncline.specs.study import STUDIES, Figures, Piece, Record, Report, Study, register_study, study_of

__all__ = ["STUDIES", "Figures", "Piece", "Record", "Report", "Study", "register_study", "study_of"]
