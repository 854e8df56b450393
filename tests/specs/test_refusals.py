"""What a spec refuses: one line with the path, the value and what would be accepted."""

from __future__ import annotations

import pickle

import pytest

from syncline.errors import SpecError, SynclineError
from syncline.specs import CompareSpec, ProjectSpec, RunSpec, load_spec

DIGITS, ROSENBROCK, PROJECT = "digits-skewed", "rosenbrock-mt-dao", "project-gpt-160m"

REFUSED = [
    # Unknown and misspelt names
    (DIGITS, "metods=[mt-dao]", "metods", ["mt-dao"], "did you mean 'methods'?"),
    (DIGITS, "problem.skw=1", "problem.skw", 1, "did you mean 'skew'?"),
    (DIGITS, "problem.kind=digit", "problem.kind", "digit", "did you mean 'digits'?"),
    (DIGITS, "workers=true", "workers", True, "a whole number"),
    (DIGITS, "methods.0.lr=yes", "methods.0.lr", True, "a number"),
    (DIGITS, "name=yes", "name", True, "text"),
    (DIGITS, "seeds=[1, true]", "seeds.1", True, "a whole number"),
    (DIGITS, "networks.0={latency: yes, bandwidth: 1 Gbit/s}", "networks.0.latency", True, "a time with its unit"),
    (DIGITS, "compute={seconds: yes}", "compute.seconds", True, "a time with its unit"),
    (DIGITS, "steps=1000000000000", "steps", 10**12, "1000000000"),
    (DIGITS, "problem=3", "problem", 3, "fields, as in {field: value}, or one of 'digits'"),
    (DIGITS, "problem=null", "problem", None, "fields, as in {field: value}, or one of 'digits'"),
    (DIGITS, "networks.0={latency: 1ms, bandwith: 1 Gbit/s}", "networks.0.bandwith", "1 Gbit/s", "did you mean 'band"),
    (DIGITS, "problem.kind=[digits]", "problem.kind", ["digits"], "'rosenbrock'"),
    (DIGITS, "methods.0=mtdao", "methods.0", "mtdao", "did you mean 'mt-dao'?"),
    (DIGITS, "methods.0.rul=adam", "methods.0.rul", "adam", "did you mean 'rule'?"),
    (DIGITS, "methods.0.rule=adma", "methods.0.rule.kind", "adma", "did you mean 'adam'?"),
    (DIGITS, "methods.0.rule.beta3=0.9", "methods.0.rule.beta3", 0.9, "did you mean 'beta2'?"),
    (DIGITS, "methods.0.wire=bf8", "methods.0.wire", "bf8", "'dense', 'bf16' or 'fp16'"),
    (DIGITS, "networks.0=wann", "networks.0", "wann", "did you mean 'wan'?"),
    (DIGITS, "networks.0={latency: 1ms}", "networks.0.bandwidth", None, "bandwidth"),
    (DIGITS, "compute=null", "compute", None, "fields, as in {field: value}"),
    (DIGITS, "compute={hardware: h10}", "compute.hardware", "h10", "did you mean 'h100'?"),
    (PROJECT, "model=gpt-160", "model", "gpt-160", "did you mean 'gpt-160m'?"),
    # Impossible values
    (DIGITS, "workers=0", "workers", 0, "at least 1"),
    (DIGITS, "workers=2.5", "workers", 2.5, "a whole number"),
    (DIGITS, "workers=four", "workers", "four", "a whole number"),
    (DIGITS, "steps=0", "steps", 0, "at least 1"),
    (DIGITS, "methods.0.lr=0", "methods.0.lr", 0, "greater than 0"),
    (DIGITS, "methods.0.lr=-1e-3", "methods.0.lr", -1e-3, "greater than 0"),
    (DIGITS, "methods.0.lr=.inf", "methods.0.lr", float("inf"), "a finite number"),
    (DIGITS, "methods.1.period=0", "methods.1.period", 0, "at least 1"),
    (DIGITS, "methods.3.betas=[0.9, 1]", "methods.3.betas.1", 1, "less than 1"),
    (DIGITS, "methods.3.betas=[0.9, 0.99]", "methods.3.omegas", (0.95,), "one weight per beta (2)"),
    (DIGITS, "methods.3.momentum_periods=[1, 2]", "methods.3.momentum_periods", (1, 2), "one period per beta (1)"),
    (DIGITS, "methods.3.omegas=[1.5]", "methods.3.omegas.0", 1.5, "less than or equal to 1"),
    (DIGITS, "seeds=[1, 1]", "seeds", (1, 1), "seeds that differ"),
    (DIGITS, "seeds=[]", "seeds", [], "at least 1"),
    (DIGITS, "seeds=0", "seeds", 0, "a number of seeds from 1 to 100000, or a list of them"),
    (DIGITS, "schedule=3", "schedule", 3, "fields, as in {field: value}"),
    (DIGITS, "schedule.warmup_steps=513", "schedule.warmup_steps", 513, "at most 512, as warmup and cooldown"),
    (DIGITS, "schedule={warmup_steps: 500, cooldown_steps: 20}", "schedule.warmup_steps", 500, "at most 492"),
    (DIGITS, "schedule={warmup_steps: 600, cooldown_steps: 700}", "schedule.cooldown_steps", 700, "at most 0"),
    (DIGITS, "networks.0={latency: 1ms, bandwidth: -3}", "networks.0.bandwidth", -3, "a positive rate"),
    (DIGITS, "networks.0={latency: -1 ms, bandwidth: 1 Gbit/s}", "networks.0.latency", "-1 ms", "a time"),
    (DIGITS, "networks.0=wan", "networks", ["wan", "10gbe", "wan"], "'wan' is named twice"),
    (DIGITS, "methods.1=ddp-adam", "methods", ["ddp-adam", "ddp-adam", "diloco", "mt-dao", "des-loc"], "label"),
    (DIGITS, "methods=[]", "methods", [], "at least 1"),
    (DIGITS, "problem.skew=2", "problem.skew", 2.0, "from 0 (alike) to 1"),
    (DIGITS, "problem.hidden=wide", "problem.hidden", "wide", "a whole number"),
    (DIGITS, "name=a/b", "name", "a/b", "text that matches"),
    (DIGITS, "compute.hardware=h100", "compute.hardware", "h100", "none with seconds"),
    (DIGITS, "compute={mfu: 0.5}", "compute.mfu", 0.5, "hardware as well"),
    # Compute time by batch size, and memory
    (DIGITS, "compute={batch_times: 12 ms}", "compute.batch_times", "12 ms", "seconds by batch size, as in {1: 12 ms"),
    (DIGITS, "compute={batch_times: {}}", "compute.batch_times", {}, "at least one batch size"),
    (DIGITS, "compute={batch_times: {few: 12 ms}}", "compute.batch_times", "few", "a batch size"),
    (DIGITS, "compute={batch_times: {8: 12 m}}", "compute.batch_times.8", "12 m", "a time with its unit"),
    (DIGITS, "compute={batch_times: {0: 12 ms}}", "compute.batch_times", 0.0, "above 0"),
    (DIGITS, "compute.batch_times={8: 12 ms}", "compute.batch_times", {8.0: 0.012}, "none with seconds"),
    (DIGITS, "compute={batch_times: {8: 12 ms}, hardware: h100}", "compute.batch_times", {8.0: 0.012}, "hardware"),
    (DIGITS, "compute={batch_times: {8: 12 ms}, extrapolate: true}", "compute.extrapolate", True, "two batch sizes"),
    (DIGITS, "compute.extrapolate=true", "compute.extrapolate", True, "batch_times"),
    (DIGITS, "compute.batch_unit=tokens", "compute.batch_unit", "tokens", "batch_times as well"),
    (PROJECT, "memory={precision: bf8}", "memory.precision", "bf8", "'fp32' or 'mixed'"),
    (PROJECT, "memory={activations: true}", "memory.activations", True, "'stored', 'selective' or"),
    (PROJECT, "memory={recomputed_layers: most}", "memory.recomputed_layers", "most", "a whole number or 'fewest'"),
    (PROJECT, "memory={hardware: h10}", "memory.hardware", "h10", "did you mean 'h100'?"),
    (PROJECT, "memory={micro_batches: 0}", "memory.micro_batches", 0, "at least 1"),
    (ROSENBROCK, "method={}", "method.kind", None, "'ddp', 'demo'"),
    (ROSENBROCK, "problem.start=[1]", "problem.start", (1.0,), "two coordinates"),
    # Disturbances of what there is not
    (DIGITS, "compute.slow_workers=[{worker: 4, factor: 2}]", "compute.slow_workers.0.worker", 4, "from 0 to 3"),
    (DIGITS, "compute.pauses=[{worker: 4, step: 1, seconds: 1}]", "compute.pauses.0.worker", 4, "from 0 to 3"),
    (DIGITS, "compute.pauses=[{worker: 0, step: 512, seconds: 1}]", "compute.pauses.0.step", 512, "from 0 to 511"),
    (DIGITS, "compute.start_offsets=[0, 1]", "compute.start_offsets", (0.0, 1.0), "one time per worker (4)"),
    # Overrides that cannot be read
    (DIGITS, "lr", "--set", "lr", "field.path=value"),
    (DIGITS, "=3", "--set", "=3", "field.path=value"),
    (DIGITS, "steps=[1", "--set steps", "[1", "a value in YAML"),
    (DIGITS, "networks.0={latency:1ms}", "--set networks.0", "{latency:1ms}", "a space is missing behind the colon"),
    (DIGITS, "description=2026-02-30", "--set description", "2026-02-30", "a value in YAML"),
    (DIGITS, "methods.5.lr=1", "--set methods.5.lr", "5", "from 0 to 4"),
    (DIGITS, "methods.first.lr=1", "--set methods.first.lr", "first", "from 0 to 4"),
    (DIGITS, "steps.x=1", "--set steps.x", "1", "'steps' is a plain value"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "override", "path", "value", "expected"), REFUSED)
def test_a_refusal_is_one_line_with_path_value_and_what_would_be_accepted(name, override, path, value, expected):
    with pytest.raises(SpecError) as refusal:
        load_spec(name, [override])
    assert (refusal.value.path, refusal.value.value) == (path, value)
    assert expected in refusal.value.expected
    assert str(refusal.value) == f"{path}: got {value!r}; expected {refusal.value.expected}"
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "kinds", "path", "expected"),
    [
        (ROSENBROCK, (CompareSpec,), "kind", "a spec of kind 'run' is for 'syncline run'"),
        (DIGITS, (RunSpec,), "kind", "a spec of kind 'compare' is for 'syncline compare'"),
        ("curvadion-table3", (RunSpec,), "kind", "'syncline project'"),
        ("rosenbrok-mt-dao", (RunSpec,), "spec", "did you mean 'rosenbrock-mt-dao'?"),
        ("none.yaml", (RunSpec,), "spec", "a YAML file that exists"),
        (".", (ProjectSpec,), "spec", "a YAML file, or one of"),
    ],
)
def test_a_spec_of_another_kind_or_none_is_refused(name, kinds, path, expected):
    with pytest.raises(SpecError) as refusal:
        load_spec(name, (), *kinds)
    assert refusal.value.path == path and expected in refusal.value.expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: [", "bad.yaml is not YAML"),
        (b"\xbf\x00", "bad.yaml is not YAML"),
        (b"day: 2026-02-30", "bad.yaml is not YAML"),
        (b"steps: 1\nsteps: 2", "bad.yaml is not YAML: 'steps' is given twice"),
        (b"- kind: run", "a file with fields"),
        (b"", "a file with fields"),
        (b"name: x", "kind: got None; expected one of 'alignment'"),
        (b"kind: [run]", "kind: got ['run']"),
        (b"kind: compare", "name: got None; expected a value, as this field has no default"),
        (b"kind: compare\nname: x\n3: 4", "expected"),
    ],
)
def test_a_file_that_is_no_spec_is_refused_in_one_line(text, said, tmp_path):
    (tmp_path / "bad.yaml").write_bytes(text)
    with pytest.raises(SynclineError) as refusal:
        load_spec(tmp_path / "bad.yaml")
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


def test_an_unknown_field_is_told_before_the_missing_one_that_it_was_meant_for(tmp_path):
    (tmp_path / "typo.yaml").write_text("kind: run\nname: x\nproblem: digits\nworkers: 1\nstep: 3\nmethod: ddp-adam\n")
    with pytest.raises(SpecError, match=r"step: got 3; .*did you mean 'steps'"):
        load_spec(tmp_path / "typo.yaml")


@pytest.mark.parametrize(("method", "below"), [("lion-cub-4bit", "bits"), ("mt-dao-l1", "compressor.bits")])
def test_a_width_too_small_for_the_workers_is_refused_with_the_path_of_the_method(method, below):
    spec = load_spec(DIGITS, [f"methods=[ddp-adam, {method}]", "workers=300"])
    with pytest.raises(SpecError, match=rf"^methods\.1\.{below}: got .; expected .* for sums over 300 workers"):
        spec.warnings()


def test_a_file_of_a_network_that_cannot_be_read_is_refused_with_the_path_of_the_field(tmp_path):
    (tmp_path / "bad.yaml").write_text("latency: [")
    with pytest.raises(SpecError, match=r"^networks\.0: got .*bad\.yaml'; expected a file in YAML \("):
        load_spec(PROJECT, [f"networks.0={tmp_path / 'bad.yaml'}"])


def test_a_refusal_survives_the_way_from_another_process():
    refusal = SpecError("method.lr", -1, "greater than 0")
    again = pickle.loads(pickle.dumps(refusal))
    assert str(again) == str(refusal) == "method.lr: got -1; expected greater than 0"
    assert (again.path, again.value, again.expected) == ("method.lr", -1, "greater than 0")
