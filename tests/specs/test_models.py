"""A user's own models: configs, fields, modules of Python; and a projection of each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import syncline as sl
from syncline.cli.application import app
from syncline.costmodel import MODELS, ModelShape, ModuleShape
from syncline.errors import SpecError
from syncline.planner.projection.project import project
from syncline.specs import PipelineSpec, ProjectSpec, load_spec, model, model_fields, validate
from syncline.specs.models import BY_NAME

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
PARAMETERS = 2 * (32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 80 * 32 + 2 * 32) + 32 + 2 * 100 * 32

MINE = """
import torch
from torch import nn
from syncline.costmodel import MODELS

def make_model(width=4, depth=1):
    hidden = [nn.Linear(width, width) for _ in range(depth)]
    return nn.Sequential(nn.Embedding(10, width), *hidden, nn.Linear(width, 10))

def with_inputs():
    return make_model(), torch.zeros(2, 7, dtype=torch.long)

def large():
    return nn.Linear(10**6, 10**6)  # four terabytes, if it were anywhere

def wrong():
    return 3

def make_shape(layers):
    from dataclasses import replace
    return replace(MODELS["gpt-160m"], name="cut", layers=layers)

SHAPE = MODELS["gpt2"]
FIELDS = {"width": 8, "layers": 1, "heads": 2, "vocabulary": 10, "sequence": 4}
NAME = "llama-3-8b"
NUMBER = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user's, a config and a cluster."""
    (tmp_path / "own_models.py").write_text(MINE)
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "config.json").write_text(json.dumps(CONFIG, indent="\t"))
    (tmp_path / "lab.yaml").write_text(
        "network: {latency: 30 us, bandwidth: 25 Gbit/s}\n"
        "hardware: {peak_flops: 1.0e+14, mfu: 0.4, memory_bytes: 80 GiB}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_models", None)


def projected(*options: str) -> Result:
    return CliRunner().invoke(app, ["project", *options])


def test_a_config_is_read_from_json_from_yaml_and_from_fields() -> None:
    of_file = model("acme/config.json")
    assert (of_file.name, of_file.parameters) == ("acme", PARAMETERS)
    Path("other.yaml").write_text("\n".join(f"{key}: {value}" for key, value in CONFIG.items()))
    text = json.dumps(CONFIG | {"name": "told"})
    named = {one.name: one.parameters for one in (model("other.yaml"), model(CONFIG | {"name": "mine"}), model(text))}
    assert named == {"other": PARAMETERS, "mine": PARAMETERS, "told": PARAMETERS}


def test_a_config_says_what_it_is_called() -> None:
    Path("a.json").write_text(json.dumps(CONFIG | {"_name_or_path": "/data/models/acme-7b/"}))
    assert model("a.json").name == "acme-7b"


def test_a_shape_is_described_by_its_own_fields_or_by_another_s() -> None:
    assert model({"width": 8, "layers": 1, "heads": 2, "vocabulary": 10, "sequence": 4}) == ModelShape(
        "model", 1, 8, 2, 10, 4
    )
    assert model({"kind": "llama-3-8b", "sequence": 2048}).flops_per_token < MODELS["llama-3-8b"].flops_per_token
    assert model({"kind": "acme/config.json", "layers": 5}).layers == 5  # type: ignore[union-attr]


REFERENCES: list[Any] = [
    "own_models:make_model",
    "own_models.py:make_model",
    "own_models:with_inputs",
    {"kind": "python", "target": "own_models:make_model", "width": 8, "depth": 3},
]
DESCRIBED: list[Any] = [
    "gpt2",
    "acme/config.json",
    "own_models:SHAPE",
    "own_models:FIELDS",
    "own_models:NAME",
    {"kind": "gpt2", "biases": ["qkv"]},
    {"kind": "python", "target": "own_models:make_shape", "layers": 3},
]


@pytest.mark.parametrize("given", [*REFERENCES, *DESCRIBED], ids=str)
def test_what_is_written_again_is_the_same(given: Any) -> None:
    made = model(given)
    assert isinstance(made, ModuleShape) == (given in REFERENCES)
    written = json.loads(json.dumps(model_fields(made)))
    assert model(written) == made
    if given in REFERENCES:
        assert written == given


def test_modules_are_made_with_what_the_spec_says() -> None:
    plain, wide = model(REFERENCES[0]), model(REFERENCES[3])
    assert (plain.name, plain.parameters) == ("own_models:make_model", 40 + 20 + 50)
    assert (wide.name, wide.parameters) == ("own_models:make_model(width=8, depth=3)", 80 + 3 * 72 + 90)
    assert plain.flops_per_token == 6 * (16 + 40)
    assert (model(REFERENCES[2]).flops_per_token, model(REFERENCES[2]).sequence) == (6 * (16 + 40), 7)
    assert model("own_models:large").parameters == 10**12 + 10**6


def test_objects_of_python_are_models_too() -> None:
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    held = sl.project(model=[net, lambda: nn.Linear(4, 4)], methods=["ddp-adam"], networks=["10gbe"]).rows
    assert [row["bytes_per_worker"] for row in held] == [2 * 30, 2 * 20]  # bf16
    assert held[0]["model"] == "Sequential" and "<lambda>" in held[1]["model"]


def test_a_spec_with_a_module_runs_again_from_what_it_wrote() -> None:
    spec = load_spec(
        "project-gpt-160m", {"model": REFERENCES[3], "networks": ["10gbe"], "methods": ["ddp-adam", "diloco"]}
    )
    again = validate(ProjectSpec, spec.model_dump(mode="json"))
    assert project(again) == project(spec)


def test_a_model_and_a_cluster_are_projected(here: Path) -> None:
    given = ("--network", "lab.yaml", "--hardware", "lab.yaml", "--workers", "64", "--method", "ddp-adam,diloco",
             "--precision", "fp32", "--set", "memory={sharding: none, activations: null}")  # fmt: skip
    ran = projected("--model", "acme/config.json,llama-2-7b", "--model", "own_models:with_inputs", *given, "--json")
    assert ran.exit_code == 0, ran.output
    rows = json.loads(ran.stdout)["rows"]
    assert [row["model"] for row in rows[::2]] == ["acme", "llama-2-7b", "own_models:with_inputs"]
    assert {row["network"] for row in rows} == {row["hardware"] for row in rows} == {"lab"}
    for row, made in zip(
        rows[::2], (model("acme/config.json"), MODELS["llama-2-7b"], model("own_models:with_inputs")), strict=True
    ):
        assert row["compute_s"] == pytest.approx(made.flops_per_token * row["tokens_per_worker"] / 0.4e14)
        assert row["bytes_per_worker"] == 4 * made.parameters
        assert row["memory_bytes"] > 16 * made.parameters  # weights, gradient, two states, and a buffer
        assert row["fits"] == (made.name != "llama-2-7b")


def test_a_table_says_what_its_models_are() -> None:
    shown = " ".join(projected("--model", "llama-3-8b,own_models:make_model", "--method", "ddp-adam").stderr.split())
    assert "llama-3-8b, 8,030,261,248 parameters; own_models:make_model, 110 parameters" in shown


def test_a_sequence_is_an_option() -> None:
    ran = projected("--model", "llama-3-8b", "--sequence", "2048", "--json")
    direct = projected("--model", "{kind: llama-3-8b, sequence: 2048}", "--json")
    assert ran.exit_code == 0 and json.loads(ran.stdout)["rows"] == json.loads(direct.stdout)["rows"]
    origins = [
        next(row["origin"] for row in json.loads(shown.stdout)["assumptions"] if row["name"] == "sequence")
        for shown in (ran, direct)
    ]
    assert origins == ["given", "as llama-3-8b has it"]


def test_an_installed_package_offers_models_by_name() -> None:
    BY_NAME.register("acme-tiny", "own_models:FIELDS")
    BY_NAME.register("acme-net", "own_models:make_model")
    try:
        assert model("Acme-Tiny") == ModelShape("acme-tiny", 1, 8, 2, 10, 4)
        assert model_fields(model("acme-net")) == "acme-net" == model("acme-net").name
    finally:
        for name in ("acme-tiny", "acme-net"):
            del BY_NAME._registered[name]


PIPELINE: dict[str, Any] = {
    "kind": "pipeline", "name": "p", "schedules": ["1f1b"], "stages": 2, "microbatches": 4,
    "tokens_per_microbatch": 128, "hardware": "h100",
}  # fmt: skip


def test_a_config_is_cut_into_stages() -> None:
    spec = validate(PipelineSpec, PIPELINE | {"model": "acme/config.json"})
    shape = model("acme/config.json")
    assert sum(spec.allreduce_bytes()) == 4 * shape.parameters
    assert sum(map(sum, spec.stage_seconds("1f1b"))) == pytest.approx(shape.flops_per_token * 128 / (0.4 * 989e12))


def test_a_module_is_not_cut_into_stages() -> None:
    with pytest.raises(SpecError, match=r"^model: got 'own_models:make_model'; expected a transformer by name, config"):
        validate(PipelineSpec, PIPELINE | {"model": "own_models:make_model"})


def test_a_module_has_no_activations_to_estimate() -> None:
    ran = projected("--model", "own_models:make_model", "--set", "memory.activations=stored")
    assert isinstance(ran.exception, SpecError)
    assert str(ran.exception).startswith("memory.activations: got 'stored'; expected none, as own_models:make_model")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("llama-3-9b", "model: got 'llama-3-9b'; expected one of "),
        (3, "model: got 3; expected one of"),
        ("nowhere/config.json", "model: got 'nowhere/config.json'; expected a file that can be read"),
        ("lab.yaml", "model: got 'lab.yaml'; expected a model's fields"),
        ("broken.json", "model: got 'broken.json'; expected a file in JSON (Expecting property"),
        ("list.json", "model: got 'list.json'; expected a model's fields"),
        ("again.yaml", "model.kind: got 'again.yaml'; expected a model's name"),
        ({}, "model: got {}; expected a model's fields: of a config.json"),
        ({"width": 8}, "model.layers: got None; expected a value: a model's shape has layers, width"),
        ({"kind": "gpt2", "widht": 8}, "model.widht: got 8; expected no such field here, but one of"),
        ({"kind": "gpt2", "heads": 7}, "model.heads: got 7; expected a divisor of the width 768"),
        ({"kind": "gpt3"}, "model.kind: got 'gpt3'; expected one of"),
        ({"kind": "own_models:make_model", "width": 8}, "model.width: got 8; expected no fields with a module"),
        ({"kind": "python"}, "model.target: got None; expected module:name"),
        ({"kind": "python", "target": "own_models:make_model", "widht": 8}, "model.widht: got 8; expected no such arg"),
        ({"kind": "python", "target": "own_models:make_model", "width": "a"}, "model.target: got 'own_models:make_mod"),
        ("own_models:wrong", "model: got 'own_models:wrong'; expected a callable that returns a torch module"),
        ("own_models:make_shape", "model.layers: got None; expected a value, as this argument of own_models:make_s"),
        ("own_models:NUMBER", "model: got 'own_models:NUMBER'; expected a model or a function that makes one, not int"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_told_in_one_line(given: Any, line: str) -> None:
    Path("broken.json").write_text("{")
    Path("list.json").write_text("[1]")
    Path("again.yaml").write_text("kind: again.yaml")
    with pytest.raises(SpecError) as error:
        model(given)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--model", "acme/config.json,acme/config.json,own_models:SHAPE,gpt2"), "--model: got 'gpt2'; expected diff"),
        (("--sequence", "0"), "--sequence: got 0; expected at least 1"),
        (("--model", "own_models:make_model", "--sequence", "8"), "--sequence: got 8; expected none, as own_models"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options: tuple[str, ...], line: str) -> None:
    ran = projected(*options)
    assert isinstance(ran.exception, SpecError) and str(ran.exception).startswith(line)


SHORT = "{layers: 32, width: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, tied: false}"


def test_short_fields_are_a_model_of_llama_s_kin() -> None:
    made = model(SHORT)
    assert isinstance(made, ModelShape)
    assert (made.parameters, made.gated, made.sequence) == (MODELS["llama-3-8b"].parameters, True, 4096)
    assert model(model_fields(made)) == made
    plain = model("{layers: 2, width: 8, heads: 2, ffn: 32, vocab: 10, gated: false, norms_per_layer: 0, sequence: 4}")
    assert plain.parameters == 2 * (4 * 64 + 2 * 8 * 32) + 2 * 10 * 8


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({"ffn": 0}, "model.ffn", "at least 1"),
        ({"hidden": 16}, "model.ffn", "none with hidden"),
        ({"kv_heads": 3}, "model.kv_heads", "a divisor of the 2 heads"),
        ({"value_width": 4}, "model.value_width", "key_rank as well"),
        ({"shared_experts": 1}, "model.shared_experts", "experts as well"),
        ({"dense_layers": 1}, "model.dense_layers", "0 without experts"),
        ({"experts": 4, "dense_layers": 3}, "model.dense_layers", "at most the 2 layers"),
        ({"key_rank": 4, "fused_qkv": True}, "model.key_rank", "which latent attention does not have"),
    ],
)
def test_short_fields_that_cannot_be(fields: dict[str, Any], path: str, expected: str) -> None:
    with pytest.raises(SpecError) as raised:
        model({"layers": 2, "width": 8, "heads": 2, "ffn": 32, "vocab": 10} | fields)
    assert raised.value.path == path
    assert expected in raised.value.expected
