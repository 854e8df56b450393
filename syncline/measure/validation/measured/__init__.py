"""Published measurements that come with the package: two tables, with their sources in ``provenance.md``."""
