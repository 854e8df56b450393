"""Spec of the layout of a replica on workers: tensor, context, data, pipeline and expert parallelism."""

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
    """The layout of a replica: the number of workers for each kind of parallelism; by default one worker.

    ``tensor``: workers that share each matrix. ``context``: workers that share each sequence. ``data``: workers that
    see different sequences and average their gradients in every step. ``pipeline``: stages, each with ``chunks``
    chunks. ``expert``: workers, among the ``context x data`` workers, that share the experts of a layer. ``copies``:
    copies of the sharded states among these workers, each on neighbours (HSDP).
    ``tensor=8,pipeline=4`` is short for ``{tensor: 8, pipeline: 4}``.
    """

    tensor: Ways = 1
    context: Ways = 1
    data: Ways = 1
    pipeline: Ways = 1
    expert: Ways = 1
    chunks: Ways = 1
    copies: Ways = 1

    @model_validator(mode="before")
    @classmethod
    def _by_text(cls, value: Any) -> Any:
        return layout_fields(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_layout(self) -> LayoutSpec:
        try:
            self.build()
        except SpecError as error:
            raise refusal(error.path.removeprefix("layout."), error.value, error.expected) from None
        return self

    def build(self) -> Layout:
        """Return the layout as the cost model's `Layout`.

        Raises:
            SpecError: ``expert`` or ``copies`` is no divisor of ``context x data``, or there are chunks without a
                pipeline.
        """
        return Layout(**dict(self))

    def check(self, model: Model, workers: int) -> None:
        """Refuse a layout that does not divide a model or the workers.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        layout = self.build()
        if layout.workers == 1:
            return
        try:
            layout.check(model)
            layout.replicas(workers)
        except SpecError as error:
            raise refusal(error.path, error.value, error.expected) from None


def layout_fields(text: str, path: str = "") -> dict[str, Any]:
    """Return the fields of a layout such as ``tensor=8,pipeline=4``, or of its YAML mapping in braces.

    Raises:
        PydanticCustomError: the text has another form, and ``path`` is empty.
        SpecError: the text has another form, and ``path`` names the field.
    """
    fields: dict[str, Any] = {}
    if text.lstrip().startswith("{"):
        from syncline.yamls import parse_yaml

        try:
            mapping = parse_yaml(text)
        except ValueError:
            mapping = None
        if isinstance(mapping, dict):
            return mapping
    for part in text.split(","):
        name, equals, count = (text_part.strip() for text_part in part.partition("="))
        if not equals or name not in LayoutSpec.model_fields or not count.isdecimal():
            if path:
                raise SpecError(path, text, EXAMPLE)
            raise refusal("", text, EXAMPLE)
        fields[name] = int(count)
    return fields
