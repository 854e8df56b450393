"""Checks of arrays, bounded caches, tables of measured times, intervals; every part of the cost model uses them."""
