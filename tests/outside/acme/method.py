"""Local SGD that talks seldom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from syncline.costmodel import Exchange
from syncline.fields import Period
from syncline.methods import MethodBase, tensors_of
from syncline.methods.parts.method_spec import Presets, Tensors, elements


class Seldom(MethodBase):
    """Acme's local SGD: parameters are averaged every ``period`` steps."""

    family: ClassVar[str] = "acme"
    source: ClassVar[str] = "Acme's handbook"
    presets: ClassVar[Presets] = {"acme-seldom-8": {"label": "acme-seldom-8", "lr": 0.05, "period": 8}}

    kind: Literal["acme-seldom"] = "acme-seldom"
    period: Period = 4

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """All parameters, seldom."""
        return [Exchange(4 * elements(tensors_of(model)), self.period, "params")]

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Nothing."""
        return 0

    def optimizer(self, params: Iterable[Any], **options: Any) -> Any:
        """Of Syncline's own parts."""
        from syncline.optim import Method, Periodic, sgdm

        sync = Periodic({"params": self.period})
        return Method(params, self.lr, sgdm(), sync, **options)
