"""Model presets: the models of the papers, and others with public shapes."""

from __future__ import annotations

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.public_models import PUBLIC

# Rotary positions (section 4) and norms without parameters. A vocabulary of 50,304 (GPT-2's 50,257 up to a multiple of
# 64) with an untied head gives the paper's 619 MiB and 1,545 MiB of fp32 (printed as MB); no choice that we found gives
# its total of 216,044 GB at 1.3B.
_CURVADION = "CurvaDion, Table 4 (width, layers, heads) and section 4 (sequence); vocabulary and untied head inferred"
# "50K" is read as 50,000. The sizes match the names only with a tied head. Peri-norm: two around each module.
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
        *PUBLIC,
    )
}
"""Model presets by name."""
