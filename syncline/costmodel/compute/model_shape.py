"""Model shapes: the parameters of a transformer, or of a user's module, and the work per token."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from syncline.costmodel.compute.tensors import TensorShape
from syncline.errors import SpecError, require_one_of

BIASES = ("qkv", "out", "mlp", "norm")
"""Parts of a layer that can have biases; with ``norm`` the last norm has biases, too."""

LARGEST = 10**9
"""Upper bound of any size; products of larger sizes overflow the integers of arrays."""

MOST_TENSORS = 200_000
"""Upper bound of a model's number of tensors, as a list takes seconds; the largest models have a quarter of it."""

NamedMatrix = tuple[str, tuple[int, int], str]
"""Name of a matrix, its (outputs, inputs), and the entry of `BIASES` that decides whether it has a bias."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only transformer.

    With width d, L layers, a query heads, g heads of keys and of values, all of width c, hidden width f, E experts,
    vocabulary V and sequence T, a layer has ``2 (a + g) c d`` weights in its attention (query, key, value, output) and
    ``2 f d`` in its MLP (up, down), or ``3 f d`` with a gate. With experts, a layer has E such MLPs and ``E d`` weights
    of a router. The output head has V d weights. The embedding adds V d unless it is tied to the head. Learned
    positions add T d, each norm d, and each bias one number for each row of its matrix.

    Args:
        name: display name.
        layers: L.
        width: d, a multiple of ``heads`` unless ``head_width`` is set.
        heads: a, query heads of a layer.
        vocabulary: V, as padded in the model.
        sequence: T, tokens in a training sequence.
        expansion: hidden width of the MLP over d, used if ``hidden`` is None.
        tied: whether the output head is the embedding table.
        position_embedding: whether positions have a learned table (rotary positions have none).
        norms_per_layer: number of norms with parameters in a layer. If it is above 0, a norm follows the last layer.
        gated: whether the MLP has a gate.
        fused_qkv: whether query, key and value are one matrix.
        source: origin of the numbers.
        hidden: f; None means ``expansion`` times d.
        kv_heads: g, a divisor of a; None means a.
        head_width: c; None means d / a.
        positions: rows of the table of positions; None means T.
        fused_gate: whether gate and up are one matrix.
        biases: parts with biases, of `BIASES`.
        head_norms: whether queries and keys of each head pass a norm of c scales that the layer's heads share.
        experts: E; 1 means an MLP without a router.
        experts_per_token: number of experts that process a token.
        expert_hidden: hidden width of an expert; None means f.
        shared_experts: number of further experts that process every token, as one MLP of their joint width.
        dense_layers: number of first layers that have one MLP of hidden width f in place of experts.
        key_rank: r of latent attention. Its keys and values are computed from r normalised numbers of a token, and
            from ``rotary_width`` numbers that all heads share. None means ordinary attention.
        query_rank: size of the vector from which a token's queries are computed; None means d.
        rotary_width: rotary part of a head's queries and keys, beside ``head_width``.
        value_width: width of a head's values; None means ``head_width``.
    """

    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    sequence: int
    expansion: int = 4
    tied: bool = False
    position_embedding: bool = False
    norms_per_layer: int = 0
    gated: bool = False
    fused_qkv: bool = False
    source: str = ""
    hidden: int | None = None
    kv_heads: int | None = None
    head_width: int | None = None
    positions: int | None = None
    fused_gate: bool = True
    biases: tuple[str, ...] = ()
    head_norms: bool = False
    experts: int = 1
    experts_per_token: int = 1
    expert_hidden: int | None = None
    shared_experts: int = 0
    dense_layers: int = 0
    key_rank: int | None = None
    query_rank: int | None = None
    rotary_width: int = 0
    value_width: int | None = None

    def __post_init__(self) -> None:
        """Raise ``SpecError`` for sizes out of range, or sizes that do not divide each other."""
        for name in (
            "layers", "width", "heads", "vocabulary", "sequence", "expansion", "experts", "experts_per_token", "hidden",
            "kv_heads", "head_width", "positions", "expert_hidden", "key_rank", "query_rank", "value_width",
        ):  # fmt: skip
            size = getattr(self, name)
            if size is not None and not 1 <= size <= LARGEST:
                raise SpecError(f"model.{name}", size, f"at least 1 and at most {LARGEST:,}")
        if self.head_width is None and self.width % self.heads:
            raise SpecError("model.heads", self.heads, f"a divisor of the width {self.width}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise SpecError("model.kv_heads", self.kv_heads, f"a divisor of the {self.heads} heads")
        if self.experts_per_token > self.experts:
            raise SpecError("model.experts_per_token", self.experts_per_token, f"at most the {self.experts} experts")
        self._check_parts()
        # A rough bound: attention, router and shared experts have at most 10 tensors, each expert 3.
        tensors_per_layer = 10 + self.norms_per_layer + 3 * self.experts
        if tensors_per_layer > MOST_TENSORS:
            name = "norms_per_layer" if self.norms_per_layer > self.experts else "experts"
            raise SpecError(f"model.{name}", getattr(self, name), "fewer, as a layer has too many parameters to list")
        if self.layers * tensors_per_layer > MOST_TENSORS:
            limit = MOST_TENSORS // tensors_per_layer
            raise SpecError("model.layers", self.layers, f"at most {limit:,}, as more have too many parameters to list")
        for i, part in enumerate(self.biases):
            require_one_of(f"model.biases.{i}", part, BIASES)

    def _check_parts(self) -> None:
        """Raise ``SpecError`` for fields of experts or latent attention that the model lacks, and for conflicts."""
        for name in ("norms_per_layer", "shared_experts", "rotary_width"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise SpecError(f"model.{name}", getattr(self, name), "at least 0")
        if not 0 <= self.dense_layers <= (self.layers if self.experts > 1 else 0):
            expected = f"at most the {self.layers} layers" if self.experts > 1 else "0 without experts"
            raise SpecError("model.dense_layers", self.dense_layers, expected)
        for name in ("shared_experts", "expert_hidden"):
            if getattr(self, name) and self.experts == 1:
                raise SpecError(f"model.{name}", getattr(self, name), "experts as well, at least 2")
        for name in ("query_rank", "rotary_width", "value_width"):
            if getattr(self, name) and self.key_rank is None:
                raise SpecError(f"model.{name}", getattr(self, name), "key_rank as well, of latent attention")
        if self.key_rank is not None and (self.fused_qkv or self.head_norms or self.kv_heads not in (None, self.heads)):
            expected = "none with fused_qkv, head_norms or kv_heads, which latent attention does not have"
            raise SpecError("model.key_rank", self.key_rank, expected)

    @property
    def hidden_width(self) -> int:
        """Return f, the width of the MLP between up and down."""
        return self.hidden or self.expansion * self.width

    @property
    def expert_width(self) -> int:
        """Return the hidden width f of an expert."""
        return self.expert_hidden or self.hidden_width

    @property
    def query_width(self) -> int:
        """Return ``a c``, the number of elements of a token's queries, without the rotary part of latent attention."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def key_width(self) -> int:
        """Return ``g c``, the number of elements of a token's keys (without latent attention also of its values)."""
        return self.query_width // self.heads * (self.kv_heads or self.heads)

    @property
    def attention_output_width(self) -> int:
        """Return the number of elements of a token's weighted sums of values."""
        return self.query_width if self.value_width is None else self.heads * self.value_width

    @property
    def attention_inputs_width(self) -> int:
        """Return the number of elements of a token's queries, keys and values that enter attention."""
        if self.key_rank is None:
            return self.query_width + 2 * self.key_width
        return 2 * (self.query_width + self.heads * self.rotary_width) + self.attention_output_width

    @property
    def scores_width(self) -> int:
        """Return the mean width of attention's two products: of queries with keys, and of scores with values.

        The first is as wide as the queries of all heads with their rotary part, the second as the output.
        """
        return (self.query_width + self.heads * self.rotary_width + self.attention_output_width) // 2

    @cached_property
    def layer(self) -> list[TensorShape]:
        """Return the parameters of one layer in order; the name of an expert's parameter has the expert's number."""
        return self._layer(dense=False)

    @cached_property
    def dense_layer(self) -> list[TensorShape]:
        """Return the parameters of one of the first layers, which have no experts."""
        return self._layer(dense=True)

    def layer_at(self, number: int) -> list[TensorShape]:
        """Return the parameters of layer ``number``, counted from 0."""
        return self.dense_layer if number < self.dense_layers else self.layer

    def _layer(self, dense: bool) -> list[TensorShape]:
        """Return the parameters of a layer with experts or, if ``dense``, with one MLP."""
        mlp: list[TensorShape] = []
        if self.experts == 1 or dense:
            mlp += self._with_biases(self._mlp(self.hidden_width))
        else:
            mlp.append(TensorShape("router", (self.experts, self.width), is_matrix=True))
            for expert in range(self.experts):
                mlp += self._with_biases(self._mlp(self.expert_width), f"expert_{expert}.")
            if self.shared_experts:
                mlp += self._with_biases(self._mlp(self.shared_experts * self.expert_width), "shared.")
        attention = self._attention if self.key_rank is None else self._latent_attention(self.key_rank)
        return [*self._with_norms("attention", attention), *self._with_norms("mlp", mlp)]

    @property
    def _attention(self) -> list[TensorShape]:
        """Return the parameters of a layer's attention with separate or fused queries, keys and values."""
        queries, keys = self.query_width, self.key_width
        separate_rows = {"query": queries, "key": keys, "value": keys}
        rows_by_name = {"qkv": queries + 2 * keys} if self.fused_qkv else separate_rows
        matrices: list[NamedMatrix] = [(name, (rows, self.width), "qkv") for name, rows in rows_by_name.items()]
        matrices.append(("out", (self.width, queries), "out"))
        tensors = self._with_biases(matrices)
        if self.head_norms:
            tensors += [TensorShape(f"{name}_norm", (queries // self.heads,)) for name in ("query", "key")]
        return tensors

    def _latent_attention(self, rank: int) -> list[TensorShape]:
        """Return the parameters of multi-head latent attention; ``rank`` numbers per token give keys and values.

        Source: DeepSeek-AI, DeepSeek-V2 (2024), section 2.1 and Appendix C.
        """
        # Widths of all heads together; the heads share the rotary part of the keys.
        keys, values = self.query_width, self.attention_output_width
        queries = keys + self.heads * self.rotary_width
        if self.query_rank is None:
            tensors = self._with_biases([("query", (queries, self.width), "qkv")])
        else:
            tensors = self._with_biases([("query_down", (self.query_rank, self.width), "qkv")])
            tensors.append(TensorShape("query_norm", (self.query_rank,)))
            tensors.append(TensorShape("query_up", (queries, self.query_rank), is_matrix=True))
        tensors += self._with_biases([("key_value_down", (rank + self.rotary_width, self.width), "qkv")])
        tensors.append(TensorShape("key_value_norm", (rank,)))
        tensors.append(TensorShape("key_value_up", (keys + values, rank), is_matrix=True))
        return tensors + self._with_biases([("out", (self.width, values), "out")])

    def _mlp(self, hidden_width: int) -> list[NamedMatrix]:
        """Return the matrices of an MLP with a hidden width: up, down and, if there is one, the gate."""
        has_own_gate = self.gated and not self.fused_gate
        gates: list[NamedMatrix] = [("gate", (hidden_width, self.width), "mlp")] if has_own_gate else []
        up_rows = 2 * hidden_width if self.gated and self.fused_gate else hidden_width
        return [*gates, ("up", (up_rows, self.width), "mlp"), ("down", (self.width, hidden_width), "mlp")]

    def _with_biases(self, matrices: list[NamedMatrix], prefix: str = "") -> list[TensorShape]:
        """Return the shapes of matrices, each followed by its bias if it has one; ``prefix`` begins the names."""
        tensors = []
        for name, (outputs, inputs), part in matrices:
            tensors.append(TensorShape(f"{prefix}{name}", (outputs, inputs), is_matrix=True))
            if part in self.biases:
                tensors.append(TensorShape(f"{prefix}{name}_bias", (outputs,)))
        return tensors

    def _with_norms(self, part: str, tensors: list[TensorShape]) -> list[TensorShape]:
        """Return a layer's attention or MLP (``part``) with half of the layer's norms: one before it, others after."""
        norms = [self._norm(f"{part}_norm_{number}") for number in range(self.norms_per_layer // 2)]
        return list(itertools.chain(*norms[:1], tensors, *norms[1:]))

    def _norm(self, name: str) -> list[TensorShape]:
        """Return the scale of a norm, with its bias if norms have biases."""
        scale = TensorShape(name, (self.width,))
        return [scale, TensorShape(f"{name}_bias", (self.width,))] if "norm" in self.biases else [scale]

    @property
    def tensors(self) -> list[TensorShape]:
        """Return every parameter of the transformer in order, matrices as (outputs, inputs).

        Embedding, positions and head do not count as matrices (`TensorShape.is_matrix`).
        """
        table = (self.vocabulary, self.width)
        tensors = [TensorShape("embedding", table)]
        if self.position_embedding:
            tensors.append(TensorShape("positions", (self.positions or self.sequence, self.width)))
        for number in range(self.layers):
            tensors += [tensor._replace(name=f"{number}.{tensor.name}") for tensor in self.layer_at(number)]
        if self.norms_per_layer:
            tensors += self._norm("norm")
        return tensors if self.tied else [*tensors, TensorShape("head", table)]

    def _multiplied_weights(self, dense: bool = False) -> int:
        """Return the number of weights of a layer's matrices that multiply each token, without idle experts."""
        tensors = self.dense_layer if dense else self.layer
        weights = sum(tensor.elements for tensor in tensors if tensor.is_matrix)
        if dense:
            return weights
        expert_weights = sum(outputs * inputs for _, (outputs, inputs), _ in self._mlp(self.expert_width))
        return weights - (self.experts - self.experts_per_token) * expert_weights

    @cached_property
    def matmul_parameters(self) -> int:
        """Return the number of weights that multiply each token: the layers' matrices and the output head, tied or not.

        Only the experts that process a token count.
        """
        in_dense_layers = self.dense_layers * self._multiplied_weights(dense=True)
        in_other_layers = (self.layers - self.dense_layers) * self._multiplied_weights()
        return in_dense_layers + in_other_layers + self.vocabulary * self.width

    @property
    def active_parameters(self) -> int:
        """Return the number of parameters that a token uses: all but those of the experts that do not process it."""
        idle_experts = (self.layers - self.dense_layers) * (self.experts - self.experts_per_token)
        one_expert = self._with_biases(self._mlp(self.expert_width))
        return self.parameters - idle_experts * sum(tensor.elements for tensor in one_expert)

    @cached_property
    def parameters(self) -> int:
        """Return the number of parameters of the transformer; a tied head counts once."""
        count = (1 if self.tied else 2) * self.vocabulary * self.width
        if self.position_embedding:
            count += (self.positions or self.sequence) * self.width
        if self.norms_per_layer:
            count += sum(tensor.elements for tensor in self._norm("norm"))
        count += self.dense_layers * sum(tensor.elements for tensor in self.dense_layer)
        return count + (self.layers - self.dense_layers) * sum(tensor.elements for tensor in self.layer)

    @property
    def flops_per_token(self) -> int:
        """Return the FLOPs per token, forward and backward: ``6 N + 12 L s T``.

        N is `matmul_parameters` (a table look-up costs no FLOPs): 2 FLOPs per weight forward, 4 backward. The second
        term counts attention's scores and weighted sums in L layers, with s the `scores_width` (usually that of the
        model), for the T tokens of the whole sequence, as if attention had neither a causal mask nor a window.

        Source: A. Chowdhery et al., "PaLM" (2022), appendix B.
        """
        return 6 * self.matmul_parameters + 12 * self.layers * self.scores_width * self.sequence

    def block_flops(self, dense: bool = False) -> int:
        """Return the FLOPs of one transformer layer per token, forward and backward.

        Args:
            dense: whether the layer is one of the first layers, without experts.
        """
        return 6 * self._multiplied_weights(dense) + 12 * self.scores_width * self.sequence

    def parameter_bytes(self, bytes_per_parameter: int = 4) -> int:
        """Return the bytes of the parameters, a gradient, or one optimizer state, with 4 bytes per number in fp32."""
        return self.parameters * bytes_per_parameter


@dataclass(frozen=True)
class ModuleShape:
    """The parameters and the work per token of any model, such as a user's module.

    Images, rows and other samples without tokens count as one token each.

    Args:
        name: display name.
        tensors: trainable parameters, in order.
        flops_per_token: FLOPs of a token, forward and backward.
        sequence: T, tokens in a sample.
        source: origin of the numbers.
        reference: reference in a spec: a name, ``module:name``, or ``{kind: python, target: module:name, ...}``.
    """

    name: str
    tensors: tuple[TensorShape, ...]
    flops_per_token: float
    sequence: int = 1
    source: str = ""
    reference: str | Mapping[str, Any] = field(default="", compare=False)

    @property
    def parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(tensor.elements for tensor in self.tensors)

    def parameter_bytes(self, bytes_per_parameter: int = 4) -> int:
        """Return the bytes of the parameters, a gradient, or one optimizer state, with 4 bytes per number in fp32."""
        return self.parameters * bytes_per_parameter


Model = ModelShape | ModuleShape
"""A model that a projection accepts."""
