"""Names that a shell offers when Tab is pressed, as far as they can be found in an instant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

WHAT = (
    "networks",
    "clusters",
    "hardware",
    "models",
    "methods",
    "problems",
    "schedules",
    "studies",
    "specs",
    "fits",
    "prices",
    "failures",
)
"""The lists of `syncline list`; a test compares them with the catalogues."""

PAPERS = ("curvadion", "demo", "mt-dao", "basis-rotation", "lion-cub")
"""The papers of `syncline reproduce`; a test compares them with the scoreboard."""

Offer = Callable[[str], list[str]]


def among(*names: str) -> Offer:
    """Return a completion that offers a few names."""
    return _offering(lambda: names)


def specs_of(*commands: str) -> Offer:
    """Return a completion that offers the bundled specs that one of these commands accepts.

    The shell itself offers files.
    """

    def names() -> Iterable[str]:
        from syncline.specs.load import bundled, command_of_kind

        for name, path in bundled().items():
            kind = re.search(r"^kind: *([\w-]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
            if kind and command_of_kind(kind[1]) in commands:
                yield name

    return _offering(names)


def _replication_names() -> Iterable[str]:
    from syncline.checkout import has_replication, import_replication

    files: dict[str, Path] = import_replication("replications").bundled_replications() if has_replication() else {}
    return files


def _network_names() -> Iterable[str]:
    from syncline.specs.cluster import links

    return links.BY_NAME.names()


def _cluster_names() -> Iterable[str]:
    from syncline.specs.cluster.clusters import bundled_clusters

    return bundled_clusters()


def _hardware_names() -> Iterable[str]:
    from syncline.specs.cluster import hardware

    return hardware.BY_NAME.names()


def _model_names() -> Iterable[str]:
    from syncline.specs import models

    return models.BY_NAME.names()


def _layout_names() -> Iterable[str]:
    return [f"{name}=" for name in ("tensor", "context", "data", "pipeline", "expert", "chunks")]


def _method_names() -> Iterable[str]:
    from syncline.methods import METHODS

    return METHODS


def _algorithm_names() -> Iterable[str]:
    from syncline.costmodel import ALGORITHMS, OF_NCCL

    names = (name for catalogue in (ALGORITHMS, OF_NCCL) for kind in catalogue.values() for name in kind)
    return ("auto", "gloo", "nccl", *dict.fromkeys(names))


def _collective_names() -> Iterable[str]:
    from syncline.costmodel import COLLECTIVES

    return COLLECTIVES


def _schedule_names() -> Iterable[str]:
    from syncline.sim.pipelines.schedules import SCHEDULES

    return SCHEDULES


def _failure_names() -> Iterable[str]:
    from syncline.costmodel.reliability.rates import FAILURE_RATES

    return FAILURE_RATES


def _run_names() -> Iterable[str]:
    folder = Path("runs")
    return sorted(str(path) for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()


def _offering(names: Callable[[], Iterable[str]]) -> Offer:
    """Return a completion that offers the names that begin like the word, or like its part after the last comma."""

    def offer(incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(prefix)]

    return offer


replications = _offering(_replication_names)
networks = _offering(_network_names)
clusters = _offering(_cluster_names)
hardware = _offering(_hardware_names)
models = _offering(_model_names)
layouts = _offering(_layout_names)
methods = _offering(_method_names)
algorithms = _offering(_algorithm_names)
collectives = _offering(_collective_names)
schedules = _offering(_schedule_names)
failures = _offering(_failure_names)
runs = _offering(_run_names)
