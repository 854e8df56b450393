"""The papers' evidence, made with Syncline: in the repository, and not in the wheel.

`studies` recompute tables, figures and statements of the five papers; `theory` has their formulas in closed form;
`scoreboard` compares the papers' numbers with Syncline's and registers the papers' claims; `replications` tests claims
at equal effort for every method; `figures` draws for all of them, and `summaries` draws a figure per paper.

The package imports Syncline by public names only. ``syncline reproduce``, ``replicate`` and the kinds of studies load
it through `syncline.checkout`.
"""
