"""Commands from a spec to a folder of results: ``run``, ``compare``, ``pipeline``, ``sweep``, ``report``.

Read `run.py` and `compare.py` first. `training` trains one method and times it, `folders` writes and reads results,
`processes` runs several trainings at once, `sweep` trains many configurations, and `report` makes a page of results.
"""
