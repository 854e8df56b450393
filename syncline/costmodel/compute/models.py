"""Models by name: those of the papers, and some whose weights are public."""

from __future__ import annotations

from syncline.costmodel.compute.configs import shape_of_config
from syncline.costmodel.compute.model_shape import ModelShape

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


def _gpt2(name: str, width: int, layers: int, heads: int) -> ModelShape:
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 1024, "vocab_size": 50257}
    return shape_of_config(
        sizes, name, source="A. Radford et al., GPT-2 (2019), Table 2; config.json of openai-community/gpt2"
    )


# Of what is public each has the fields of its config.json; test_configs.py has their published numbers of parameters.
_7B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_8B = _7B | {"num_key_value_heads": 8, "intermediate_size": 14336}
_70B = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
_70B |= {"intermediate_size": 28672}
_LLAMA_2 = "H. Touvron et al., Llama 2 (2023), Table 1; config.json of meta-llama/Llama-2-{}-hf"
_LLAMA_3 = "A. Grattafiori et al., The Llama 3 Herd (2024), Table 3; config.json of meta-llama/Meta-Llama-3-{}"
_MISTRAL = "A. Jiang et al., Mistral 7B (2023), Table 1; config.json of mistralai/Mistral-7B-v0.1"
_MIXTRAL = "A. Jiang et al., Mixtral of Experts (2024), Table 1; config.json of mistralai/Mixtral-8x7B-v0.1"
_QWEN = "A. Yang et al., Qwen2 Technical Report (2024), Table 1; config.json of Qwen/Qwen2-7B"
_GEMMA = "Gemma Team, Gemma 2 (2024), Table 1; config.json of google/gemma-2-9b"

_QWEN2_7B = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
_QWEN2_7B |= {"intermediate_size": 18944}
_GEMMA_9B = {"hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8}
_GEMMA_9B |= {"intermediate_size": 14336}


def _public(name: str, source: str, vocabulary: int, sequence: int, model_type: str, **sizes: int) -> ModelShape:
    fields = {"model_type": model_type, "vocab_size": vocabulary, "sequence": sequence, **sizes}
    return shape_of_config(fields, name, source=source)


PUBLIC = (
    _gpt2("gpt2", 768, 12, 12),
    _gpt2("gpt2-medium", 1024, 24, 16),
    _gpt2("gpt2-large", 1280, 36, 20),
    _gpt2("gpt2-xl", 1600, 48, 25),
    _public("llama-2-7b", _LLAMA_2.format("7b"), 32000, 4096, "llama", **_7B, intermediate_size=11008),
    _public("llama-2-70b", _LLAMA_2.format("70b"), 32000, 4096, "llama", **_70B),
    _public("llama-3-8b", _LLAMA_3.format("8B"), 128256, 8192, "llama", **_8B),
    _public("llama-3-70b", _LLAMA_3.format("70B"), 128256, 8192, "llama", **_70B),
    _public("mistral-7b", _MISTRAL, 32000, 8192, "mistral", **_8B),
    _public("mixtral-8x7b", _MIXTRAL, 32000, 8192, "mixtral", **_8B, num_local_experts=8, num_experts_per_tok=2),
    _public("qwen2-7b", _QWEN, 152064, 4096, "qwen2", **_QWEN2_7B),
    _public("gemma-2-9b", _GEMMA, 256000, 8192, "gemma2", **_GEMMA_9B),
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
"""By name."""
