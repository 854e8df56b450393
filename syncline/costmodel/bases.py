"""The bounds of projected times: the sets of measurements that bound the errors of computing and communication.

A *basis* is a set of measurements by several sources. Its bounds are those of one more source, so that they hold for a
machine that nobody measured. The scope of a basis says what was measured: an answer for another machine family, or
beyond the measured sizes and scales, names the reasons (`Uncertainty.reasons`).

| computing                                      | basis                                                       |
|------------------------------------------------|-------------------------------------------------------------|
| hardware from a calibration                    | the residuals in its file                                   |
| a preset, or hardware that a user describes    | `WIDE_MODELS` from 2,048 wide on, or `NARROW_MODELS`        |
| a transformer on a GPU whose kernels are known | `KERNELS`, or `EXPERT_KERNELS`                              |
| a utilisation that the user sets               | the same, with the ending `SET_UTILISATION`                 |
| timed steps                                    | `TIMED_STEPS`                                               |
| seconds from the user                          | none: they count as exact                                   |

| communication                                  | basis                                                       |
|------------------------------------------------|-------------------------------------------------------------|
| a network from a calibration                   | the residuals in its file                                   |
| a preset whose library costs were fitted to it | `FITTED_PRESETS`                                            |
| measured times inside a node                   | `nvlink_basis`                                              |
| NCCL's algorithm among GPUs with NVLink        | `nccl_nvlink_basis`                                         |
| NCCL's algorithms over other links             | `NCCL_LINKS`                                                |
| gloo's algorithms                              | `GLOO_LINKS`                                                |
| other algorithms, lines between places         | `WIDE_LINES`                                                |
| other algorithms                               | `any_library_basis`                                         |
| a pipeline's messages and averaging            | `PIPELINES_ON_LINES`                                        |

``python -m tests.measure.validation.uncertainties`` in the repository computes the residuals of each source. To add a
basis: name the basis here, return its name from `_communication_basis` or `computing_uncertainty` where it applies, and
add the residuals with their sources there.
"""

from __future__ import annotations

import math

import numpy as np

from syncline.costmodel.collectives.nccl import NVLINK, node_times
from syncline.costmodel.collectives.policies import all_by_library
from syncline.costmodel.collectives.table import MEASURED, gpu_nodes, link_of_all, nccl_on
from syncline.costmodel.compute.hardware import HARDWARE, Hardware
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.uncertainty import Scope, Uncertainty, uncertainties

WIDE_MODELS = "trainings by others of models 2048 wide and more"
NARROW_MODELS = "trainings by others of models less than 2048 wide"
SET_UTILISATION = ", with the utilisation of another training of the same source"
"""Ending of the basis of computing whose utilisation the user sets."""

TIMED_STEPS = "steps whose computing was timed"
"""Basis of computing seconds that a user measured as the time of a step."""

NCCL_LINKS = "NCCL's collectives over links by others"
GLOO_LINKS = "gloo's collectives over links by others"
ANY_LIBRARY = "collectives of NCCL and gloo over links by others"
"""Beginning of the basis of collectives without a library, see `any_library_basis`."""

WIDE_LINES = "lines between places, by others' lines"
PIPELINES_ON_LINES = "gpipe on lines of a set rate"
"""Basis of a pipeline's step on lines between places, with computing seconds that are known."""

KERNELS = "a step's kernels, published trainings"
EXPERT_KERNELS = "a step's kernels, published trainings of mixtures of experts"

STREAMS = "streams"
"""Family in the scope of a calibration of TCP streams, which says nothing about a library's collectives."""

FITTED_PRESETS = {"p3.2xlarge": "nccl, all links", "p3.2xlarge-gloo": "gloo, all links"}
"""Basis of the collectives on a preset whose library costs were fitted to collectives on these machines."""

LARGE_WIDTH = 2048
"""Smallest width of a model that counts as wide."""

EXACT = Uncertainty(1.0, 1.0, 0, "as given")
"""Uncertainty of seconds that the user sets."""

FAMILIES = {
    "a100": "A100", "a100-40gb": "A100", "h100": "H100", "h200": "H100", "b200": "B200", "gb200": "B200",
    "v100": "V100", "v100-32gb": "V100",
}  # fmt: skip
"""Name of a GPU preset's chip in the scopes of bases."""


def kernels_basis(experts: int) -> str:
    """Return the name of the measurements that bound the seconds of a transformer's kernels, by its experts."""
    return KERNELS if experts == 1 else EXPERT_KERNELS


def computing_uncertainty(
    machine: Hardware | None,
    width: int | None,
    mfu: float | None = None,
    workers: int | None = None,
    experts: int | None = None,
) -> Uncertainty:
    """Return the uncertainty of the computing seconds that are predicted for a machine.

    Args:
        machine: hardware of a worker; None if the user sets the seconds.
        width: width of the model; None if unknown.
        mfu: utilisation that the user sets; None for the machine's.
        workers: number of workers; None if unknown.
        experts: number of experts if the seconds are the sum of a transformer's kernels; else None.
    """
    if machine is None:
        return EXACT
    name = WIDE_MODELS if width is not None and width >= LARGE_WIDTH else NARROW_MODELS
    if mfu is not None:
        return uncertainties()[name + SET_UTILISATION]
    measured = uncertainties()[name if experts is None else kernels_basis(experts)]
    if machine.bounds is not None:  # a calibration of this machine, whose bounds hold inside of its scope
        reasons = machine.bounds.scope.reasons_outside(width=width)
        return measured.outside(reasons) if reasons else machine.bounds
    reasons = measured.scope.reasons_outside(width=width, workers=workers)
    families = measured.scope.families
    if HARDWARE.get(machine.name) != machine:  # no preset, or a changed one
        reasons = [f"hardware {machine.name!r} is described, not measured", *reasons]
    elif FAMILIES.get(machine.name, machine.name) not in families:
        reasons = [f"hardware {machine.name!r} was not measured ({', '.join(families)} were)", *reasons]
    return measured.outside(reasons)


def communication_uncertainty(
    network: Network, algorithm: str | None, workers: int | None = None, nbytes: float | None = None
) -> Uncertainty:
    """Return the uncertainty of the seconds that are predicted for collectives on a network.

    Args:
        algorithm: name of the algorithm, or of the policy that chooses one; None means the default of the network.
        workers: number of workers; None if unknown.
        nbytes: bytes of the collective; None for collectives of several sizes.
    """
    if algorithm == MEASURED and workers and nbytes:
        link = link_of_all(network, workers)
        if link is not None and link.measured is not None:
            return uncertainties()[nvlink_basis(link.measured.gpu, workers, nbytes)]
    is_grid = isinstance(network, Link) and network.arrays  # many links, whose comparison is no single truth value
    namesake = None if is_grid else NETWORKS.get(network.name)
    preset = network.name if namesake is not None and namesake.network == network else None
    name = _communication_basis(network, algorithm, preset, nbytes)
    measured = uncertainties()[name]
    calibration = network.outer.bounds if isinstance(network, TwoLevel) else getattr(network, "bounds", None)
    if calibration is None:  # nobody measured this network itself
        reasons = _reasons_outside(network, preset, measured.scope, basis_name=name)
        return measured.outside([*reasons, *measured.scope.reasons_outside(workers=workers, nbytes=nbytes)])
    reasons = calibration.scope.reasons_outside(workers=workers, nbytes=nbytes)
    if STREAMS in calibration.scope.families:
        reasons.append(f"streams over network {network.name!r} were measured, no library's collectives")
    return measured.outside(reasons) if reasons else calibration


def _communication_basis(network: Network, algorithm: str | None, preset: str | None, nbytes: float | None) -> str:
    """Return the name of the measurements that bound the seconds of collectives on a network without a calibration.

    Args:
        preset: name of the preset that equals the network; None if there is none.

    The other arguments are those of `communication_uncertainty`.
    """
    runs_nccl = nccl_on(network) is not None and all_by_library(algorithm, network)
    library = "" if algorithm is None else algorithm.partition("-")[0]  # "gloo-ring" is an algorithm of gloo
    runs_gloo = library == "gloo" or (network.gloo is not None and algorithm is None)
    if algorithm == NVLINK or (algorithm in ("auto", "nccl") and has_nvlink(network)):
        return nccl_nvlink_basis(np.inf if nbytes is None else nbytes)
    if preset in FITTED_PRESETS and (runs_nccl or runs_gloo):
        return FITTED_PRESETS[preset]
    # On a network without NCCL's costs the policy "nccl" chooses textbook algorithms.
    if runs_nccl or (library == "nccl" and algorithm != "nccl"):
        return NCCL_LINKS
    if runs_gloo:
        return GLOO_LINKS
    return WIDE_LINES if isinstance(network, Matrix) else any_library_basis(nbytes)


def _reasons_outside(network: Network, preset: str | None, scope: Scope, basis_name: str) -> list[str]:
    """Return the reasons why measurements do not cover a network without a calibration, as sentences for users.

    Args:
        preset: name of the preset that equals the network; None if a user describes it.
        scope: machines, sizes and scales of the measurements.
    """
    library_reasons = ["no library's algorithms are named"] if basis_name.startswith(ANY_LIBRARY) else []
    if preset is None:
        return [f"network {network.name!r} is described, not measured", *library_reasons]
    nvlink = getattr(network.inner if isinstance(network, TwoLevel) else network, "nvlink", None)
    is_nvlink_measured = nvlink is not None and f"NVLink {nvlink.generation}" in scope.families
    if is_nvlink_measured or basis_name in FITTED_PRESETS.values():
        return library_reasons
    return [f"network {preset!r} is from data sheets, not measured", *library_reasons]


SMALL_BYTES = 8 * 2**20
"""Bytes below which protocols and latency decide the time of a collective over NVLink."""

MESSAGE_BYTES = 2**20
"""Bytes below which a library's software decides the time of a collective between machines."""


def any_library_basis(nbytes: float | None) -> str:
    """Return the name of the measurements that bound the seconds of collectives of no particular library.

    ``nbytes`` are the bytes of a collective; None stands for the gradients of a whole model.
    """
    is_small = nbytes is not None and nbytes < MESSAGE_BYTES
    return f"{ANY_LIBRARY}, {'below 1 MiB' if is_small else '1 MiB and more'}"


def nvlink_basis(gpu: str, gpus: int, nbytes: float) -> str:
    """Return the name of the measurements that bound the interpolated seconds of an all-reduce among GPUs of a node."""
    measured_counts = node_times(gpu)
    if gpus in measured_counts:  # only the sizes are interpolated
        return f"NVLink, {gpu}, times that are known"
    size = "below 8 MiB" if nbytes < SMALL_BYTES else "8 MiB and more"
    where = "between" if min(measured_counts) < gpus < max(measured_counts) else "beyond"
    return f"NVLink, {gpu}, {size}, {where} the numbers of GPUs that were measured"


def nccl_nvlink_basis(nbytes: float) -> str:
    """Return the name of the measurements that bound NCCL's seconds over NVLink, by the bytes of a collective.

    Their errors are those of a cross-validation, which leaves out each machine in turn when it fits NCCL's constants.
    """
    return f"NCCL over NVLink, {'below 8 MiB' if nbytes < SMALL_BYTES else '8 MiB and more'}, machines left out"


def has_nvlink(network: Network) -> bool:
    """Return whether the algorithm `NVLINK` of NCCL applies to collectives of all workers of a network."""
    if isinstance(network, TwoLevel):
        return network.inner.nvlink is not None
    if isinstance(network, MultiLevel):
        # A level without a fixed number of units counts as two units, so that some messages cross it.
        workers = math.prod(level.units or 2 for level in network.levels)
        return gpu_nodes(network, workers) is not None
    return getattr(network, "nvlink", None) is not None
