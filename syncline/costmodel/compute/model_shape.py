"""Model shapes: how many parameters a transformer has and how much work a token is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syncline.costmodel.compute.tensors import TensorShape
from syncline.errors import SpecError, one_of

BIASES = ("qkv", "out", "mlp", "norm")
"""Where a layer can have biases; those of norms, the last norm has too."""

LARGEST = 10**9
"""Of any size: beyond, products of them are no numbers that arrays hold."""

MOST_TENSORS = 200_000
"""Of a model; the largest that are trained have a quarter of it, and listing more takes seconds."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer, as numbers.

    With width d, L layers, heads of width c, a of them for queries and g for keys and values, hidden width f, E
    experts, vocabulary V and sequence T there are ``2 (a + g) c d`` weights in a layer's attention (query, key, value,
    output: ``4 d^2`` where all heads are alike), ``2 f d`` in its MLP (up, down; ``3 f d`` with a gate), E times with
    experts and ``E d`` for their router, and V d in the output head. The embedding adds V d unless it is tied to the
    head, learned positions add T d, each norm d, each bias its matrix's rows.

    Args:
        name: for people.
        layers: L.
        width: d, a multiple of ``heads`` unless these have a width of their own.
        heads: a, of queries, per layer.
        vocabulary: V, as padded in the model.
        sequence: T, tokens in a training sequence.
        expansion: the MLP's hidden width over d, without a gate.
        tied: whether the output head is the embedding table.
        position_embedding: whether positions have a learned table (rotary positions have none).
        norms_per_layer: norms with a scale in a layer; with any, there is a final one too. 0: norms without parameters.
        gated: whether the MLP has a gate beside up.
        fused_qkv: whether query, key and value are one matrix.
        source: where the numbers come from.
        hidden: f; none: ``expansion`` times d.
        kv_heads: g, a divisor of a; none: a.
        head_width: c; none: d / a.
        positions: rows of the table of positions; none: T.
        fused_gate: whether the gate is in one matrix with up.
        biases: who has them, of `BIASES`.
        head_norms: whether queries and keys of each head pass a norm of c scales that the layer's heads share.
        experts: E; 1: an MLP without a router.
        experts_per_token: through how many of them a token goes.

    Raises:
        SpecError: a size out of range, or heads that do not divide what they share.
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

    def __post_init__(self) -> None:
        sizes = ("layers", "width", "heads", "vocabulary", "sequence", "expansion", "experts", "experts_per_token")
        for field in (*sizes, "hidden", "kv_heads", "head_width", "positions"):
            size = getattr(self, field)
            if size is not None and not 1 <= size <= LARGEST:
                raise SpecError(f"model.{field}", size, f"at least 1 and at most {LARGEST:,}")
        if self.head_width is None and self.width % self.heads:
            raise SpecError("model.heads", self.heads, f"a divisor of the width {self.width}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise SpecError("model.kv_heads", self.kv_heads, f"a divisor of the {self.heads} heads")
        if self.experts_per_token > self.experts:
            raise SpecError("model.experts_per_token", self.experts_per_token, f"at most the {self.experts} experts")
        if not 0 <= self.norms_per_layer <= LARGEST:
            raise SpecError("model.norms_per_layer", self.norms_per_layer, "at least 0")
        of_layer = 10 + self.norms_per_layer + 3 * self.experts
        if of_layer > MOST_TENSORS:
            many = "norms_per_layer" if self.norms_per_layer > self.experts else "experts"
            raise SpecError(f"model.{many}", getattr(self, many), "fewer: a layer has too many parameters to list")
        if self.layers * of_layer > MOST_TENSORS:
            most = MOST_TENSORS // of_layer
            raise SpecError("model.layers", self.layers, f"at most {most:,}: more have too many parameters to list")
        for i, one in enumerate(self.biases):
            if one not in BIASES:
                raise SpecError(f"model.biases.{i}", one, one_of(BIASES, str(one)))

    @property
    def hidden_width(self) -> int:
        """f, numbers between up and down."""
        return self.hidden or self.expansion * self.width

    @property
    def query_width(self) -> int:
        """a c, numbers in a token's queries."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def key_width(self) -> int:
        """g c, numbers in a token's keys, and in its values."""
        return self.query_width // self.heads * (self.kv_heads or self.heads)

    @property
    def layer(self) -> list[TensorShape]:
        """The parameters of one layer, in order; those of an expert have its number in their name."""
        d, a, g = self.width, self.query_width, self.key_width
        qkv = [("qkv", a + 2 * g)] if self.fused_qkv else [("query", a), ("key", g), ("value", g)]
        attention = [*((name, (rows, d), "qkv") for name, rows in qkv), ("out", (d, a), "out")]
        of_heads = [TensorShape(f"{name}_norm", (a // self.heads,)) for name in ("query", "key") if self.head_norms]
        mlp: list[TensorShape] = []
        if self.experts > 1:
            mlp.append(TensorShape("router", (self.experts, d), is_matrix=True))
        for expert in range(self.experts):
            mlp += self._with_biases(self._mlp, f"expert_{expert}." if self.experts > 1 else "")
        return [*self._around("attention", [*self._with_biases(attention), *of_heads]), *self._around("mlp", mlp)]

    @property
    def _mlp(self) -> list[tuple[str, tuple[int, int], str]]:
        d, f = self.width, self.hidden_width
        up = [("up", 2 * f if self.gated and self.fused_gate else f)]
        if self.gated and not self.fused_gate:
            up = [("gate", f), *up]
        return [*((name, (rows, d), "mlp") for name, rows in up), ("down", (d, f), "mlp")]

    def _with_biases(self, matrices: list[tuple[str, tuple[int, int], str]], prefix: str = "") -> list[TensorShape]:
        out = []
        for name, shape, kind in matrices:
            out.append(TensorShape(f"{prefix}{name}", shape, is_matrix=True))
            if kind in self.biases:
                out.append(TensorShape(f"{prefix}{name}_bias", shape[:1]))
        return out

    def _around(self, part: str, inside: list[TensorShape]) -> Iterator[TensorShape]:
        """A part of a layer among its norms: half of a layer's are the part's, the first of them before it."""
        norms = [f"{part}_norm_{i}" for i in range(self.norms_per_layer // 2)]
        for name in norms[:1]:
            yield from self._norm(name)
        yield from inside
        for name in norms[1:]:
            yield from self._norm(name)

    def _norm(self, name: str) -> list[TensorShape]:
        scale = TensorShape(name, (self.width,))
        return [scale, TensorShape(f"{name}_bias", (self.width,))] if "norm" in self.biases else [scale]

    @property
    def tensors(self) -> list[TensorShape]:
        """Every parameter in order, matrices as (outputs, inputs); embedding, positions and head are no matrices.

        Half of a layer's norms belong to its attention, half to its MLP; the first of each stands before it.
        """
        table = (self.vocabulary, self.width)
        out = [TensorShape("embedding", table)]
        if self.position_embedding:
            out.append(TensorShape("positions", (self.positions or self.sequence, self.width)))
        layer = self.layer
        for number in range(self.layers):
            out += [TensorShape(f"{number}.{one.name}", one.shape, one.is_matrix) for one in layer]
        if self.norms_per_layer:
            out += self._norm("norm")
        return out if self.tied else [*out, TensorShape("head", table)]

    @property
    def matmul_parameters(self) -> int:
        """Parameters that each token is multiplied with: the layers' matrices and the output head, tied or not.

        Of experts, those through which a token goes.
        """
        matrices = sum(one.elements for one in self.layer if one.is_matrix)
        idle = self.experts - self.experts_per_token
        unused = idle * sum(rows * columns for _, (rows, columns), _ in self._mlp)
        return self.layers * (matrices - unused) + self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        """All parameters, exactly; a tied head counts once."""
        ends = (1 if self.tied else 2) * self.vocabulary * self.width
        if self.position_embedding:
            ends += (self.positions or self.sequence) * self.width
        if self.norms_per_layer:
            ends += sum(one.elements for one in self._norm("norm"))
        return self.layers * sum(one.elements for one in self.layer) + ends

    @property
    def flops_per_token(self) -> int:
        """FLOPs of forward and backward per token: ``6 N + 12 L a c T``.

        N is `matmul_parameters` (a look-up in a table is no work): 2 FLOPs per weight forward, 4 backward. The second
        term is attention's scores and weighted sums, with ``a c = d`` where no heads have a width of their own, counted
        over the whole sequence, as if it were neither causal nor cut by a window.

        Source: A. Chowdhery et al., "PaLM" (2022), appendix B.
        """
        return 6 * self.matmul_parameters + 12 * self.layers * self.query_width * self.sequence

    def parameter_bytes(self, bytes_per_parameter: int = 4) -> int:
        """Bytes of one copy of the parameters; also of a gradient, or of one optimizer state (4: fp32)."""
        return self.parameters * bytes_per_parameter
