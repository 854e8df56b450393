"""DeMo, whose workers exchange the largest coefficients of blocks of their momenta."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork, block_messages, orthogonal_work
from syncline.costmodel.traffic.packing import block_pairs_bytes
from syncline.errors import SpecError
from syncline.fields import Period, Rate
from syncline.methods.parts.method_spec import (
    FP32_BYTES,
    MethodBase,
    Presets,
    Tensors,
    elements,
    per_step_formula,
    tensors_of,
)
from syncline.methods.registry import register


@register
class DeMoSpec(MethodBase):
    """DeMo: workers average the largest coefficients of blocks of their momenta.

    With ``per_node`` above 1, this is the two-level hybrid: each node of ``per_node`` neighbouring workers averages its
    gradients in full, and DeMo runs between the nodes. Each worker gathers a share of its node's coefficients from the
    workers with the same place in the other nodes; then the workers of each node gather all shares.

    Args:
        base: rule that uses the gathered components: ``sgd`` as they are, ``signum`` their sign, ``muon`` their polar
            factor.
        k: number of coefficients that are sent per block.
        chunk: largest length of a block along each dimension, in elements.
        beta: decay rate of the momentum.
        alpha: share of the sent components that is subtracted from the momentum: 1 in the public code, 0.2 in the
            paper.
        basis: ``dct``; ``random``, which changes in each step; or ``identity``, which sends elements of the momentum.
        average: ``senders``, each coefficient is averaged over the workers that sent it (public code); ``all``, over
            all workers (paper).
        index_bits: bits of an index; 0 for as few bits as the block's size needs.
        value_format: number format of a coefficient.
        period: number of steps between exchanges; 1 for DeMo as published.
        per_node: number of workers of a node; 1 for DeMo without nodes.
    """

    family = "sparse"
    source = "DeMo, Algorithm 4"

    presets: ClassVar[Presets] = {
        "demo": {"lr": 0.001},
        "demo-sgd": {"base": "sgd", "lr": 0.05},
        "demo-muon": {"base": "muon", "lr": 0.02},
        "demo-periodic": {"label": "demo-periodic", "period": 4, "lr": 0.001},
    }

    kind: Literal["demo"] = "demo"
    base: Literal["sgd", "signum", "muon"] = "signum"
    k: int = Field(default=32, ge=1)
    chunk: int = Field(default=64, ge=1)
    beta: Rate = 0.999
    alpha: Annotated[float, Field(ge=0, le=1)] = 1.0
    basis: Literal["dct", "random", "identity"] = "dct"
    average: Literal["senders", "all"] = "senders"
    index_bits: Literal[0, 16, 32, 64] = 64
    value_format: Literal["fp32", "bf16", "fp16"] = "fp32"
    period: Period = 1
    per_node: Annotated[int, Field(ge=1)] = 1

    @property
    @override
    def name(self) -> str:
        if self.label:
            return self.label
        base = "" if self.base == "signum" else f"-{self.base}"
        period = "" if self.period == 1 else f"-every-{self.period}"
        nodes = "" if self.per_node == 1 else f"-nodes-of-{self.per_node}"
        return f"demo{base}{period}{nodes}"

    def tensor_bytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of a parameter's pairs of index and coefficient.

        Raises:
            SpecError: a block has more entries than an index can count.
        """
        return block_pairs_bytes(shape, self.k, self.chunk, self.index_bits, self.value_format)

    @property
    @override
    def same_for_any_group(self) -> bool:
        return self.per_node == 1

    @property
    @override
    def sends_gradients(self) -> bool:
        """Return whether workers send gradients, as they do within nodes; coefficients have a format of their own."""
        return self.per_node > 1

    @property
    @override
    def sends_in_backward(self) -> bool:
        """Return whether gradients are averaged inside nodes, during the backward pass."""
        return self.per_node > 1

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the all-gather of each period; with nodes, an average in each node, then two all-gathers.

        Raises:
            SpecError: the number of workers is not a multiple of the workers of a node.
        """
        tensors = tensors_of(model)
        nbytes = sum(self.tensor_bytes(tensor.shape) for tensor in tensors)
        encoded = FP32_BYTES * elements(tensors)
        coefficients = Exchange(nbytes, self.period, label="top-k", collective="all_gather", encoded_bytes=encoded)
        node_size = min(self.per_node, workers)
        if node_size == 1:
            return [coefficients]
        if workers % node_size:
            raise SpecError("per_node", node_size, f"a divisor of the number of workers ({workers})")
        in_node, across_nodes = range(node_size), range(0, workers, node_size)  # ranks of worker 0's groups
        gradient = self._plain_exchange(elements(tensors), label="gradient", in_backward=True, first_group=in_node)
        if workers == node_size:
            return [gradient]
        # Each worker gathers a share of all nodes' coefficients, then the workers of a node gather all shares.
        share_bytes = math.ceil(nbytes / node_size)
        gathered_bytes = workers // node_size * share_bytes
        between_nodes = replace(coefficients, payload_bytes=share_bytes, first_group=across_nodes)
        # Forwarded bytes are encoded already.
        inside_nodes = replace(coefficients, payload_bytes=gathered_bytes, encoded_bytes=0, first_group=in_node)
        return [gradient, between_nodes, inside_nodes]

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes per step, for matrices whose sides are multiples of ``chunk``."""
        num_pairs = min(self.k, self.chunk**2)
        pair_bytes = self.tensor_bytes((self.chunk, self.chunk)) / num_pairs
        node_size, gradient_formula = min(self.per_node, workers), f"{self._wire_bytes(1)} N"
        if node_size > 1:
            if workers == node_size:
                return gradient_formula
            # A worker sends 1 / node_size of its node's pairs to other nodes, and as much of each node's to its own.
            pair_bytes *= (1 + workers // node_size) / node_size
        formula = per_step_formula(f"{pair_bytes:g} × {num_pairs} N / {self.chunk}²", self.period)
        return formula if node_size == 1 else f"{gradient_formula} + {formula}"

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        return elements(tensors_of(model))

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the update, and those that change bases and choose the coefficients to send."""
        signed: Sequence[TensorShape] = tensors if self.base == "signum" else []  # these move by signs
        if self.base == "muon":
            signed = [t for t in tensors if not t.is_matrix]
        momenta = ElementwiseWork(foreach_bytes=8, kernel_bytes=20, kernels=2).on(tensors)
        signs = ElementwiseWork(kernel_bytes=20, kernels=2).on(signed)
        work = UpdateWork(momenta + signs) + self._step_work(tensors)
        if self.base == "muon":
            work += orthogonal_work(tensors)
        messages = block_messages(tensors, self.k, self.chunk, has_basis=self.basis != "identity")
        return work + UpdateWork(messages=messages).every(self.period)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        from syncline.comm import SparsePairs

        names = ("k", "chunk", "beta", "alpha", "basis", "average", "period", "per_node")
        pairs = SparsePairs(self.index_bits, self.value_format)
        parts = {name: getattr(self, name) for name in names}
        reducer = optim.CoefficientMean(**parts, pairs=pairs, encoded=self.converts_to_wire)
        rule = optim.demo_rule(self.base)
        return optim.Method(params, self.lr, rule, sync=optim.EveryStep(), reducer=reducer, **options)
