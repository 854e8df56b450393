"""Experiments: from a spec to results in a folder."""
