"""GPUs by the word in a driver's name: the preset of the network of their machines, and their NVLink."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """The network and the NVLink of a GPU's machines.

    Attributes:
        network: preset of the network between such GPUs; None if there is none.
        nvlink: generation of NVLink whose costs are measured; None if they are not.
    """

    network: str | None
    nvlink: int | None


GPUS = {
    "V100": Gpu("p3.2xlarge", None), "A100": Gpu("dgx-a100", 3), "H100": Gpu("dgx-h100", 4), "H200": Gpu("dgx-h200", 4),
    "H20": Gpu(None, 4), "H800": Gpu(None, 4), "B200": Gpu("dgx-b200", 5), "B300": Gpu(None, 5),
    "GB200": Gpu("gb200-nvl72", 5), "GB300": Gpu(None, 5),
}  # fmt: skip
"""The GPUs by the word in a driver's name. Source: NVIDIA's data sheets."""

MACHINES = {word.lower(): gpu.network for word, gpu in GPUS.items() if gpu.network} | {"a100-40gb": "dgx-a100"}
"""Presets of networks by the preset of the hardware, for tables and logs that name no network."""


def gpus_in(names: str) -> list[Gpu]:
    """Return the GPUs whose words a driver's name has.

    >>> gpus_in("NVIDIA A100-SXM4-80GB")
    [Gpu(network='dgx-a100', nvlink=3)]
    """
    words = names.replace("-", " ").split()
    return [gpu for word, gpu in GPUS.items() if word in words]
