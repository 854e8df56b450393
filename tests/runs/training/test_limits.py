from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy

from syncline.errors import SpecError
from syncline.problems import PROBLEMS, TextGPT
from syncline.problems.base import Rows
from syncline.runs.training import limits
from syncline.specs import load_spec
from tests.runs.examples import bowl, digits


@pytest.mark.parametrize("kind", PROBLEMS.names())
def test_the_parameters_that_are_counted_are_those_that_are_built(kind):
    problem = PROBLEMS[kind]()
    tensors = limits.tensors_of_problem(problem)
    built = problem.build(Rows((0,), (0,), 1)).params
    assert tensors is not None
    assert [(one.name, one.shape) for one in tensors] == [(name, tuple(p.shape[1:])) for name, p in built.items()]


def test_a_training_that_does_not_fit_is_refused_by_what_is_largest(monkeypatch):
    spec = digits()
    limits.check_training(spec, *spec.methods)
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1e5)
    with pytest.raises(SpecError, match=r"^workers: got 4; .* and the machine has 100 kB$"):
        limits.check_training(spec, spec.methods[0])
    with pytest.raises(SpecError, match=r"^problem.batch_size: got 4096; "):
        big = digits("problem.batch_size=4096")
        limits.check_training(big, big.methods[0])
    with pytest.raises(SpecError, match=r"^seeds: got 40; "):
        many = bowl(workers=1, seeds=list(range(40)))
        monkeypatch.setattr(limits, "memory_bytes", lambda: 100.0)
        limits.check_training(many, many.methods[0])
    with pytest.raises(SpecError, match=r"^problem: got 'quadratic'; "):
        one = bowl(workers=1, seeds=[0])
        monkeypatch.setattr(limits, "memory_bytes", lambda: 10.0)
        limits.check_training(one, one.methods[0])


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "open_files", "most"),
    [(2, 64e9, 20_000, 128), (100, 1e9, 20_000, 20), (100, 1e12, 64, 32)],
)
def test_processes_are_limited_by_cores_memory_and_files(monkeypatch, cores, memory_bytes, open_files, most):
    monkeypatch.setattr(limits.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(limits, "memory_bytes", lambda: memory_bytes)
    monkeypatch.setattr(limits.resource, "getrlimit", lambda what: (open_files, open_files))
    limits.check_processes("workers", most)
    with pytest.raises(SpecError, match=rf"^workers: got {most + 1}; expected at most {most} processes "):
        limits.check_processes("workers", most + 1)


def test_a_million_seeds_are_refused_at_once():
    with pytest.raises(SpecError, match=r"^seeds: got .*; expected at most 100000$"):
        load_spec("digits-skewed", {"seeds": list(range(10**6))})


def test_a_machine_that_tells_no_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(limits, "memory_bytes", lambda: None)
    limits.check_training(bowl(workers=10**9), *bowl().methods)


def test_memory_is_the_machine_s_or_what_a_container_may_have_of_it(monkeypatch, tmp_path):
    whole = limits.memory_bytes()
    assert whole is not None and whole > 1e8
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(limits, "CGROUP_LIMIT_FILES", (str(tmp_path / "none"), str(tmp_path / "nowhere")))
    assert limits.memory_bytes() == pytest.approx(whole) or limits.memory_bytes() > whole
    monkeypatch.setattr(limits, "CGROUP_LIMIT_FILES", (str(tmp_path / "none"), str(tmp_path / "memory.max")))
    assert limits.memory_bytes() == 1e6


def test_a_method_that_cannot_train_a_problem_is_refused_before_the_others_are_trained():
    spec = load_spec("digits-skewed", {"problem": "rosenbrock", "methods": ["ddp-adam", "curvadion"]})
    with pytest.raises(SpecError, match="a model with matrices"):
        limits.check_training(spec, *spec.methods)
    whole = load_spec("digits-skewed", {"methods": ["curvadion"], "seeds": [0]})
    limits.check_training(whole, *whole.methods)


def gpt_spec(*overrides):
    problem = "problem={kind: text-gpt, width: 768, layers: 17, heads: 12, context: 1024, batch_size: 8, tied: false}"
    return digits(problem, "seeds=[0]", *overrides)


def gib_needed(*overrides):
    spec = gpt_spec(*overrides)
    tensors = limits.tensors_of_problem(spec.problem)
    activations = limits.step_activation_bytes(spec, tensors)
    assert activations < limits.most_activation_bytes(spec, tensors) or spec.execution == "compiled"
    return limits.needed_bytes(spec, spec.methods[0], tensors, activations, on_gpu=True).total / 2**30


def test_64_workers_of_122_million_parameters_need_their_activations_in_a_graph_alone():
    local = "workers=64", "methods=[local-adam]"
    models = 64 * 4 * 4 * 121_530_624 / 2**30
    assert models == pytest.approx(115.9, abs=0.05)
    assert gib_needed(*local) == gib_needed(*local, "execution=loop") == pytest.approx(models + 6.0, abs=0.1)
    assert gib_needed(*local, "execution=compiled") == pytest.approx(models, abs=0.1)
    assert gib_needed(*local, "execution=graph") == pytest.approx(models + 64 * 6.43, abs=0.5)
    assert gib_needed(*local, "execution=graph", "autocast=bfloat16") == pytest.approx(models + 64 * 3.22, abs=0.5)


def test_what_equal_workers_share_counts_once():
    ddp = gib_needed("workers=64", "methods=[ddp-adam]")
    gradient = 4 * 121_530_624 / 2**30
    assert ddp == pytest.approx(64 * gradient + gradient + 6.0, abs=0.1)  # parameters before the first step, a gradient
    assert gib_needed("workers=64", "methods=[ddp-adam]", "seeds=[0, 1]") > 4 * 2 * 64 * gradient


def test_a_gpu_without_memory_for_activations_is_refused(monkeypatch):
    from syncline.comm import devices

    monkeypatch.setattr(devices, "training_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(limits, "gpu_memory_bytes", lambda: 139 * 2.0**30)
    spec = gpt_spec("workers=64", "methods=[local-adam]", "device=cuda")
    limits.check_training(spec, *spec.methods)
    spec = gpt_spec("workers=64", "methods=[local-adam]", "device=cuda", "execution=graph")
    with pytest.raises(
        SpecError, match=r"^problem.batch_size: got 8; .* 566 GB of memory at least .* and the GPU has 149 GB$"
    ):
        limits.check_training(spec, *spec.methods)


def test_activations_are_those_that_a_pass_on_the_cpu_stores():
    problem = TextGPT(width=32, layers=2, heads=2, context=32, batch_size=3)
    module, tokens = problem.initial_network(0), torch.zeros(3, 32, dtype=torch.int64)
    stored = {}

    def pack(x):
        stored[x.untyped_storage().data_ptr()] = x
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        loss = cross_entropy(module(tokens).flatten(0, 1), tokens.flatten())
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    nbytes = sum(x.untyped_storage().nbytes() for place, x in stored.items() if place not in own)
    spec = digits("problem={kind: text-gpt, width: 32, layers: 2, heads: 2, context: 32, batch_size: 3}")
    counted = limits.step_activation_bytes(spec, limits.tensors_of_problem(spec.problem))
    assert loss.requires_grad and 0.9 * nbytes < counted <= nbytes
