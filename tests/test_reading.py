"""Reading a folder of results runs no code that the folder names, and ``--no-code`` lets no spec name any."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import syncline as sl
from syncline.problems import Rosenbrock
from syncline.registry import NO_CODE

MARK = "code-ran"
"""The file that the code leaves."""

CALL = {"kind": "python", "target": "syncline.files:os.system", "command": f"touch {MARK}"}
FILE = "payload.py:make"
MODULE = "payload:make"
CODE = f"open({MARK!r}, 'w')\n\n\ndef make(*_, **__):\n    open({MARK!r}, 'w')\n"

TRAINING = {
    "kind": "run", "name": "tiny", "problem": "rosenbrock", "workers": 2, "steps": 3, "method": "ddp-adam",
    "network": "wan", "compute": {"seconds": "1 ms"}, "timeline_steps": 1,
}  # fmt: skip

ROUTES: dict[str, tuple[str, str, Any]] = {
    "network by a call": ("run", "network", CALL),
    "network by a file": ("run", "network", FILE),
    "network by a module": ("run", "network", MODULE),
    "network by a module inside torch.optim": (
        "run",
        "network",
        CALL | {"target": "torch.optim.optimizer:torch.os.system"},
    ),
    "link of nodes": ("run", "network", {"per_node": 2, "inside": CALL, "between": "10gbe"}),
    "method by a call": ("run", "method", CALL),
    "method by a class": ("run", "method", {"kind": "syncline.files:os.system"}),
    "method by a file": ("run", "method", FILE),
    "rule": ("run", "method.rule", {"kind": "torch", "target": "torch.optim.optimizer:torch.os.system"}),
    "rule by a file": ("run", "method.rule", {"kind": "torch", "target": FILE}),
    "problem by a call": ("run", "problem", CALL),
    "problem by a class": ("run", "problem", {"kind": MODULE}),
    "hardware": ("run", "compute", {"hardware": CALL}),
    "hardware by a file": ("run", "compute", {"hardware": FILE}),
    "kind of the spec": ("run", "kind", MODULE),
    "networks of a comparison": ("compare", "networks", [CALL]),
    "schedule": ("pipeline", "schedules", [CALL]),
    "schedule by a file": ("pipeline", "schedules", [FILE]),
    "network of a pipeline": ("pipeline", "network", CALL),
    "model of a projection": ("project", "specs.0.model", CALL),
    "network of a projection": ("project", "specs.0.networks", [FILE]),
    "method of a projection": ("project", "specs.0.methods", [CALL]),
    "network of collectives": ("collectives", "question.networks", [CALL]),
    "network of a trace": ("trace", "question.networks", [CALL]),
    "hardware of a trace": ("trace", "question.hardware", CALL),
    "run of a sweep": ("sweep", "spec", {"network": CALL}),
}
"""What names the code: the command whose folder it is, the field, its value."""

READERS = ["load", "show", "report", "runs", "best"]
"""All that reads a result folder."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Return a folder with a result of each command."""
    root = tmp_path_factory.mktemp("results")
    sl.run(TRAINING).save(root / "run")
    networks = {key: value for key, value in TRAINING.items() if key not in ("network", "method")}
    made = sl.compare(networks | {"kind": "compare", "networks": ["wan"], "methods": ["ddp-adam"]}, jobs=1)
    made.save(root / "compare")
    sl.pipeline(schedules=["gpipe"], stages=2, microbatches=2).save(root / "pipeline")
    sl.project(workers=8, methods=["ddp-adam"]).save(root / "project")
    sl.collectives(4, "1 MB", ["10gbe"]).save(root / "collectives")
    sl.sweep(TRAINING, {"method.lr": [0.1]}, jobs=1).save(root / "sweep")
    shutil.copytree(root / "compare", root / "trace")
    record = json.loads((root / "trace" / "run.json").read_text())
    changes = {"bandwidth": 1.0, "latency": 1.0, "compute": 1.0, "overlap": True}
    question = {"networks": ["wan"], "hardware": "a100", "algorithm": None, "host": None, "changes": changes}
    record |= {"command": "trace", "question": question | {"target_loss": None}}
    record["rows"] = [row | {"hardware": "h100"} for row in record["rows"]]
    (root / "trace" / "run.json").write_text(json.dumps(record))
    return root


def set_field(folder: Path, path: str, value: Any) -> None:
    """Write a value into the spec of a result folder, or into its run.json where the folder has no spec."""
    file = next(p for name in ("spec.yaml", "sweep.json", "run.json") if (p := folder / name).is_file())
    if folder.name == "trace":
        file = folder / "run.json"
    record = fields = yaml.safe_load(file.read_text())
    *parents, last = path.split(".")
    for part in parents:
        fields = fields[int(part)] if part.isdecimal() else fields[part]
    fields[last] = value
    file.write_text(json.dumps(record))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("route", ROUTES)
def test_reading_runs_no_code(route, reader, folders, command, tmp_path):
    name, path, value = ROUTES[route]
    (tmp_path / "payload.py").write_text(CODE)
    shutil.copytree(folders / name, tmp_path / "runs" / name)
    set_field(tmp_path / "runs" / name, path, value)
    if reader == "load":
        result = sl.load(f"runs/{name}")
        assert result.rows and isinstance(result.tables, list) and str(result) and repr(result)
    else:
        arguments = {"runs": (), "best": (f"runs/{name}",)}.get(reader, (name,))
        done = command(reader, *arguments)
        is_refused = done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1
        assert is_refused if reader == "best" and name != "sweep" else done.code == 0, done.err
    assert not os.path.lexists(MARK)


def test_a_problem_of_code_keeps_its_name_and_the_tables_stay(folders, tmp_path):
    shutil.copytree(folders / "run", tmp_path / "run")
    set_field(tmp_path / "run", "problem", CALL)
    read = sl.load(tmp_path / "run")
    assert read.spec is not None and read.spec.problem.name == CALL["target"] and read.tables
    with pytest.raises(sl.SpecError, match=r"problem.target: .*os.system"):
        sl.run(read.spec, steps=4)
    set_field(tmp_path / "run", "network", CALL)
    read = sl.load(tmp_path / "run")
    assert read.spec is None and not read.tables and len(read.summary) == 1


@pytest.mark.parametrize("target", ["torch.optim:SGD", "torch.optim.sgd:SGD"])
def test_an_optimizer_of_torch_is_read(target, folders, tmp_path):
    shutil.copytree(folders / "run", tmp_path / "run")
    set_field(tmp_path / "run", "method.rule", {"kind": "torch", "target": target})
    read = sl.load(tmp_path / "run")
    assert read.spec is not None and read.spec.method.rule.target == target and read.tables


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("run", "network", "outside.yaml"),
        ("run", "network", {"per_node": 2, "inside": "wan", "between": "outside.yaml"}),
        ("run", "compute", {"hardware": "outside.yaml"}),
        (
            "run",
            "compute",
            {"hardware": {"peak_flops": 1e12, "mfu": 0.5, "collectives": {"all_reduce": "outside.csv"}}},
        ),
        ("collectives", "question.networks", ["outside.yaml"]),
    ],
)
def test_a_file_outside_of_the_folder_is_not_read(name, path, value, folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folders / name, tmp_path / name)
    set_field(tmp_path / name, path, value)
    Path("outside.csv").write_text("gpus,bytes,seconds\n2,1000,1\n")
    Path("outside.yaml").write_text("{latency: 1 ms, bandwidth: 1 GB/s, peak_flops: 1e12, mfu: 0.5}")
    result = sl.load(name)
    assert result.spec is None and not result.tables and result.rows


def test_a_sweep_names_no_run_outside_of_it(folders, tmp_path):
    shutil.copytree(folders / "sweep", tmp_path / "sweep")
    set_field(tmp_path / "sweep", "runs.0.run", "../../outside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "run.json").write_text('{"row": {"loss": -1}}')
    assert sl.load(tmp_path / "sweep").rows == []


COMMANDS = {
    "run": (("run", "spec.yaml"), "network.target"),
    "sweep": (("sweep", "spec.yaml", "--grid", "method.lr=0.1"), "network.target"),
    "launch": (("launch", "spec.yaml"), "network.target"),
    "calibrate": (("calibrate", "spec.yaml"), "network.target"),
    "compare": (("compare", "--set", "methods=[payload.py:make]"), "methods.0"),
    "project by its network": (("project", "--network", MODULE), "--network.0"),
    "project by its model": (("project", "--model", FILE), "--model"),
    "project by its hardware": (("project", "--hardware", FILE), "--hardware"),
    "advise": (("advise", "--model", FILE, "--cluster", "a100-eos"), "--model"),
    "collectives": (("collectives", "--network", FILE), "--network"),
    "pipeline": (("pipeline", "--schedule", FILE), "--schedule.0"),
    "trace": (("trace", "--workers", "1", "--", "payload.py"), "script"),
}
"""Arguments that name code, and the field that the refusal names."""


@pytest.mark.parametrize("switch", ["option", "option before the command", "variable"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_code_is_refused_in_one_line(name, switch, command, tmp_path, monkeypatch):
    arguments, field = COMMANDS[name]
    (tmp_path / "payload.py").write_text(CODE)
    (tmp_path / "spec.yaml").write_text(json.dumps(TRAINING | {"network": CALL}))
    monkeypatch.delenv(NO_CODE, raising=False)
    if switch == "variable":
        monkeypatch.setenv(NO_CODE, "1")
    elif switch == "option":
        arguments = (arguments[0], "--no-code", *arguments[1:])
    else:
        arguments = ("--no-code", *arguments)
    done = command(*arguments)
    assert done.code == 2 and done.err.count("\n") == 1 and NO_CODE in done.err, done.err
    assert done.err.startswith(f"error: {field}: got ") and not os.path.lexists(MARK)
    assert os.environ.get(NO_CODE) == ("1" if switch == "variable" else None)


def test_no_code_leaves_what_is_built_in_and_objects_of_python(command, monkeypatch):
    monkeypatch.delenv(NO_CODE, raising=False)
    assert command("project", "--no-code", "--network", "wan", "--workers", "4").code == 0
    with pytest.raises(sl.SpecError, match=f"network.target: .*{NO_CODE} is set"):
        monkeypatch.setenv(NO_CODE, "1")
        sl.run(TRAINING | {"network": CALL})
    rule = {"kind": "local", "lr": 0.1, "rule": {"kind": "torch", "target": "torch.optim:SGD"}}
    assert sl.run(TRAINING | {"problem": Rosenbrock(), "method": rule | {"period": 2}}).rows
    monkeypatch.setenv(NO_CODE, "0")
    with pytest.raises(sl.SpecError, match=r"network: got .*expected a network"):
        sl.run(TRAINING | {"network": CALL})
