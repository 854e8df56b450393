"""Folders of results: their lock, tables and manifest; the index of runs; comparing two of them."""
