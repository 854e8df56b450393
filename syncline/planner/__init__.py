"""Answers from the cost model: project, advise, solve, goodput, collectives; none of them trains or needs torch.

Read `projection` first: its `plan.py` prices a step. `advice` ranks plans by it, `solving` inverts it, `goodput` adds
failures; `explore` shows them as a page.
"""
