"""The command ``syncline report``: stored results on one HTML page that needs no network.

`reported` has the input of a page, `sentences`, `charts` and `shares` make its parts, and `page` puts them together.
``report.html`` and its neighbours are the template, the style sheet and the scripts.
"""
