from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from replication.studies import STUDIES as EVIDENCE
from syncline.costmodel import HARDWARE
from syncline.errors import SpecError
from syncline.fields import RENAMED, Spec, validate
from syncline.methods import METHODS, method_of
from syncline.methods.local import LocalSpec
from syncline.methods.mt_dao import MTDAOSpec
from syncline.methods.parts.rules import AdoptRule, SGDMRule
from syncline.problems import Digits
from syncline.runs.folders.folder import RunFolder
from syncline.specs import KINDS, STUDIES, CompareSpec, ProjectSpec, RunSpec, bundled, class_of_kind, load_spec

RICH = """
kind: run
name: rich
problem: {kind: quadratic, spectrum: [1, 1e1, 1e2], rotation_seed: 3, noise_std: 1e-1}
workers: 3
steps: 20
seeds: [4, 5]
schedule: {warmup_steps: 2}
compute:
  hardware: h100
  mfu: 0.3
  jitter: 0.1
  slow_workers: [{worker: 2, factor: 1.5}]
  pauses: [{worker: 0, step: 19, seconds: 2 min}]
  start_offsets: [0, 1 ms, 2us]
method:
  kind: mt-dao
  lr: 1e-3
  betas: [0.9, 0.99]
  omegas: [0.3, 0.6]
  momentum_periods: [4, 8]
  outer_optimizer: {lr: 0.5}
  clip_norm: 1
  wire: bf16
network: {latency: 50us, bandwidth: 10 Gbit/s}
"""


def resolved(spec, folder):
    """What a run writes as its spec.yaml."""
    with RunFolder(folder / "run") as run:
        run.spec(spec)
    return folder / "run" / "spec.yaml"


@pytest.mark.parametrize("name", bundled())
def test_a_bundled_spec_loads_and_so_does_what_a_run_writes_of_it(name, tmp_path):
    spec = load_spec(name)
    assert spec.name == name and spec.description
    assert load_spec(resolved(spec, tmp_path)) == spec


def test_a_spec_with_everything_in_it_survives_being_written(tmp_path):
    (tmp_path / "rich.yaml").write_text(RICH)
    spec = load_spec(tmp_path / "rich.yaml", (), RunSpec)
    assert load_spec(resolved(spec, tmp_path)) == spec
    assert spec.method.lr == 1e-3 and spec.problem.spectrum == (1.0, 10.0, 100.0)
    assert spec.compute.start_offsets == (0.0, 1e-3, 2e-6) and spec.compute.pauses[0].seconds == 120.0
    assert spec.compute.hardware == HARDWARE["h100"]
    assert spec.network.name == "50 us, 10 Gbit/s"


def test_a_named_method_survives_being_written():
    for method in map(method_of, METHODS):
        assert method_of(yaml.safe_load(yaml.safe_dump(method.model_dump(mode="json")))) == method


def test_every_kind_of_spec_can_be_loaded_without_saying_which():
    assert {type(load_spec(name)) for name in bundled()} == {class_of_kind(kind) for kind in (*KINDS, *STUDIES.names())}


def digits(*overrides):
    return load_spec("digits-skewed", overrides, CompareSpec)


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("steps=1024", lambda s: s.steps == 1024),
        ("seeds=[7, 8]", lambda s: s.seeds == (7, 8)),
        ("problem.skew=0.25", lambda s: s.problem.skew == 0.25 and s.problem.hidden == 64),
        ("problem=digits", lambda s: s.problem.skew == 0),
        ("schedule.warmup_steps=9", lambda s: s.schedule.warmup_steps == 9),
        ("compute={seconds: 1e-4}", lambda s: s.compute.seconds == 1e-4),
        ("compute.seconds=2 us", lambda s: s.compute.seconds == 2e-6),
        ("networks.1=1gbe", lambda s: [n.name for n in s.networks] == ["infiniband", "1gbe", "wan"]),
        ("networks=[wan]", lambda s: [n.name for n in s.networks] == ["wan"]),
        # A number without the dot that YAML 1.1 asks for.
        ("methods.1.lr=1e-3", lambda s: s.methods[1].lr == 1e-3),
        # A name stands for its fields, and one of them changes.
        ("methods.1.period=8", lambda s: s.methods[1] == method_of("local-adam").model_copy(update={"period": 8})),
        ("methods.1.rule=sgdm", lambda s: s.methods[1].rule == SGDMRule()),
        ("methods.1.rule.beta1=0.5", lambda s: s.methods[1].rule.beta1 == 0.5 and s.methods[1].rule.kind == "adam"),
        ("methods.3.label=mine", lambda s: s.methods[3].name == "mine" and isinstance(s.methods[3], MTDAOSpec)),
        ("methods.0=mt-dao-adopt", lambda s: s.methods[0].base == "adopt"),
        ("methods.0={kind: local, lr: 1, rule: adopt}", lambda s: s.methods[0] == LocalSpec(lr=1, rule=AdoptRule())),
        ("networks.2.latency=5 ms", lambda s: (s.networks[2].latency_s, s.networks[2].name) == (5e-3, "wan")),
        ("description=a = b", lambda s: s.description == "a = b"),
    ],
)  # fmt: skip
def test_an_override_changes_its_field(override, read):
    assert read(digits(override))
    before, after = digits().model_dump(), digits(override).model_dump()
    assert [field for field in before if before[field] != after[field]] == [override.split("=")[0].split(".")[0]]


def test_of_two_overrides_the_later_counts():
    assert digits("steps=600", "steps=700").steps == 700


def test_an_override_changes_a_field_of_named_hardware():
    spec = digits("compute={hardware: a100}", "compute.hardware.mfu=0.3")
    assert spec.compute.hardware.name == "a100" and spec.compute.hardware.mfu == 0.3


def test_an_override_can_name_a_method_where_the_spec_has_fields():
    spec = load_spec("rosenbrock-mt-dao", ["method=local-sgdm", "method.lr=0.5"], RunSpec)
    assert spec.method == LocalSpec(lr=0.5, rule=SGDMRule())


def test_defaults_are_not_touched_by_overrides():
    digits("methods.1.lr=5")
    assert digits().methods[1].lr == METHODS["local-adam"]["lr"]


def test_a_network_can_be_a_file(tmp_path):
    (tmp_path / "lab.yaml").write_text("latency: 1 ms\nbandwidth: 2 Gbit/s\n")
    spec = load_spec("project-gpt-160m", [f"networks=[{tmp_path / 'lab.yaml'}]"], ProjectSpec)
    (link,) = spec.networks
    assert (link.name, link.latency_s, link.bandwidth_bytes_per_s) == ("lab", 1e-3, 0.25e9)


def test_a_period_longer_than_the_training_is_a_warning():
    spec = digits("steps=40")
    assert spec.warnings() == ["des-loc: never averaged in 40 steps: second_moment (every 69)"]
    assert digits("steps=69").warnings() == []
    assert digits("steps=40", "workers=1").warnings() == []


def test_an_exchange_that_is_due_before_its_first_period_is_over_is_averaged():
    paper = {"kind": "mt-dao", "lr": 0.1, "phase": "paper"}
    spec = load_spec("rosenbrock-mt-dao", [f"method={yaml.safe_dump(paper, default_flow_style=True)}", "steps=8"])
    assert spec.warnings() == ["mt-dao: never averaged in 8 steps: params (every 32)"]


def test_what_is_sent_in_one_of_several_phases_is_averaged():
    """0/1 Adam's longest interval comes after the end, but its signs have long been sent; 1-bit Adam's have not."""

    def warnings(method, steps):
        return load_spec("rosenbrock-mt-dao", [f"method={method}", f"steps={steps}"]).warnings()

    assert warnings("zero-one-adam", 120) == warnings("one-bit-adam", 120) == []
    late = "worker signs (every 1, from step 100), owner signs (every 1, from step 100)"
    assert warnings("one-bit-adam", 100) == [f"one-bit-adam: never averaged in 100 steps: {late}"]


def test_what_a_closed_form_cannot_see_is_a_warning():
    spec = load_spec("project-gpt-160m", ["compute.jitter=0.1", "compute.start_offsets=[1, 2]"])
    assert [line.split(" ")[0] for line in spec.warnings()] == ["compute.start_offsets"]


SCALED = """
kind: run
name: small
problem: rosenbrock
workers: 2
method: local-adam
steps: 8
network: wan
compute: {seconds: 1}
scales:
  large: {steps: 64, method.period: 16, problem.noise_std: 0.5}
  larger: {steps: 128}
"""


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    path = tmp_path / "scaled.yaml"
    path.write_text(SCALED)
    return path


def test_a_scale_sets_its_fields_and_overrides_come_after(scaled):
    small, large = load_spec(scaled), load_spec(scaled, scale="large")
    assert (small.steps, small.method.period, small.problem.noise_std) != (64, 16, 0.5)
    assert (large.steps, large.method.period, large.problem.noise_std) == (64, 16, 0.5)
    assert load_spec(scaled, ["steps=4"], scale="large").steps == 4
    assert load_spec(scaled, ["steps=64", "method.period=16", "problem.noise_std=0.5"]) == large


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu", "--scale: got 'gpu'; expected one of 'large', 'larger'"),
        ("larg", "--scale: got 'larg'; expected one of 'large', 'larger' (did you mean 'large'?)"),
    ],
)
def test_a_scale_that_is_not_there_is_refused_with_those_that_are(scaled, name, said):
    with pytest.raises(SpecError) as refused:
        load_spec(scaled, scale=name)
    assert str(refused.value) == said


def test_a_spec_without_scales_says_so():
    with pytest.raises(SpecError, match=r"^--scale: got 'gpu'; expected none, as this spec has no scales$"):
        load_spec("rosenbrock-mt-dao", scale="gpu")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("large: {step: 64}", "step: got 64; expected no such field here"),
        ("large: {steps.0: 64}", "scales.large.steps.0: got 64; expected a path of fields, and 'steps' is a plain"),
        ("large: 64", "scales: got {'large': 64}; expected fields by name of a scale"),
    ],
)
def test_a_mistake_in_a_scale_is_one_line_with_its_path(scaled, block, said):
    scaled.write_text(SCALED.partition("  large:")[0] + "  " + block)
    with pytest.raises(SpecError) as refused:
        load_spec(scaled, scale="large")
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)


for name in ("replications.spec", *(target.partition(":")[0].partition(".")[2] for target in EVIDENCE.values())):
    importlib.import_module(f"replication.{name}")  # their specs are among the subclasses below


def every_spec(base: type[Spec] = Spec) -> Iterator[type[Spec]]:
    for spec in base.__subclasses__():
        yield spec
        yield from every_spec(spec)


def test_the_old_name_of_a_field_is_refused_with_its_new_name() -> None:
    for old, new in [(old, new) for old, names in RENAMED.items() for new in names]:
        lines = []
        for spec in every_spec():
            if new in spec.model_fields and old not in spec.model_fields:
                with pytest.raises(SpecError) as refused:
                    validate(spec, {old: 1})
                lines.append(str(refused.value))
        assert f"{old}: got 1; expected no such field here, but it was renamed to {new}" in lines


def test_a_path_goes_into_what_was_made_in_python():
    """A method's field, one of several methods, a problem's field; the objects themselves stay as they are."""
    method, problem = LocalSpec(lr=0.1, period=4, label="mine"), Digits(hidden=8)
    fields = {"kind": "compare", "name": "made", "problem": problem, "workers": 2, "steps": 8, "networks": ["wan"]}
    given = {"methods": (method, "ddp-adam"), "methods.0.period": 2, "problem.batch_size": 4}
    spec = load_spec(fields, given, CompareSpec)
    assert spec.methods[0] == method.model_copy(update={"period": 2}) and spec.problem == Digits(hidden=8, batch_size=4)
    assert (method.period, problem.batch_size) == (4, 32)
    with pytest.raises(SpecError, match=r"^problem.batchsize: .* no such field here, but one of .*'batch_size'"):
        load_spec(fields, given | {"problem.batchsize": 4}, CompareSpec)


@pytest.mark.parametrize("source", [7, b"run", [("kind", "run")]])
def test_what_is_no_name_file_or_mapping_is_refused(source):
    with pytest.raises(SpecError, match=r"^spec: got .*; expected the name of a spec, a file, or a mapping"):
        load_spec(source)
