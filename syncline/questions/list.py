"""The question of ``syncline list``."""

from __future__ import annotations

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option

CATALOGUES = (
    "networks", "clusters", "hardware", "models", "methods", "problems", "schedules", "studies", "specs", "fits",
    "prices", "failures",
)  # fmt: skip
"""Names of the catalogues."""


class List(
    Question,
    panel=shared.CATALOGUE,
    examples=("syncline list specs", "syncline list methods --model olmo-1b --workers 64"),
):
    """List the names that a spec or an option accepts: networks, methods, specs, ..."""

    catalogue: str = option(
        f"Catalogue: {', '.join(CATALOGUES[:-1])} or {CATALOGUES[-1]}.", REQUIRED, metavar="WHAT", positional=True,
        completion=CATALOGUES,
    )  # fmt: skip
    model: str | None = option(
        "Model for whose tensors 'list methods' counts bytes; by default gpt-160m.", metavar="NAME", completion="models"
    )
    workers: int | None = option(
        "Number of workers for which 'list methods' counts bytes; by default 8.", metavar="P", minimum=1
    )
    json: bool = shared.json()
