"""Measurements of others that come with the package: two tables, and where they are from in ``provenance.md``."""
