"""Machines that fail, and what it costs those who train on them; between failures time advances in closed form.

Read `outages` (when what is away), `places` (spares and repairs), `outcome` (what is told), then three ways to go on:
`restarts` (all from a checkpoint), `reforms` (the others go on), `alone` (each by itself).
"""
