"""The command ``syncline report``: stored results as one page that needs no network.

Read `reported` (the content of a result for a page, its origin) and `themes` (the page's colours), then the parts of
the page, each made from the rows, tables and files that the commands write: `words` (summary and warnings), `series`
(losses), `shares` (parts of a step, ranges), `spans` (timelines, placement of communication); and `page`, which puts
them together. ``report.html`` and its neighbours are the template, the style sheet and the scripts.
"""
