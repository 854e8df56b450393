"""``syncline report``: kept results as one page that needs no network.

Read `reported` (what a page is told of a result) and `themes` (its colours), then what is shown of it, each from the
rows, tables and files that the commands write: `words` (the summary), `drawn` (tables), `series` (losses); and `page`,
which puts them together. ``report.html`` and its neighbours are the template, the style sheet and the scripts.
"""
