"""Scripts here are run, not imported."""

collect_ignore = ["scripts"]
