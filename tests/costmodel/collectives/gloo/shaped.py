"""The costs of gloo's software that our measurements between network namespaces give."""

from __future__ import annotations

from syncline.costmodel import GlooCosts

SHAPED = GlooCosts(
    message_s=0.114e-3,
    call_s=((2, 0.20e-3), (4, 0.49e-3)),
    byte_s=(
        ("all_reduce", 0.04e-9),
        ("reduce_scatter", 0.44e-9),
        ("all_gather", 0.34e-9),
        ("all_to_all", 0.10e-9),
        ("broadcast", 0.02e-9),
    ),
    call_of_s=(
        ("all_reduce", ((2, 0.15e-3), (4, 0.68e-3))),
        ("reduce_scatter", ((2, 0.20e-3), (4, 0.51e-3))),
        ("all_gather", ((2, 0.23e-3), (4, 0.50e-3))),
        ("all_to_all", ((2, 0.23e-3), (4, 0.50e-3))),
        ("broadcast", ((2, 0.15e-3), (4, 0.28e-3))),
    ),
)
"""Costs of torch 2.13 on two shared x86-64 cores, 2 and 4 processes between network namespaces.

Source: `syncline.costmodel.link_fit` on measurements at 1 Gbit/s and 1 ms, see docs/validation.md.
"""
