"""Models as their publishers describe them, against the numbers of parameters that they have."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.costmodel import MODELS, ModelShape
from syncline.costmodel.compute.configs import LONGEST, MODEL_TYPES, shape_of_config
from syncline.errors import SpecError

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2-7b": 7_615_616_512,
    "gemma-2-9b": 9_241_705_984,
}
"""Of the weights on Hugging Face: the numbers in a repository's safetensors files, which its page shows."""

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


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name: str) -> None:
    assert MODELS[name].parameters == PUBLISHED[name]


@pytest.mark.parametrize(("family", "fields", "parameters"), CODED)
def test_parameters_are_as_many_as_the_family_s_code_makes(
    family: str, fields: dict[str, Any], parameters: int
) -> None:
    assert shape_of_config({"model_type": family, **fields}).parameters == parameters


def test_every_family_is_tested() -> None:
    assert {family for family, _, _ in CODED} == set(MODEL_TYPES)


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


KNOWN = r"^m\.model_type: got 'bert'; expected one of 'gemma', .*; any other as a module: {kind"

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
