"""Model shapes from the fields of a ``config.json`` of Hugging Face's transformers.

The module knows how the code of each model family reads the fields: which matrices have biases, the number of norms in
a layer, the defaults of fields. It ignores fields that change neither a parameter's shape nor the work of a token, for
instance dropout. A window of attention does not reduce the work.

Source: ``configuration_*.py`` and ``modeling_*.py`` of the families in github.com/huggingface/transformers, 5.23.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.errors import SpecError, one_of

LONGEST = 8192
"""Upper bound of the training sequence in tokens, if a config only has a number of positions.

Most models with more positions were pretrained on sequences of this length."""


@dataclass(frozen=True)
class ModelFamily:
    """The properties of a LLaMA-like family: models with rotary positions, a gated MLP, and norms without biases.

    Args:
        biases: parts of a layer that always have biases.
        bias_fields: name of a config field -> parts of a layer that have biases if the field is true.
        tied: default of ``tie_word_embeddings``, whether the head is the embedding.
        head_width: default of ``head_dim``, the width of a head; None means width / heads.
        fused: whether query, key and value are one matrix, and gate and up another.
        head_norms: whether queries and keys of each head pass a norm.
        experts: name of the config field with the number of experts; empty without experts.
    """

    norms: int = 2
    biases: tuple[str, ...] = ()
    bias_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tied: bool = False
    head_width: int | None = None
    fused: bool = False
    head_norms: bool = False
    experts: str = ""


ATTENTION_BIAS = {"attention_bias": ("qkv", "out")}

MODEL_FAMILIES: dict[str, ModelFamily] = {
    "llama": ModelFamily(bias_fields=ATTENTION_BIAS | {"mlp_bias": ("mlp",)}),
    "mistral": ModelFamily(),
    "mixtral": ModelFamily(experts="num_local_experts"),
    "qwen2": ModelFamily(biases=("qkv",)),
    "qwen3": ModelFamily(bias_fields=ATTENTION_BIAS, head_width=128, head_norms=True),
    "qwen3_moe": ModelFamily(bias_fields=ATTENTION_BIAS, head_norms=True, experts="num_experts"),
    "olmo": ModelFamily(norms=0, bias_fields=ATTENTION_BIAS),
    "gemma": ModelFamily(bias_fields=ATTENTION_BIAS, tied=True, head_width=256),
    "gemma2": ModelFamily(norms=4, bias_fields=ATTENTION_BIAS, tied=True, head_width=256),
    "gemma3_text": ModelFamily(norms=4, bias_fields=ATTENTION_BIAS, tied=True, head_width=256, head_norms=True),
    "phi3": ModelFamily(fused=True),
}
"""LLaMA-like families by ``model_type``."""

DEEPSEEK = ("deepseek_v2", "deepseek_v3")

MODEL_TYPES = (*MODEL_FAMILIES, "gpt2", "gpt_neox", *DEEPSEEK)
"""Every ``model_type`` that can be read."""

ANY_OTHER = "; any other as a module: {kind: python, target: my_module:make_model}"


def shape_of_config(fields: Mapping[str, Any], name: str = "", path: str = "model", source: str = "") -> ModelShape:
    """Return the shape of the model that the fields of a ``config.json`` describe.

    Args:
        fields: fields of the config, with a ``model_type`` of `MODEL_TYPES`. Without a ``model_type``, a config with
            ``n_embd`` is a gpt2, any other a llama. A field ``sequence``, which Hugging Face does not have, sets the
            tokens of a training sequence; its default is ``max_position_embeddings``, at most `LONGEST`.
        name: display name; a field ``name`` overrides it.
        path: path of the fields, for the error line.
        source: origin of the fields; a field ``source`` overrides it.

    >>> tiny = {"hidden_size": 8, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> tiny |= {"num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 16}
    >>> shape_of_config(tiny).parameters == 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 20 + 2 * 8) + 8 + 2 * 100 * 8
    True
    """
    config = _Fields(fields, path)
    family = config.text("model_type") or ("gpt2" if "n_embd" in fields else "llama")
    if family not in MODEL_TYPES:
        raise SpecError(f"{path}.model_type", family, one_of(MODEL_TYPES, family) + ANY_OTHER)
    if family == "gpt2":
        shape_fields = _gpt2(config)
    else:
        shape_fields = _sizes(config)
        if family in DEEPSEEK:
            shape_fields |= _deepseek(config)
        elif family == "gpt_neox":  # GPT-NeoX or Pythia
            attention_biases = ("qkv", "out") if config.flag("attention_bias", default=True) else ()
            shape_fields |= {"tied": config.flag("tie_word_embeddings", default=False), "norms_per_layer": 2}
            shape_fields |= {"biases": (*attention_biases, "mlp", "norm"), "fused_qkv": True}
        else:
            shape_fields |= _llama_like(config, MODEL_FAMILIES[family])
    shape_fields |= {"name": config.text("name") or name or family, "source": config.text("source") or source}
    config.finish()
    try:
        return ModelShape(**shape_fields)
    except SpecError as error:
        shape_field = error.path.removeprefix("model.")
        # The error names the field as the config does.
        raise SpecError(f"{path}.{_CONFIG_FIELDS.get(shape_field, shape_field)}", error.value, error.expected) from None


_CONFIG_FIELDS = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "hidden": "intermediate_size",
    "vocabulary": "vocab_size",
    "head_width": "head_dim",
    "experts_per_token": "num_experts_per_tok",
    "experts": "num_local_experts",
    "expert_hidden": "moe_intermediate_size",
    "dense_layers": "first_k_dense_replace",
    "key_rank": "kv_lora_rank",
}
"""Config field of each field of a `ModelShape`, for error lines."""


def _sizes(config: _Fields) -> dict[str, Any]:
    """Return the sizes of a `ModelShape` from the config fields that all model families but GPT-2 share."""
    return {
        "layers": config.required("num_hidden_layers"),
        "width": config.required("hidden_size"),
        "heads": config.required("num_attention_heads"),
        "vocabulary": config.required("vocab_size"),
        "sequence": config.integer("sequence") or min(config.required("max_position_embeddings"), LONGEST),
        "hidden": config.required("intermediate_size"),
    }


def _llama_like(config: _Fields, family: ModelFamily) -> dict[str, Any]:
    """Return the further fields of a `ModelShape` from the config of a LLaMA-like model family."""
    biases = [*family.biases]
    for name, parts in family.bias_fields.items():
        if config.flag(name, default=False):
            biases += parts
    experts = {}
    if family.experts:
        experts["experts"] = config.required(family.experts)
        experts["experts_per_token"] = config.required("num_experts_per_tok")
        if family.experts == "num_experts":  # Qwen's experts have a width of their own
            experts["expert_hidden"] = config.required("moe_intermediate_size")
    return experts | {
        "kv_heads": config.integer("num_key_value_heads"),
        "head_width": config.integer("head_dim") or family.head_width,
        "tied": config.flag("tie_word_embeddings", default=family.tied),
        "norms_per_layer": family.norms,
        "head_norms": family.head_norms,
        "biases": tuple(biases),
        "gated": True,
        "fused_qkv": family.fused,
        "fused_gate": family.fused,
    }


def _deepseek(config: _Fields) -> dict[str, Any]:
    """Return the further fields of a `ModelShape` from a config of DeepSeek-V2 or -V3."""
    config.integer("num_key_value_heads")  # read but unused: latent attention has as many as heads
    return {
        "head_width": config.required("qk_nope_head_dim"),
        "rotary_width": config.required("qk_rope_head_dim"),
        "value_width": config.required("v_head_dim"),
        "key_rank": config.required("kv_lora_rank"),
        "query_rank": config.integer("q_lora_rank"),
        "tied": config.flag("tie_word_embeddings", default=False),
        "norms_per_layer": 2,
        "biases": ("qkv", "out") if config.flag("attention_bias", default=False) else (),
        "gated": True,
        "fused_gate": False,
        "experts": config.required("n_routed_experts"),
        "experts_per_token": config.required("num_experts_per_tok"),
        "expert_hidden": config.required("moe_intermediate_size"),
        "shared_experts": config.integer("n_shared_experts") or 0,
        "dense_layers": config.count("first_k_dense_replace"),
    }


def _gpt2(config: _Fields) -> dict[str, Any]:
    """Return the fields of a `ModelShape` from a config of GPT-2, which names its fields differently."""
    positions = config.required("n_positions")
    return {
        "layers": config.required("n_layer"),
        "width": config.required("n_embd"),
        "heads": config.required("n_head"),
        "vocabulary": config.required("vocab_size"),
        "sequence": config.integer("sequence") or positions,
        "positions": positions,
        "position_embedding": True,
        "hidden": config.integer("n_inner"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "norms_per_layer": 2,
        "biases": ("qkv", "out", "mlp", "norm"),
        "fused_qkv": True,
    }


class _Fields:
    """The fields of a ``config.json``, with a record of the fields that were read. Null counts as absent."""

    def __init__(self, fields: Mapping[str, Any], path: str) -> None:
        self.fields, self.path = fields, path
        self.names_read: set[str] = set()
        self.missing: list[str] = []

    def get(self, name: str) -> Any:
        """Return the value of a config field, or None if it is absent, and record that it was read."""
        self.names_read.add(name)
        return self.fields.get(name)

    def integer(self, name: str) -> int | None:
        """Return a config field that is a whole number of at least 1, or None if it is absent."""
        value = self.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise SpecError(f"{self.path}.{name}", value, "a whole number, at least 1")
        return value

    def count(self, name: str) -> int:
        """Return a config field that is a whole number of at least 0, or 0 if it is absent."""
        if self.fields.get(name) == 0:  # `integer` refuses 0
            return 0
        return self.integer(name) or 0

    def required(self, name: str) -> int:
        """Return a whole number of at least 1 that has no default; `finish` refuses a config without the field."""
        value = self.integer(name)
        if value is None:
            self.missing.append(name)
        return value or 1  # 1 stands in for a missing value until `finish`

    def flag(self, name: str, default: bool) -> bool:
        """Return a config field that is true or false, or ``default`` if it is absent."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise SpecError(f"{self.path}.{name}", value, "true or false")
        return default if value is None else value

    def text(self, name: str) -> str:
        """Return a config field that is a text, or an empty text if it is absent."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise SpecError(f"{self.path}.{name}", value, "text")
        return value or ""

    def finish(self) -> None:
        """Raise ``SpecError`` for a misspelt name of an absent field, and for a missing required field."""
        absent_names = [name for name in self.names_read if self.fields.get(name) is None]
        for name, value in self.fields.items():
            if name in self.names_read:
                continue
            similar_names = difflib.get_close_matches(str(name), absent_names, n=1, cutoff=0.9)
            if similar_names:
                raise SpecError(f"{self.path}.{name}", value, f"no such field here, but {similar_names[0]!r}")
        for name in self.missing:
            raise SpecError(f"{self.path}.{name}", None, "a value, as this field has no default")
