"""Measurements of a machine or a cluster by processes, and the cluster file that they give."""
