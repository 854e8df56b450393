"""Collectives played: ``rounds`` (of any algorithm, on any network), ``alone`` (one by itself, timed)."""
