"""Constants of NCCL on NVLink: the part of its rate that collectives reach, and the seconds of the software."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Switches(NamedTuple):
    """NVLink switches that reduce (NVLS).

    Attributes:
        rate_part: n bytes per second of an all-reduce of n bytes, as a part of a GPU's NVLink rate.
        fewest_gpus: smallest number of GPUs for which NCCL uses the switches.
    """

    rate_part: float
    fewest_gpus: int


SWITCHES: dict[int, Switches] = {4: Switches(0.61, 5), 5: Switches(0.5, 6)}
"""Switches that reduce, by generation of NVLink."""

GENERATIONS = {3: 300e9, 4: 450e9, 5: 900e9}
"""Bytes per second of a GPU in one direction, by generation of NVLink through switches (data sheets of A100, H100,
B200). Most nodes of V100 have no switches: pairs of GPUs have one link, two or none."""


def generation_of(bytes_per_s: float) -> int | None:
    """Return the newest generation of NVLink whose rate per GPU and direction is at most a rate, or None.

    >>> [generation_of(rate) for rate in (150e9, 300e9, 400e9, 450e9, 900e9)]
    [None, 3, 3, 4, 5]
    """
    return max((generation for generation, rate in GENERATIONS.items() if rate <= bytes_per_s), default=None)


@dataclass(frozen=True)
class NvlinkCosts:
    """The constants of `syncline.costmodel.collectives.nccl.nodes`, see there for the formulas and the sources.

    Args:
        generation: generation of NVLink.
        switches: switches that reduce; None if there are none.
        factor: factor of all seconds; 1 unless the network is slowed down.
        call_s: seconds of a call inside a node.
        network_call_s: additional seconds of a call between nodes.
        lap_s: seconds that a lap of a ring of large tensors takes on top of its steps.
        ring_step_s: seconds of a ring's step inside a node.
        network_step_s: seconds of a ring's step between nodes.
        switch_gpu_s: seconds per GPU of an all-reduce of large tensors by switches.
        tree_level_s: seconds of each level beyond the first of a tree between nodes, up and down.
        half_bytes: size at which half of the seconds for large tensors count.
        ring_part: part of NVLink's rate that rings reach.
        card_part: part of the rate of a node's network cards that rings reach.
        tree_part: n bytes per second of a tree's all-reduce of n bytes, as a part of the slower of NVLink and the
            cards.
    """

    generation: int
    switches: Switches | None = None
    factor: float = 1.0
    call_s: float = 43e-6
    network_call_s: float = 64e-6
    lap_s: float = 87.5e-6
    ring_step_s: float = 3.4e-6
    network_step_s: float = 14e-6
    switch_gpu_s: float = 9.7e-6
    tree_level_s: float = 17e-6
    half_bytes: float = 17.4e6
    ring_part: float = 0.80
    card_part: float = 0.93
    tree_part: float = 0.40


def nvlink_costs(generation: int | None) -> NvlinkCosts | None:
    """Return NCCL's constants for a generation of NVLink, or None without NVLink."""
    return None if generation is None else NvlinkCosts(generation, SWITCHES.get(generation))
