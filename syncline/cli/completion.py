"""Names that a shell offers when Tab is pressed, as far as they can be found in an instant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

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


def offer_of(completion: str | tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return the function that offers names for the beginning of a word, or of its part after the last comma.

    Args:
        completion: the completion of a question's field: names, a catalogue, or ``specs_of:run,compare``.
    """

    def offer(incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        return [before + comma + name for name in _names(completion) if name.startswith(prefix)]

    return offer


def _names(completion: str | tuple[str, ...]) -> Iterable[str]:
    """Return all names of a completion; a shell itself offers files."""
    if not isinstance(completion, str):
        return completion
    source, _, commands = completion.partition(":")
    if source == "specs_of":
        return _specs_of(commands.split(","))
    if source == "algorithms":
        from syncline.costmodel import ALGORITHMS, OF_DIRECT, OF_NCCL, OF_PLACES

        catalogues = ALGORITHMS, OF_PLACES, OF_DIRECT, OF_NCCL
        names = (name for catalogue in catalogues for kind in catalogue.values() for name in kind)
        return ("auto", "gloo", "nccl", *dict.fromkeys(names))
    if source == "replications":
        from syncline.checkout import has_replication, import_replication

        return list(import_replication("replications").bundled_replications()) if has_replication() else ()
    if source == "runs":
        return sorted(str(path) for path in Path("runs").iterdir() if path.is_dir()) if Path("runs").is_dir() else ()
    module, _, name = CATALOGUES[source].partition(":")
    catalogue: Any = getattr(import_module(module), name)
    catalogue = catalogue() if callable(catalogue) else catalogue
    return catalogue.names() if hasattr(catalogue, "names") else list(catalogue)


def _specs_of(commands: Iterable[str]) -> list[str]:
    """Return the bundled specs that one of the commands accepts."""
    from syncline.specs.load import bundled, command_of_kind

    kinds = {name: re.search(r"^kind: *([\w-]+)", path.read_text("utf-8"), re.M) for name, path in bundled().items()}
    return [name for name, kind in kinds.items() if kind and command_of_kind(kind[1]) in commands]
