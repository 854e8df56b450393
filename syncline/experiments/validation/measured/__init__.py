"""Measurements of others that come with the package: three tables, and where they are from in ``provenance.md``."""
