"""Calibration sources of projected times: the measurements that bound the error of computing and communication.

| computing                                        | basis                                      |
|--------------------------------------------------|--------------------------------------------|
| a preset's peak and utilisation                  | `LARGE_PRESETS` from 2,048 wide on, or `SMALL_PRESETS` |
| a measured utilisation                           | `MEASURED_STEPS`                           |
| seconds from the user                            | none: they count as exact                  |

| communication                                    | basis                                      |
|--------------------------------------------------|--------------------------------------------|
| gloo's algorithms with costs of its software     | `GLOO_MEASURED`                            |
| gloo's algorithms without these costs, `gloo: {}` | `GLOO_FORMS`                              |
| NCCL's algorithms                                | `NCCL_PIECES`                              |
| measured times inside a node                     | `nvlink_basis`                             |
| NCCL's algorithm among GPUs with NVLink          | `nccl_nvlink_basis`                        |
| other algorithms, lines between places           | `WIDE_LINES`                               |
| other algorithms, a preset or several links      | `DATA_SHEET_LINKS`                         |
| other algorithms, a link from the user           | `SET_LINKS`                                |
| a pipeline's messages and averaging              | `PIPELINES_ON_LINES`                       |

``python -m tests.measure.validation.uncertainties`` in the repository computes the residuals of each source.
"""

from __future__ import annotations

import math

import numpy as np

from syncline.costmodel.collectives.nccl.nodes import NVLINK
from syncline.costmodel.collectives.nccl.nvlink import node_times
from syncline.costmodel.collectives.policies import all_by_library
from syncline.costmodel.collectives.table import MEASURED, gpu_nodes, link_of_all, nccl_on
from syncline.costmodel.compute.hardware import HARDWARE, Hardware
from syncline.costmodel.network.gloo_costs import FREE
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.uncertainty import Uncertainty, known_uncertainty

DATA_SHEET_LINKS = "rings on links of data sheets"
SET_LINKS = "rings on links of a set rate"
WIDE_LINES = "lines between places, by others' lines"
GLOO_FORMS = "gloo, its software for nothing"
GLOO_MEASURED = "gloo, its software measured"
NCCL_PIECES = "nccl, shaped"
PIPELINES_ON_LINES = "gpipe on lines of a set rate"
LARGE_PRESETS = "a preset's utilisation, 2048 wide and more"
SMALL_PRESETS = "a preset's utilisation, less than 2048 wide"
MEASURED_STEPS = "steps whose computing was measured"

LARGE_WIDTH = 2048
"""Smallest width of a model whose matrix products fill a GPU."""

EXACT = Uncertainty(1.0, 1.0, 0, "as given")
"""Uncertainty of seconds that the user sets."""


def computing_uncertainty(machine: Hardware | None, width: int | None, mfu: float | None = None) -> Uncertainty:
    """Return the uncertainty of computing seconds on a machine.

    Args:
        machine: hardware of a worker; None if the user sets the seconds.
        width: width of the model; None if unknown.
        mfu: utilisation that replaces the machine's.
    """
    if machine is None:
        return EXACT
    preset = HARDWARE.get(machine.name)
    if mfu is not None or preset is None or preset.mfu != machine.mfu:
        return measured_computing_uncertainty()
    return known_uncertainty([LARGE_PRESETS if width is not None and width >= LARGE_WIDTH else SMALL_PRESETS])


def measured_computing_uncertainty() -> Uncertainty:
    """Return the uncertainty of computing seconds that rest on timed steps."""
    return known_uncertainty([MEASURED_STEPS])


def communication_uncertainty(network: Network, algorithm: str | None) -> Uncertainty:
    """Return the uncertainty of collectives on a network under an algorithm or a policy."""
    library = (algorithm or "").partition("-")[0]
    if algorithm == NVLINK or (algorithm in ("auto", "nccl") and has_nvlink(network)):
        return known_uncertainty([nccl_nvlink_basis(np.inf)])
    if library == "nccl" and algorithm != "nccl":
        return known_uncertainty([NCCL_PIECES])
    if nccl_on(network) is not None and all_by_library(algorithm, network):
        return known_uncertainty([NCCL_PIECES])
    if library == "gloo" or (network.gloo is not None and algorithm is None):
        return known_uncertainty([GLOO_FORMS if network.gloo in (None, FREE) else GLOO_MEASURED])
    is_set = isinstance(network, Link) and not is_preset(network.name)
    return known_uncertainty([WIDE_LINES if isinstance(network, Matrix) else SET_LINKS if is_set else DATA_SHEET_LINKS])


def pipeline_uncertainty() -> Uncertainty:
    """Return the uncertainty of a pipeline's makespan on lines, with its averaging and computing that is known."""
    return known_uncertainty([PIPELINES_ON_LINES])


SMALL_BYTES = 8 * 2**20
"""Size below which the protocols and the latency of NVLink show."""


def nvlink_basis(gpu: str, gpus: int, nbytes: float) -> str:
    """Return the basis of a measured all-reduce inside a node."""
    counts = sorted(node_times(gpu))
    size = "below 8 MiB" if nbytes < SMALL_BYTES else "8 MiB and more"
    if gpus in counts:
        return f"NVLink, {gpu}, times that are known"
    where = "between" if counts[0] < gpus < counts[-1] else "beyond"
    return f"NVLink, {gpu}, {size}, {where} the numbers of GPUs that were measured"


def nccl_nvlink_basis(nbytes: float) -> str:
    """Return the basis of NCCL's algorithm among GPUs with NVLink: errors of machines that the fit did not see."""
    return f"NCCL over NVLink, {'below 8 MiB' if nbytes < SMALL_BYTES else '8 MiB and more'}, machines left out"


def has_nvlink(network: Network) -> bool:
    """Return whether NCCL's algorithm among GPUs with NVLink can carry a collective of all workers of a network."""
    if isinstance(network, TwoLevel):
        return network.inner.nvlink is not None
    if isinstance(network, MultiLevel):
        return gpu_nodes(network, math.prod(level.units or 2 for level in network.levels)) is not None
    return getattr(network, "nvlink", None) is not None


def call_uncertainty(network: Network, algorithm: str | None, workers: int, nbytes: float) -> Uncertainty:
    """Return the uncertainty of one collective on a network under an algorithm or a policy."""
    link = link_of_all(network, workers)
    if algorithm == MEASURED and link is not None and link.measured is not None:
        return known_uncertainty([nvlink_basis(link.measured.gpu, workers, nbytes)])
    if algorithm == NVLINK:
        return known_uncertainty([nccl_nvlink_basis(nbytes)])
    return communication_uncertainty(network, algorithm)


def is_preset(name: str) -> bool:
    """Return whether a network has the name of a preset, which data sheets describe."""
    return name in NETWORKS
