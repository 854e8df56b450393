"""Folders of results: their locks, tables and manifests, the index of runs, and the comparison of two folders."""
