"""The papers' evidence, made with Syncline: in the repository, and not in the wheel.

`studies` recompute tables, figures and statements of the five papers; `theory` has their formulas in closed form;
`claims` is the register of the papers' claims; `scoreboard` compares the papers' numbers with Syncline's and computes
the states of claims; `replications` tests claims at equal effort for every method; `figures` draws for all of them, and
`summaries` draws a figure per paper.

The package imports Syncline by public names only. ``syncline reproduce``, ``replicate`` and the kinds of studies load
it through `syncline.checkout`.
"""
