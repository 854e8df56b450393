"""Models as their publishers describe them, against the numbers of parameters that they have."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.costmodel import MODELS, ModelShape
from syncline.costmodel.compute.configs import LONGEST, MODEL_TYPES, shape_of_config
from syncline.errors import SpecError

PUBLISHED = {
    # the column "params" of llm-foundry's benchmarks, sequences of 2,048
    "mpt-125m": 125311488,
    "mpt-350m": 355985408,
    "mpt-760m": 760470528,
    "mpt-1b": 1315950592,
    "mpt-3b": 2651837440,
    "mpt-7b": 6658859008,
    "mpt-13b": 12853954560,
    "mpt-30b": 29975214080,
    "mpt-70b": 64862437376,
    # "params" of the *_presets.py in keras-hub (commit 71453d0, 2026-08-21), of models converted from these weights
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2-9b": 9_241_705_984,
    # likewise, less the 128,256 x 2,048 (3,072) of a head that is counted there although it is the embedding
    "llama-3.2-1b": 1_498_482_688 - 128_256 * 2048,
    "llama-3.2-3b": 3_606_752_256 - 128_256 * 3072,
    # "total" of a repository's safetensors files on Hugging Face, as others quote it
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    # likewise, less the 64 rotary frequencies that each layer's file has
    "llama-2-13b": 13_015_866_880 - 40 * 64,
    "llama-2-70b": 68_976_653_312 - 80 * 64,
    # counted by PyTorch on the weights, as others quote it
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "olmo-7b": 6_888_095_744,
    # the shape of Qwen2.5-7B
    "qwen2-7b": 7_615_616_512,
}
"""All parameters of public weights, with where the number is from."""

PRINTED = {
    "gpt3-5b": 5,
    "gpt3-20b": 20,
    "nemotron-340b": 340,
    "gpt3-125m": 0.125,
    "gpt3-350m": 0.35,
    "gpt3-760m": 0.76,
    "gpt3-1.3b": 1.3,
    "gpt3-2.7b": 2.7,
    "gpt3-6.7b": 6.7,
    "gpt3-13b": 13.0,
    "gpt3-175b": 175.0,
    "llama-7b": 6.7,
    "llama-13b": 13.0,
    "llama-30b": 32.5,
    "llama-65b": 65.2,
    "llama-3.2-1b": 1.23,
    "llama-3.2-3b": 3.21,
    "deepseek-v2-lite": 16,
    "deepseek-v2": 236,
    "deepseek-v3": 671,
}
"""Billions, as their publishers print them.

Sources: T. Brown et al. (2020), Table 2.1; H. Touvron et al., LLaMA (2023), Table 2; MODEL_CARD.md of Llama 3.2 in
meta-llama/llama-models; README.md of deepseek-ai/DeepSeek-V2 and DeepSeek-V3.
"""

ACTIVE = {
    # billions; whether the embedding is among them
    "mixtral-8x7b": (13, True),
    "qwen3-30b-a3b": (3.3, True),
    "qwen3-235b-a22b": (22, True),
    "deepseek-v2-lite": (2.4, False),
    "deepseek-v2": (21, False),
    "deepseek-v3": (37, False),
}
"""Parameters that a token meets, as printed: A. Jiang et al. (2024), abstract; Qwen3's model cards; README.md of
deepseek-ai/DeepSeek-V2 and DeepSeek-V3. Who counts the embedding is told by the digits alone."""

SMALL: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3, "vocab_size": 300}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2: dict[str, Any] = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": 300}

CODED: list[tuple[str, dict[str, Any], int]] = [
    ("llama", SMALL, 177_088),
    ("llama", SMALL | {"attention_bias": True, "mlp_bias": True, "head_dim": 32, "tie_word_embeddings": True}, 196_960),
    ("mistral", SMALL | {"head_dim": 32}, 213_952),
    ("mixtral", SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}, 481_984),
    ("qwen2", SMALL | {"tie_word_embeddings": True}, 158_272),
    ("qwen2", SMALL, 177_472),
    ("qwen3", SMALL, 435_904),
    ("qwen3", SMALL | {"attention_bias": True, "head_dim": 8}, 159_088),
    ("gemma", SMALL, 710_848),
    ("gemma", SMALL | {"tie_word_embeddings": False}, 730_048),
    ("gemma2", SMALL, 711_232),
    ("gemma3_text", SMALL | {"head_dim": 16}, 158_368),
    ("phi3", SMALL, 177_088),
    ("gpt2", GPT2, 173_376),
    ("gpt2", GPT2 | {"n_inner": 100, "tie_word_embeddings": False}, 132_204),
    ("gpt_neox", SMALL, 157_520),
    ("gpt_neox", SMALL | {"attention_bias": False}, 156_752),
]
"""Families, fields, and the parameters of the module that transformers 5.23 makes of them."""


LATENT: dict[str, Any] = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
LATENT |= {"n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 2}
_ENDS = 2 * 300 * 64
_ATTENTION = 64 * 64 + 2 * 32 * 64 + 64 * 64
_LATENT = (16 + 4) * 64 + 16 + 4 * (8 + 6) * 16 + 64 * 4 * 6
_EXPERTS = 5 * 64 + (5 + 2) * 3 * 64 * 32

BY_HAND: list[tuple[str, dict[str, Any], int]] = [
    ("olmo", SMALL, 3 * (_ATTENTION + 3 * 64 * 176) + _ENDS),
    (
        "qwen3_moe",
        SMALL | {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        3 * (_ATTENTION + 2 * 16 + 2 * 64 + 4 * 64 + 4 * 3 * 64 * 32) + 64 + _ENDS,
    ),
    ("deepseek_v2", SMALL | LATENT, 3 * (4 * 12 * 64 + _LATENT + _EXPERTS + 2 * 64) + 64 + _ENDS),
    (
        "deepseek_v3",
        SMALL | LATENT | {"q_lora_rank": 24, "first_k_dense_replace": 1},
        3 * (24 * 64 + 24 + 4 * 12 * 24 + _LATENT + 2 * 64) + 2 * _EXPERTS + 3 * 64 * 176 + 64 + _ENDS,
    ),
]
"""Families whose published models are above, with the parameters of small ones counted matrix by matrix."""


def test_parameters_are_as_many_as_published() -> None:
    assert {name: MODELS[name].parameters for name in PUBLISHED} == PUBLISHED


def test_parameters_are_as_many_as_printed() -> None:
    # GPT-3's sizes are named loosely: 356 million are its 350M
    assert {name: MODELS[name].parameters / 1e9 for name in PRINTED} == pytest.approx(PRINTED, rel=0.02)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_as_many_as_printed(name: str) -> None:
    shape, (billions, embedding) = MODELS[name], ACTIVE[name]
    table = 0 if embedding else shape.vocabulary * shape.width
    assert (shape.active_parameters - table) / 1e9 == pytest.approx(billions, rel=0.025)


def test_every_public_model_has_a_sourced_count() -> None:
    rounded = {"internlm-7b", "nemotron-8b", "nemotron-22b"}  # no report has more digits than the name
    papers = {"gpt-160m", "gpt-350m", "gpt-1.3b", "olmo-300m", "olmo-1b", "text-gpt"}
    papers |= {name for name in MODELS if name.startswith("mt-dao-")}
    assert MODELS.keys() - papers == {*PUBLISHED, *PRINTED} | rounded


def test_parameters_are_as_many_as_the_family_s_code_makes() -> None:
    for family, fields, parameters in CODED + BY_HAND:
        assert shape_of_config({"model_type": family, **fields}).parameters == parameters, family


def test_every_family_is_tested() -> None:
    assert {family for family, _, _ in CODED + BY_HAND} == set(MODEL_TYPES)


def test_work_of_llama_2_is_six_times_its_matrices_and_attention() -> None:
    matrices = 6_738_415_616 - 32000 * 4096 - 65 * 4096  # without the embedding, two norms a layer and the last one
    assert MODELS["llama-2-7b"].flops_per_token == 6 * matrices + 12 * 32 * 4096 * 4096


def test_a_token_goes_through_two_of_mixtral_s_experts() -> None:
    mixtral = MODELS["mixtral-8x7b"]
    # "each token ... only uses 13B active parameters during inference": A. Jiang et al. (2024), abstract
    assert mixtral.matmul_parameters + 32000 * 4096 + 65 * 4096 == 12_879_925_248
    assert sum(one.elements for one in mixtral.tensors if one.is_matrix) > 3 * mixtral.matmul_parameters


def test_without_a_model_type_fields_tell() -> None:
    assert shape_of_config(SMALL).parameters == CODED[0][2]
    assert shape_of_config(GPT2).parameters == CODED[13][2]


def test_a_sequence_is_given_or_the_positions_to_a_limit() -> None:
    long = SMALL | {"max_position_embeddings": 131072}
    assert [shape_of_config(fields).sequence for fields in (SMALL, long, long | {"sequence": 32768})] == [
        64,
        LONGEST,
        32768,
    ]
    short = shape_of_config(GPT2 | {"sequence": 16})
    assert (short.sequence, short.parameters) == (16, CODED[13][2])


def test_what_changes_no_shape_is_not_read_and_null_is_as_good_as_left_out() -> None:
    more = {"architectures": ["LlamaForCausalLM"], "rope_theta": 1e4, "rms_norm_eps": 1e-5, "head_dim": None}
    assert shape_of_config(SMALL | more) == shape_of_config(SMALL)
    assert isinstance(shape_of_config(SMALL, "mine", source="here"), ModelShape)


KNOWN = r"^m\.model_type: got 'bert'; expected one of 'deepseek_v2', .*; any other as a module: {kind"

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "bert"}, KNOWN),
    ({"model_type": "lama"}, r"did you mean 'llama'"),
    ({"model_type": 3}, r"^m\.model_type: got 3; expected text"),
    (SMALL | {"hidden_size": None}, r"^m\.hidden_size: got None; expected a value"),
    (SMALL | {"hidden_size": True}, r"^m\.hidden_size: got True; expected a whole number"),
    (SMALL | {"hidden_size": 6.5}, r"^m\.hidden_size: got 6.5; expected a whole number"),
    (SMALL | {"num_attention_heads": 7}, r"^m\.num_attention_heads: got 7; expected a divisor of the width 64"),
    (SMALL | {"num_key_value_heads": 3}, r"^m\.num_key_value_heads: got 3; expected a divisor of the 4 heads"),
    (SMALL | {"tie_word_embeddings": "yes"}, r"^m\.tie_word_embeddings: got 'yes'; expected true or false"),
    (SMALL | {"num_hidden_layers": 10**9}, r"^m\.num_hidden_layers: got 1000000000; expected at most"),
    ({"hidden_sise": 64}, r"^m\.hidden_sise: got 64; expected no such field here, but 'hidden_size'"),
    ({"model_type": "mixtral", **SMALL}, r"^m\.num_local_experts: got None; expected a value"),
    ({"n_embd": 64}, r"^m\.n_positions: got None"),
]


@pytest.mark.parametrize(("fields", "line"), REFUSED)
def test_what_cannot_be_read_is_told_by_the_config_s_own_field(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        shape_of_config(fields, path="m")


def test_a_misspelt_field_with_a_default_is_refused() -> None:
    fields = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
    with pytest.raises(SpecError, match="num_key_value_head: got 2; expected no such field here, but 'num_key_value_h"):
        shape_of_config(fields | {"num_key_value_head": 2})
