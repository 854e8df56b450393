"""How a replica is laid out on workers, as a spec says it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from syncline.costmodel.compute.module_shape import Model
from syncline.costmodel.layouts.layout import Layout
from syncline.errors import SpecError
from syncline.fields import Spec, refusal

EXAMPLE = "tensor=8,pipeline=4, or fields, as in {tensor: 8, pipeline: 4}"

Ways = Annotated[int, Field(ge=1, strict=True)]


class LayoutSpec(Spec):
    """How many workers of a replica share what; with nothing said a replica is one worker.

    ``tensor``: each matrix; ``context``: each sequence; ``data``: see other sequences and average their gradients in
    every step; ``pipeline``: stages, with so many ``chunks`` each; ``expert``: of the ``data`` workers, the experts of
    a layer. ``tensor=8,pipeline=4`` is short for ``{tensor: 8, pipeline: 4}``.
    """

    tensor: Ways = 1
    context: Ways = 1
    data: Ways = 1
    pipeline: Ways = 1
    expert: Ways = 1
    chunks: Ways = 1

    @model_validator(mode="before")
    @classmethod
    def _by_text(cls, value: Any) -> Any:
        return layout_fields(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _can_be(self) -> LayoutSpec:
        try:
            self.made()
        except SpecError as error:
            raise refusal(error.path.removeprefix("layout."), error.value, error.expected) from None
        return self

    def made(self) -> Layout:
        """It, as the cost model has it.

        Raises:
            SpecError: experts over more than the data workers, or chunks without a pipeline.
        """
        return Layout(**dict(self))

    def check(self, model: Model, workers: int) -> None:
        """Refuse a layout that does not divide a model or the workers.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        layout = self.made()
        if layout.workers == 1:
            return
        try:
            layout.check(model)
            layout.replicas(workers)
        except SpecError as error:
            raise refusal(error.path, error.value, error.expected) from None


def layout_fields(text: str, path: str = "") -> dict[str, Any]:
    """The fields that ``tensor=8,pipeline=4`` stands for.

    Raises:
        PydanticCustomError: without a path, text of another form.
        SpecError: likewise, where there is a path.
    """
    fields: dict[str, Any] = {}
    if text.lstrip().startswith("{"):
        from syncline.yamls import parse_yaml

        try:
            found = parse_yaml(text)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
    for part in text.split(","):
        name, equals, count = (one.strip() for one in part.partition("="))
        if not equals or name not in LayoutSpec.model_fields or not count.isdecimal():
            if path:
                raise SpecError(path, text, EXAMPLE)
            raise refusal("", text, EXAMPLE)
        fields[name] = int(count)
    return fields
