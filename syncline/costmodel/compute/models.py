"""Model shapes: how many parameters a transformer has and how much work a token is."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.costmodel.compute.tensors import TensorShape
from syncline.costmodel.presets import preset
from syncline.errors import SpecError


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer, as numbers.

    With width d, L layers, vocabulary V, sequence T and expansion e, there are 4 d^2 weights in a layer's attention
    (query, key, value, output), 2 e d^2 in its MLP (up, down; 3 e d^2 with a gate) and V d in the output head. The
    embedding adds V d unless it is tied to the head, learned positions add T d, each norm d. There are no biases.

    Args:
        name: for people.
        layers: L.
        width: d, a multiple of ``heads``.
        heads: attention heads per layer; no effect on either count.
        vocabulary: V, as padded in the model.
        sequence: T, tokens in a training sequence.
        expansion: e, the MLP's hidden width over d, without a gate.
        tied: whether the output head is the embedding table.
        position_embedding: whether positions have a learned table (rotary positions have none).
        norms_per_layer: norms with a scale in a layer; with any, there is a final one too. 0: norms without parameters.
        gated: whether the MLP has a gate beside up, in one matrix with it.
        fused_qkv: whether query, key and value are one matrix.
        source: where the numbers come from.

    Raises:
        SpecError: a size below 1, or heads that do not divide the width.
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

    def __post_init__(self) -> None:
        for field in ("layers", "width", "heads", "vocabulary", "sequence", "expansion"):
            if getattr(self, field) < 1:
                raise SpecError(f"model.{field}", getattr(self, field), "at least 1")
        if self.width % self.heads:
            raise SpecError("model.heads", self.heads, f"a divisor of the width {self.width}")

    @property
    def matmul_parameters(self) -> int:
        """Parameters that each token is multiplied with: the layers' matrices and the output head, tied or not."""
        return (
            self.layers * (4 + (3 if self.gated else 2) * self.expansion) * self.width**2 + self.vocabulary * self.width
        )

    @property
    def parameters(self) -> int:
        """All parameters, exactly; a tied head counts once."""
        vectors = 0 if self.tied else self.vocabulary
        if self.position_embedding:
            vectors += self.sequence
        if self.norms_per_layer:
            vectors += self.layers * self.norms_per_layer + 1
        return self.matmul_parameters + vectors * self.width

    @property
    def tensors(self) -> list[TensorShape]:
        """Every parameter in order, matrices as (outputs, inputs); embedding, positions and head are no matrices.

        Half of a layer's norms belong to its attention, half to its MLP; the first of each stands before it.
        """
        d, hidden = self.width, self.expansion * self.width
        out = [TensorShape("embedding", (self.vocabulary, d))]
        if self.position_embedding:
            out.append(TensorShape("positions", (self.sequence, d)))
        heads = [("qkv", 3)] if self.fused_qkv else [("query", 1), ("key", 1), ("value", 1)]
        attention = [(name, (times * d, d)) for name, times in heads] + [("out", (d, d))]
        mlp = [("up", ((2 if self.gated else 1) * hidden, d)), ("down", (d, hidden))]
        own = self.norms_per_layer // 2
        for layer in range(self.layers):
            for part, matrices in (("attention", attention), ("mlp", mlp)):
                norms = [TensorShape(f"{layer}.{part}_norm_{i}", (d,)) for i in range(own)]
                out += norms[:1]
                out += [TensorShape(f"{layer}.{name}", shape, is_matrix=True) for name, shape in matrices]
                out += norms[1:]
        if self.norms_per_layer:
            out.append(TensorShape("norm", (d,)))
        return out if self.tied else [*out, TensorShape("head", (self.vocabulary, d))]

    @property
    def flops_per_token(self) -> int:
        """FLOPs of forward and backward per token: ``6 N + 12 L d T``.

        N is `matmul_parameters` (a look-up in a table is no work): 2 FLOPs per weight forward, 4 backward. The second
        term is attention's scores and weighted sums, counted over the whole sequence, as if it were not causal.

        Source: A. Chowdhery et al., "PaLM" (2022), appendix B.
        """
        return 6 * self.matmul_parameters + 12 * self.layers * self.width * self.sequence

    def parameter_bytes(self, bytes_per_parameter: int = 4) -> int:
        """Bytes of one copy of the parameters; also of a gradient, or of one optimizer state (4: fp32)."""
        return self.parameters * bytes_per_parameter


# Rotary positions (section 4) and norms without parameters. A vocabulary of 50,304 (GPT-2's 50,257 up to a multiple of
# 64) with a head of its own gives the paper's 619 MiB and 1,545 MiB of fp32 (printed as MB); its total of 216,044 GB at
# 1.3B follows from no choice that we found.
_CURVADION = "CurvaDion, Table 4 (width, layers, heads) and section 4 (sequence); vocabulary and untied head inferred"
# "50K" is read as 50,000. Only with a tied head do the sizes come out as named. Peri-norm: two around each module.
_MT_DAO = "MT-DAO, Table 2 and Appendix B; tied head inferred"


def _curvadion(name: str, width: int, layers: int, heads: int) -> ModelShape:
    return ModelShape(name, layers, width, heads, vocabulary=50304, sequence=1024, source=_CURVADION)


def _mt_dao(name: str, layers: int, width: int, heads: int) -> ModelShape:
    return ModelShape(
        name, layers, width, heads, vocabulary=50000, sequence=2048, tied=True, norms_per_layer=4, source=_MT_DAO
    )


# OLMo's attention is one fused matrix, its MLP is gated (SwiGLU, "mlp_ratio 8"), its norms have no parameters. With a
# tied head of 50,304 the counts are DeMo's "non-embedding" 319,946,752 and 1,176,764,416, to the last digit.
_OLMO = "DeMo, section 3.1 (OLMo-300M, OLMo-1B); gate, vocabulary and tied head inferred from its parameter counts"


def _olmo(name: str, width: int) -> ModelShape:
    return ModelShape(
        name, 16, width, 16, vocabulary=50304, sequence=2048, tied=True, gated=True, fused_qkv=True, source=_OLMO
    )


MODELS: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _curvadion("gpt-160m", 768, 12, 6),
        _curvadion("gpt-350m", 1024, 24, 32),
        _curvadion("gpt-1.3b", 2048, 24, 32),
        _olmo("olmo-300m", 1024),
        _olmo("olmo-1b", 2048),
        _mt_dao("mt-dao-16m", 4, 256, 4),
        _mt_dao("mt-dao-125m", 12, 768, 12),
        _mt_dao("mt-dao-360m", 24, 1024, 16),
        _mt_dao("mt-dao-720m", 12, 2048, 16),
        _mt_dao("mt-dao-1.3b", 24, 2048, 16),
        ModelShape(
            "text-gpt",
            layers=3,
            width=96,
            heads=4,
            vocabulary=256,
            sequence=64,
            tied=True,
            position_embedding=True,
            norms_per_layer=2,
            fused_qkv=True,
            source="the defaults of the problem text-gpt in syncline.problems",
        ),
    )
}


def model(value: str | ModelShape, path: str = "model") -> ModelShape:
    """The shape that a user means: a name in ``MODELS``, or a ``ModelShape``.

    Raises:
        SpecError: an unknown name, with the closest match.
    """
    if isinstance(value, ModelShape):
        return value
    return preset(value, MODELS, path)
