"""Names that a shell offers when Tab is pressed, as far as they can be found in an instant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

Offer = Callable[[str], list[str]]

CATALOGUES = {
    "networks": "syncline.specs.cluster.links:BY_NAME",
    "clusters": "syncline.specs.cluster.clusters:bundled_clusters",
    "hardware": "syncline.specs.cluster.hardware:BY_NAME",
    "models": "syncline.specs.models:BY_NAME",
    "methods": "syncline.methods:METHODS",
    "collectives": "syncline.costmodel:COLLECTIVES",
    "schedules": "syncline.sim.pipelines.schedules:SCHEDULES",
    "failures": "syncline.costmodel.reliability.rates:FAILURE_RATES",
}
"""The place of each catalogue of names: a registry, a mapping, or a function that returns one of them."""


def offer_of(completion: str | tuple[str, ...]) -> Offer:
    """Return the completion that a question's field names: names, a catalogue, or ``specs_of:run,compare``."""
    if not isinstance(completion, str):
        return among(*completion)
    source, _, commands = completion.partition(":")
    if source == "specs_of":
        return specs_of(*commands.split(","))
    return _offering(NAMES[source] if source in NAMES else lambda: _catalogue(source))


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


def _catalogue(source: str) -> Iterable[str]:
    module, _, name = CATALOGUES[source].partition(":")
    catalogue = getattr(import_module(module), name)
    catalogue = catalogue() if callable(catalogue) else catalogue
    names: Iterable[str] = catalogue.names() if hasattr(catalogue, "names") else catalogue
    return names


def _layout_names() -> Iterable[str]:
    return [f"{name}=" for name in ("tensor", "context", "data", "pipeline", "expert", "chunks")]


def _algorithm_names() -> Iterable[str]:
    from syncline.costmodel import ALGORITHMS, OF_DIRECT, OF_NCCL

    names = (name for catalogue in (ALGORITHMS, OF_DIRECT, OF_NCCL) for kind in catalogue.values() for name in kind)
    return ("auto", "gloo", "nccl", *dict.fromkeys(names))


def _replication_names() -> Iterable[str]:
    from syncline.checkout import has_replication, import_replication

    files: dict[str, Path] = import_replication("replications").bundled_replications() if has_replication() else {}
    return files


def _run_names() -> Iterable[str]:
    folder = Path("runs")
    return sorted(str(path) for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()


NAMES = {
    "layouts": _layout_names,
    "algorithms": _algorithm_names,
    "replications": _replication_names,
    "runs": _run_names,
}
"""The functions of names that are in no catalogue."""


def _offering(names: Callable[[], Iterable[str]]) -> Offer:
    """Return a completion that offers the names that begin like the word, or like its part after the last comma."""

    def offer(incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(prefix)]

    return offer
