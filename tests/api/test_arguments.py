"""Arguments of the API: what is taken, what is refused, and in which words."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import syncline as sl
from syncline import comm, methods
from syncline.specs import load_spec
from tests.robustness.hostile import hostile

BOWL = {"kind": "quadratic", "spectrum": [1.0, 0.1]}
FEW_ITEMS = "an iterator that ends, of at most 1,000 items"


@pytest.fixture
def few_items(monkeypatch):
    """The limit itself, a million, takes seconds to come to."""
    monkeypatch.setattr("syncline.fields.MOST_ITEMS", 1000)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: sl.collectives(workers="8"), "workers: got '8'; expected a whole number"),
        (lambda: sl.collectives(workers=True), "workers: got True; expected a whole number"),
        (lambda: sl.collectives(workers=2.5), "workers: got 2.5; expected a whole number"),
        (lambda: sl.collectives(algorithms=[b"ring"]), "algorithms.0: got b'ring'; expected text"),
        (lambda: sl.collectives(nbytes=float("nan")), "nbytes: got nan; expected a size with its unit"),
        (lambda: sl.collectives(nbytes=10**400), "nbytes: got 1000"),
        (lambda: sl.advise("gpt-160m", workers={}), "workers: got {}; expected a whole number"),
        (
            lambda: sl.advise("gpt-160m", network="two-sites", hardware="h100", workers=10**9),
            "workers: got 1000000000; expected at most 10,000,000 on sites",
        ),
        (lambda: sl.advise("gpt-160m", extrapolate=1), "extrapolate: got 1; expected true or false"),
        (lambda: sl.compare(jobs="2"), "jobs: got '2'; expected a whole number"),
        (lambda: sl.compare(on_progress=3), "on_progress: got 3; expected a function"),
        (lambda: sl.run(problem=hostile("list of itself")), "problem: got [1, [...]]; expected at most 50 levels"),
        (lambda: sl.load(None), "folder: got None; expected text or a path"),
        (lambda: sl.load("a\0b"), "folder: got 'a\\x00b'; expected a path, which has no NUL"),
        (lambda: sl.whatif(range(3)), "record.0: got 0; expected text or a path or a Result"),
        (lambda: sl.loss(parameters="1B", target_loss="x"), "target_loss: got 'x'; expected a finite number"),
        (lambda: sl.loss(parameters="1B", replicas="10ms"), "replicas: got '10ms'; expected a finite number or a list"),
        (lambda: sl.loss(parameters="1B", period=[-1]), "period: got -1; expected a positive number"),
        (lambda: sl.goodput(workers={8}), "workers: got {8}; expected a whole number or a list"),
        (lambda: sl.goodput(interval=np.array([None])), "interval: got None; expected best, never, or a time"),
        (lambda: sl.sweep(grid={"steps": "1"}), "grid.steps: got '1'; expected a list"),
        (lambda: sl.sweep(grid={3: [1]}), "grid: got 3; expected text"),
        (lambda: sl.solve("bandwidth", speedup=2, among=float("nan")), "among: got nan; expected"),
        (lambda: sl.replicate("mt-dao", time="soon"), "time: got 'soon'; expected a time with its unit"),
        (lambda: sl.goodput(duration="soon"), "duration: got 'soon'; expected a time with its unit"),
        (lambda: sl.launch(load_spec("pipeline-text"), workers=0), "stages: got 0; expected at least 1"),
        (lambda: sl.report([]), "report: got []; expected at least one result"),
        (lambda: sl.report(5), "what.0: got 5; expected text or a path or a Result"),
        (lambda: sl.project(networks=hostile("NoAttributes")), "networks: got <"),
        (lambda: sl.project(tokens_per_worker=10**400), "tokens_per_worker: got 1000"),
        (lambda: sl.Link("20 ms", []), "bandwidth: got []; expected a positive rate"),
        (lambda: sl.diloco(lr=0.1, rule=hostile("Raises")), "rule"),
        (lambda: methods.DDP([1, 2], lr=0.1), "params: got [1, 2]; expected parameters"),
        (lambda: methods.DDP([], lr=0.1), "params: got []; expected parameters"),
        (lambda: methods.DDP([torch.nn.Parameter(torch.ones(2))], 0.1, comm=3), "comm: got 3; expected a communicator"),
    ],
)
def test_a_wrong_argument_is_one_line(call, line, unchecked):
    with pytest.raises(sl.SynclineError) as refused:
        call()
    assert str(refused.value).startswith(line)


@pytest.mark.parametrize("name", ["NoRepr", "[NoRepr]", "10**5000"])
def test_a_value_that_cannot_be_shown_is_refused_all_the_same(name):
    with pytest.raises(sl.SynclineError, match=r"^workers: got <\w+>; expected a whole number$"):
        sl.collectives(workers=hostile(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("generator that raises at once", r"a value that can be read \(RuntimeError: at once\)"),
        ("generator that raises later", r"a value that can be read \(RuntimeError: later of two lines\)"),
        ("endless generator", FEW_ITEMS),
    ],
)
def test_an_iterator_that_fails_is_refused(name, expected, few_items):
    with pytest.raises(sl.SpecError, match=rf"^workers: got <?.*; expected {expected}"):
        sl.goodput(workers=hostile(name))


def test_an_endless_iterator_for_a_method_is_refused(few_items):
    expected = f"^momentum_layers: got count.*; expected {FEW_ITEMS}"
    with pytest.raises(sl.SpecError, match=expected):
        sl.lion_cub(lr=0.1, momentum_layers=hostile("endless generator"))
    with pytest.raises(sl.SpecError, match=expected):
        methods.LionCub([torch.nn.Parameter(torch.ones(2))], 0.1, momentum_layers=hostile("endless generator"))


def test_numbers_of_numpy_and_iterators_are_taken():
    plain = sl.goodput(workers=[8, 64], steps=100).rows
    assert sl.goodput(workers=np.array([8, 64]), steps=np.int64(100)).rows == plain
    assert sl.goodput(workers=(8**n for n in (1, 2)), steps=1e2).rows == plain
    assert sl.goodput(workers={8: "a", 64: "b"}.keys(), steps=torch.tensor(100)).rows == plain
    assert sl.collectives(np.int8(4), np.float32(1024)).rows == sl.collectives(4, 1024).rows
    given = {"problem": BOWL, "method": "ddp-sgdm", "network": "wan", "compute": {"seconds": np.float64(1e-3)}}
    rows = sl.run(**given, workers=np.int64(2), steps=2.0, seeds=iter([0, 1])).rows
    assert [row["seed"] for row in rows] == [0, 1]


def test_an_object_that_no_spec_can_say_is_refused():
    problem = {"kind": "python", "target": "tests.api.test_arguments:problem_of", "start": object()}
    with pytest.raises(sl.SynclineError, match=r"^spec: a file cannot hold one of its values: .*'object'>$"):
        sl.run(problem=problem, method="ddp-sgdm", network="wan", workers=2, steps=1, compute=1e-3)
    problem["start"] = np.array([1.0, 2.0])
    assert sl.run(problem=problem, method="ddp-sgdm", network="wan", workers=2, steps=1, compute=1e-3).rows


def problem_of(start):
    from syncline.problems import Quadratic

    assert not isinstance(start, np.ndarray)
    return Quadratic(spectrum=(1.0, 0.1))


def test_names_that_python_refuses_stay_its_own():
    with pytest.raises(TypeError, match=r"collectives\(\) got an unexpected keyword argument 'worker'"):
        sl.collectives(worker=8)
    with pytest.raises(TypeError, match=r"reproduce\(\) too many positional arguments"):
        sl.reproduce("demo", "mt-dao")


def test_a_warning_is_of_the_line_that_called():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        methods = ["ddp-adam", {"kind": "placed-dion", "lr": 0.02, "other_lr": 0.003}]
        sl.project(workers=[8, 7], methods=methods, networks=["10gbe"])
        sl.run(problem=BOWL, method="ddp-sgdm", network="wan", workers=2, steps=2, eval_every=5, compute=1e-3)
    assert {Path(one.filename).name for one in caught} <= {"test_arguments.py"}


def test_what_a_communicator_refuses(unchecked):
    group = comm.SimulatedCommunicator(2)
    for call, field in (
        (lambda: group.all_reduce(3.0), "tensors"),
        (lambda: group.all_reduce_coalesced(-1.0), "tensors"),
        (lambda: group.all_gather(torch.tensor(2.0)), "worker axis"),
        (lambda: group.all_reduce(torch.ones(2, 1), op=hostile("Raises")), "op"),
        (lambda: group.all_reduce(torch.ones(2, 1), wire="bf16"), "wire"),
        (lambda: group.all_gather(torch.ones(2, 1), details=3), "details"),
        (lambda: group.broadcast(torch.ones(2, 1), root="0"), "root"),
        (lambda: group.mean_within([torch.ones(2, 1)], size=True), "per_node"),
        (lambda: comm.SimulatedCommunicator("2"), "workers"),
        (lambda: comm.SimulatedCommunicator(2, membership=[]), "membership"),
        (lambda: comm.Membership(2, [3]), "absences"),
    ):
        with pytest.raises(sl.SpecError) as refused:
            call()
        assert refused.value.path == field
    assert comm.SimulatedCommunicator(np.int64(2)).all_reduce(torch.ones(2, 1)).shape == (2, 1)
