"""Models as their publishers describe them: the fields of a ``config.json`` of Hugging Face's transformers.

What a family's code makes of the fields is told here once: which matrices have biases, how many norms a layer has, what
a field is where it is left out. Fields that change neither a parameter's shape nor the work of a token (the base of
rotary positions, dropout, numbers of tokens) are not read; a window of attention is none of the work here.

Source: ``configuration_*.py`` and ``modeling_*.py`` of the families in github.com/huggingface/transformers, 5.23.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.errors import SpecError, one_of

LONGEST = 8192
"""Tokens of a sequence where a config tells only how many positions there may be: what most were pretrained at."""


@dataclass(frozen=True)
class ModelFamily:
    """What the code of a ``model_type`` of LLaMA's kin does: rotary positions, a gate, scales without biases in norms.

    Args:
        norms: of a layer.
        biases: that it always has.
        bias_fields: those that a field turns on.
        tied: whether the head is the embedding unless ``tie_word_embeddings`` says otherwise.
        head_width: unless ``head_dim`` tells; none: width / heads.
        fused: whether query, key and value are one matrix, and gate and up.
        head_norms: see `ModelShape`.
        experts: what the number of experts is called, where there are any.
    """

    norms: int = 2
    biases: tuple[str, ...] = ()
    bias_fields: Mapping[str, tuple[str, ...]] | None = None
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
"""By ``model_type``."""

DEEPSEEK = ("deepseek_v2", "deepseek_v3")

MODEL_TYPES = (*MODEL_FAMILIES, "gpt2", "gpt_neox", *DEEPSEEK)
"""What can be read."""

ANY_OTHER = "; any other as a module: {kind: python, target: my_module:make_model}"


def shape_of_config(fields: Mapping[str, Any], name: str = "", path: str = "model", source: str = "") -> ModelShape:
    """The shape of a model that is described as in a ``config.json``.

    Args:
        fields: with a ``model_type`` of `MODEL_TYPES`; without one, fields with ``n_embd`` are gpt2's, others llama's.
            ``sequence`` beside them is T; without it ``max_position_embeddings``, but at most `LONGEST`.
        name: for people; ``name`` among the fields wins.
        path: of the fields, for the error line.
        source: where they are from.

    Raises:
        SpecError: an unknown ``model_type``, a field that is missing, misspelt or of no use.

    >>> tiny = {"hidden_size": 8, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
    >>> tiny |= {"num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 16}
    >>> shape_of_config(tiny).parameters == 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 20 + 2 * 8) + 8 + 2 * 100 * 8
    True
    """
    given = _Fields(fields, path)
    family = given.text("model_type") or ("gpt2" if "n_embd" in fields else "llama")
    if family not in MODEL_TYPES:
        raise SpecError(f"{path}.model_type", family, one_of(MODEL_TYPES, family) + ANY_OTHER)
    if family == "gpt2":
        described = _gpt2(given)
    elif family in DEEPSEEK:
        described = _deepseek(given)
    else:
        described = _gpt_neox(given) if family == "gpt_neox" else _llama_like(given, MODEL_FAMILIES[family])
    described |= {"name": given.text("name") or name or family, "source": given.text("source") or source}
    given.finish()
    try:
        return ModelShape(**described)
    except SpecError as error:
        below = error.path.removeprefix("model.")
        raise SpecError(f"{path}.{_CALLED.get(below, below)}", error.value, error.expected) from None


_CALLED = {
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
"""What configs call the sizes of a shape."""


def _llama_like(given: _Fields, family: ModelFamily) -> dict[str, Any]:
    biases = [*family.biases]
    for field, where in (family.bias_fields or {}).items():
        biases += where if given.flag(field, default=False) else ()
    experts = {}
    if family.experts:
        experts["experts"] = given.needed(family.experts)
        experts["experts_per_token"] = given.needed("num_experts_per_tok")
    if family.experts == "num_experts":
        experts["expert_hidden"] = given.needed("moe_intermediate_size")
    return experts | {
        "layers": given.needed("num_hidden_layers"),
        "width": given.needed("hidden_size"),
        "heads": given.needed("num_attention_heads"),
        "vocabulary": given.needed("vocab_size"),
        "sequence": given.sequence("max_position_embeddings"),
        "hidden": given.needed("intermediate_size"),
        "kv_heads": given.whole("num_key_value_heads"),
        "head_width": given.whole("head_dim") or family.head_width,
        "tied": given.flag("tie_word_embeddings", default=family.tied),
        "norms_per_layer": family.norms,
        "head_norms": family.head_norms,
        "biases": tuple(biases),
        "gated": True,
        "fused_qkv": family.fused,
        "fused_gate": family.fused,
    }


def _deepseek(given: _Fields) -> dict[str, Any]:
    heads = given.needed("num_attention_heads")
    biases = ("qkv", "out") if given.flag("attention_bias", default=False) else ()
    given.whole("num_key_value_heads")  # as many as heads: what latent attention makes
    return {
        "layers": given.needed("num_hidden_layers"),
        "width": given.needed("hidden_size"),
        "heads": heads,
        "vocabulary": given.needed("vocab_size"),
        "sequence": given.sequence("max_position_embeddings"),
        "hidden": given.needed("intermediate_size"),
        "head_width": given.needed("qk_nope_head_dim"),
        "rotary_width": given.needed("qk_rope_head_dim"),
        "value_width": given.needed("v_head_dim"),
        "key_rank": given.needed("kv_lora_rank"),
        "query_rank": given.whole("q_lora_rank"),
        "tied": given.flag("tie_word_embeddings", default=False),
        "norms_per_layer": 2,
        "biases": biases,
        "gated": True,
        "fused_gate": False,
        "experts": given.needed("n_routed_experts"),
        "experts_per_token": given.needed("num_experts_per_tok"),
        "expert_hidden": given.needed("moe_intermediate_size"),
        "shared_experts": given.whole("n_shared_experts") or 0,
        "dense_layers": given.count("first_k_dense_replace"),
    }


def _gpt2(given: _Fields) -> dict[str, Any]:
    positions = given.needed("n_positions")
    return {
        "layers": given.needed("n_layer"),
        "width": given.needed("n_embd"),
        "heads": given.needed("n_head"),
        "vocabulary": given.needed("vocab_size"),
        "sequence": given.whole("sequence") or positions,
        "positions": positions,
        "position_embedding": True,
        "hidden": given.whole("n_inner"),
        "tied": given.flag("tie_word_embeddings", default=True),
        "norms_per_layer": 2,
        "biases": ("qkv", "out", "mlp", "norm"),
        "fused_qkv": True,
    }


def _gpt_neox(given: _Fields) -> dict[str, Any]:
    attention = ("qkv", "out") if given.flag("attention_bias", default=True) else ()
    return {
        "layers": given.needed("num_hidden_layers"),
        "width": given.needed("hidden_size"),
        "heads": given.needed("num_attention_heads"),
        "vocabulary": given.needed("vocab_size"),
        "sequence": given.sequence("max_position_embeddings"),
        "hidden": given.needed("intermediate_size"),
        "tied": given.flag("tie_word_embeddings", default=False),
        "norms_per_layer": 2,
        "biases": (*attention, "mlp", "norm"),
        "fused_qkv": True,
    }


class _Fields:
    """A config, and which of its fields were asked for; null is as good as left out."""

    def __init__(self, fields: Mapping[str, Any], path: str) -> None:
        self.fields, self.path = fields, path
        self.asked: set[str] = set()
        self.lacking: list[str] = []

    def get(self, name: str) -> Any:
        self.asked.add(name)
        return self.fields.get(name)

    def whole(self, name: str) -> int | None:
        value = self.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise SpecError(f"{self.path}.{name}", value, "a whole number, at least 1")
        return value

    def count(self, name: str) -> int:
        """A whole number that may be 0, and is unless given."""
        return 0 if self.fields.get(name) == 0 else self.whole(name) or 0

    def needed(self, name: str) -> int:
        """A size without a default; `finish` refuses a config that lacks it."""
        value = self.whole(name)
        if value is None:
            self.lacking.append(name)
        return value or 1

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise SpecError(f"{self.path}.{name}", value, "true or false")
        return default if value is None else value

    def text(self, name: str) -> str:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise SpecError(f"{self.path}.{name}", value, "text")
        return value or ""

    def sequence(self, positions: str) -> int:
        """T: what is given, or of so many positions as many as a sequence has at most."""
        given = self.whole("sequence")
        return given or min(self.needed(positions), LONGEST)

    def finish(self) -> None:
        """Refuse a field that is written almost as one that is read and not there, and what is lacking."""
        lacking = [name for name in self.asked if self.fields.get(name) is None]
        for name, value in self.fields.items():
            if name not in self.asked and (close := difflib.get_close_matches(str(name), lacking, n=1, cutoff=0.9)):
                raise SpecError(f"{self.path}.{name}", value, f"no such field here, but {close[0]!r}")
        for name in self.lacking:
            raise SpecError(f"{self.path}.{name}", None, "a value, as this field has no default")
