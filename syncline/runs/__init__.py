"""From a spec to a folder of results: run, compare, sweep, report.

Read `run.py` and `compare.py` first; `training` trains and times one method, `folders` writes and reads what comes out,
`processes` spreads trainings over processes, `sweep` repeats them, `report` makes the page.
"""
