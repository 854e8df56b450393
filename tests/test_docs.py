"""The documentation is executed: its examples run, and its tables name what the commands emit."""

from __future__ import annotations

import doctest
import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from replication.studies.alignment.spec import RandomQuadraticsSpec, TrapSpec
from replication.studies.draws import DistributionSpec
from replication.studies.papers.speed import SpeedCell
from replication.studies.papers.votes import Mark
from replication.studies.papers.wall_clock import Strategy
from replication.studies.quantisers.spec import NoiseSpec, TuningSpec, VectorsSpec
from replication.studies.staleness.spec import LateMethod
from replication.studies.vote_ties.spec import PaperVotes
from replication.timed_models import PipelineClockSpec
from syncline.cli.application import app
from syncline.columns import columns, records
from syncline.fields import Spec
from syncline.methods import METHOD_KINDS, METHODS
from syncline.methods.parts import asynchronous, compressors, diloco, rules
from syncline.methods.parts.asynchronous import RemedySpec
from syncline.problems import PROBLEMS
from syncline.specs import KINDS, STUDIES, ComputeSpec, bundled, class_of_kind, validate
from syncline.specs.cluster.links import LINK_FIELDS
from syncline.specs.compute import PauseSpec, SlowWorkerSpec
from syncline.specs.experiment import ScheduleSpec
from syncline.specs.stages import StagesSpec
from tests import records as records_page
from tests.doc_outputs import commands, is_as_shown, printed, write_files
from tests.torchrun import TORCHRUN, run

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def documented(section: str, page: str = "records.md") -> set[str]:
    """The names in the first column of a section's table."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {re.escape(section)}(?=:|$).*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)
    assert len(names) == len(set(names))
    return set(names)


def as_slow(page: Path) -> Any:
    """Return a page as a parameter: one whose examples take a dozen CPU seconds is marked slow."""
    return pytest.param(page, marks=pytest.mark.slow) if page.name == "solve.md" else page


@pytest.mark.parametrize("page", map(as_slow, PAGES), ids=lambda page: page.name)
def test_examples_at_the_prompt_run(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_examples_at_the_prompt_are_blocks_of_code() -> None:
    """Markdown takes a line that begins with ``>>>`` for a quotation of a quotation of one."""
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^>>> .*", prose, re.MULTILINE) == [], page


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))]
    # A figure is made by a run of minutes and committed beside the text.
    local = [(page, link) for page, link in links if "://" not in link and not link.endswith(".png")]
    assert [(page.name, link) for page, link in local if not (page.parent / link).exists()] == []


# Commands with their output.


def shown_commands() -> list[Any]:
    """Each page that shows outputs, with each of its commands."""
    found = [(page, *one) for page in PAGES for one in commands(page.read_text(encoding="utf-8"))]
    return [
        pytest.param(*one, id=f"{one[0].name}-{number}", marks=[pytest.mark.slow] if is_long(one[1]) else [])
        for number, one in enumerate(found)
    ]


def is_long(command: str) -> bool:
    """Whether a command searches plans or starts ranks, which takes many seconds."""
    return any(word in command for word in (" advise ", "--best", " trace "))


@pytest.mark.parametrize(("page", "command", "shown"), shown_commands())
def test_commands_print_what_stands_below_them(
    page: Path, command: str, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(page.read_text(encoding="utf-8"), tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = printed(command)
    assert is_as_shown(shown, lines), "\n".join(lines)


# Examples in Python.


def test_examples_of_the_python_api_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("syncline.runs.processes.shared_progress.cpu_count", lambda: 1)
    monkeypatch.setattr("matplotlib.pyplot.figure", lambda **_: None)
    names: dict[str, Any] = {}
    for example in (*blocks(DOCS / "tutorial.md", "python"), *blocks(DOCS / "python.md", "python")):
        exec(compile(example, "example", "exec"), names)
    assert len(names["result"].rows) and not list(tmp_path.iterdir())


# The program of one's own.


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The page's program, in a file."""
    (example,) = blocks(DOCS / "training_loop.md", "python")
    script = tmp_path / "train.py"
    script.write_text(example, encoding="utf-8")
    return script


def check_example(out: str, workers: int) -> None:
    """Each worker has learned something of its own, and has sent parameters and two states in each of four rounds.

    Each worker prints its loss and its bytes; lines of several workers may run together.
    """
    results = [(float(loss), int(nbytes)) for loss, nbytes in re.findall(r"loss ([\d.]+), (\d+) bytes", out)]
    parameters = 64 * 64 + 64 + 64 * 10 + 10
    assert len({loss for loss, _ in results}) == workers
    for loss, nbytes in results:
        assert loss < math.log(10) - 0.5  # ln 10 before training
        assert nbytes == 4 * parameters * 3 * (128 // 32)


def test_the_program_trains_one_worker(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(program), run_name="__main__")
    check_example(capfd.readouterr().out, workers=1)


def test_the_program_trains_under_torchrun(program: Path) -> None:
    done = run(*TORCHRUN, "--nproc-per-node", "2", str(program), cwd=program.parent)
    assert done.returncode == 0, done.stderr
    check_example(done.stdout, workers=2)


# Records.

TINY = {"steps": 4, "workers": 2, "compute": {"seconds": 0.001}}
PROBLEM_OF = {
    "rosenbrock": {"kind": "rosenbrock", "noise_std": 1.0},
    "quadratic": {"kind": "quadratic", "spectrum": [1.0, 2.0, 3.0]},
    "digits": {"kind": "digits", "hidden": 4, "batch_size": 2},
}
METHOD = {"kind": "local", "lr": 0.01, "period": 2}


def emitted(tmp_path: Path, command: str, fields: dict[str, Any]) -> dict[str, Any]:
    """What a command prints with --json for a spec of these fields."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(fields), encoding="utf-8")
    where = ["--out", str(tmp_path / "out")] if command != "project" else []
    jobs = ["--jobs", "1"] if command == "compare" else []
    done = CliRunner().invoke(app, [command, str(spec), "--json", *where, *jobs], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """A tiny run of every cheap problem."""
    results = {}
    for name, problem in PROBLEM_OF.items():
        folder = tmp_path_factory.mktemp(name)
        method = {"kind": "selsync", "lr": 0.01} if name == "digits" else METHOD  # one tells of its trigger, too
        fields = {"kind": "run", "name": name, "problem": problem, "method": method, "network": "wan", **TINY}
        results[name] = folder, emitted(folder, "run", fields)
    return results


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("compare")
    methods = [{"kind": "ddp", "rule": "sgdm", "lr": 0.01}, METHOD]
    fields = {"kind": "compare", "name": "c", "problem": PROBLEM_OF["digits"], "methods": methods}
    return folder, emitted(folder, "compare", fields | {"networks": ["wan", "10gbe"]} | TINY)


def names_of(rows: list[dict[str, Any]]) -> set[str]:
    """The names that all rows have; rows of one result have the same ones."""
    (names,) = {tuple(sorted(row)) for row in rows}
    return set(names)


def test_project_emits_what_is_documented(tmp_path: Path) -> None:
    fields = {"kind": "project", "name": "p", "model": "gpt-160m", "tokens_per_worker": 1024, "workers": 4}
    result = emitted(tmp_path, "project", fields | {"methods": ["ddp-adam", "mt-dao"], "networks": ["wan"]})
    assert set(result) == {"spec", "transferred", "assumptions", "rows"}
    assert names_of(result["rows"]) == documented("project")


def test_a_whole_training_emits_what_is_documented() -> None:
    asked = ["--tokens", "3.2B", "--prices", "aws-p5-2026-11", "--method", "diloco", "--network", "wan"]
    done = CliRunner().invoke(app, ["project", *asked, "--json"], catch_exceptions=False)
    whole = documented("project") | documented("whole-training")
    assert names_of(json.loads(done.stdout)["rows"]) == whole
    done = CliRunner().invoke(app, ["project", *asked, "--failures", "10000h", "--json"], catch_exceptions=False)
    assert names_of(json.loads(done.stdout)["rows"]) == whole | documented("whole-training-failures")


def test_advice_emits_what_is_documented() -> None:
    asked = ["--model", "gpt-160m", "--network", "two-sites", "--hardware", "h100", "--workers", "4"]
    done = CliRunner().invoke(app, ["advise", *asked, "--method", "ddp-adam,demo", "--json"], catch_exceptions=False)
    assert names_of(json.loads(done.stdout)["rows"]) == documented("advise")


def test_inverse_questions_emit_what_is_documented() -> None:
    asked = ["--step-time", "1s", "--method", "diloco,ddp-adam", "--network", "wan", "--json"]
    row = documented("solve") | {name for name in documented("project") if not name.startswith("faster")}
    for what, more, beside in (
        (["bandwidth"], [], set()),
        (["period"], [], set()),
        (["workers"], ["--tokens", "3B", "--prices", "aws-p5-2026-11"], documented("whole-training")),
        (["network", "--among", "wan,1gbe"], [], documented("solve-network")),
        (
            ["bandwidth", "--best"],
            ["--tokens", "3B", "--prices", "aws-p5-2026-11", "--deadline", "3h"],
            documented("whole-training") | documented("solve-plans"),
        ),
    ):
        done = CliRunner().invoke(app, ["solve", *what, *asked, *more], catch_exceptions=False)
        assert names_of(json.loads(done.stdout)["rows"]) == row | beside


@pytest.mark.parametrize(
    ("section", "command"),
    [
        ("curvadion-table", ["project", "curvadion-table3"]),
        ("traffic-table", ["project", "demo-table1"]),
        ("volume-table", ["project", "curvadion-table2"]),
        ("vote-table", ["project", "lion-cub-table1"]),
        ("vote-figure", ["project", "lion-cub-fig2"]),
        ("speed-table", ["project", "lion-cub-table4"]),
        ("wall-clock-figure", ["project", "mt-dao-fig9"]),
        ("list methods", ["list", "methods"]),
        ("collectives", ["collectives", "--starts", "0,1,0"]),
        ("loss", ["loss", "1.3B"]),
        ("goodput", ["goodput", "--recovery", "restart,alone"]),
    ],
)
def test_tables_and_methods_emit_what_is_documented(section: str, command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert names_of(json.loads(done.stdout)["rows"]) == documented(section)


def test_collectives_emit_crossovers_as_documented() -> None:
    done = CliRunner().invoke(app, ["collectives", "--json"], catch_exceptions=False)
    assert set(json.loads(done.stdout)) == {"transferred", "rows", "crossovers", "choices"}
    assert names_of(json.loads(done.stdout)["crossovers"]) == documented("crossovers")
    assert names_of(json.loads(done.stdout)["choices"]) == documented("choices")


def test_pipeline_emits_what_is_documented(tmp_path: Path) -> None:
    fields = {"kind": "pipeline", "name": "p", "schedules": ["1f1b", "greedy"], "stages": 2, "microbatches": 2}
    result = emitted(tmp_path, "pipeline", fields | {"forward": 1, "backward": 2})
    assert set(result) == {"rows", "folder", "interrupted"}
    assert names_of(result["rows"]) == documented("pipeline")
    assert names_of([stage for row in result["rows"] for stage in row["per_stage"]]) == documented("per_stage")
    assert set(pq.read_schema(tmp_path / "out" / "timeline.parquet").names) == documented("timeline.parquet")
    told = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    missing = {"seeds", "wall_s", "problem", "measured_step_s", "device", "dtype"}
    assert set(told) == documented("run.json") - missing


def test_compare_emits_what_is_documented(comparison: tuple[Path, dict[str, Any]]) -> None:
    result = comparison[1]
    assert set(result) == {"rows", "folder", "target_loss", "interrupted", "measured_step_s"}
    assert names_of(result["rows"]) == documented("compare")


def test_run_emits_what_is_documented(runs: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    assert all(set(result) == {"rows", "folder", "interrupted", "measured_step_s"} for _, result in runs.values())
    named = {problem: names_of(result["rows"]) for problem, (_, result) in runs.items()}
    assert set.union(*named.values()) == documented("run")
    landscapes = {"distance", "distance_mean", "spread_mean"}
    assert landscapes <= named["rosenbrock"] & named["quadratic"]
    assert documented("run") - named["digits"] == landscapes
    assert documented("run") - named["rosenbrock"] == {"accuracy", "averaged_mean", "trigger_mean"}


OF_STUDIES: dict[str, dict[str, Any]] = {
    "vote-ties": {
        "groups": [{"workers": 2, "tie_rate": 0.5, "match_rate": 0.5, "flip_rate": 0}],
        "distributions": ["laplace"],
        "votes": 9,
    },
    "quantisers": {
        "workers": 2,
        "vectors": {"distributions": ["laplace"], "entries": 9},
        "training": {
            "problem": "teacher-student",
            "noises": [{"alpha": 2, "noise_scale": 0}],
            "methods": [{"kind": "lion-cub", "label": "L1", "lr": 1}],
            "reference": "L1",
            "steps": 1,
            "rates": [0.1],
            "tuning_seeds": [1],
        },
    },
    "swings": {
        "problem": {"kind": "text-gpt", "layers": 1, "width": 4, "heads": 1, "context": 4, "tied": False},
        "methods": ["ddp-adam"],
        "stages": [1],
        "at_step": 1,
        "window": 2,
        "iterations": 1,
        "draws": 2,
    },
    "alignment": {
        "problem": {"kind": "quadratic", "spectrum": [2, 1], "start": [3, 3]},
        "angles_deg": [0, 45],
        "rates": [0.5],
        "delay": 1,
        "steps": 20,
        "target_loss": 1,
        "random_quadratics": {"problems": 2},
    },
    "staleness": {
        "problem": {"kind": "text-gpt", "layers": 2, "width": 4, "heads": 1, "context": 4, "tied": False},
        "stages": [1, 2],
        "methods": ["ddp-adam"],
        "steps": 2,
        "eval_every": 1,
        "clock": {"networks": ["wan"]},
    },
}


@pytest.mark.parametrize("kind", OF_STUDIES)
def test_studies_emit_what_is_documented(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # a process takes longer to start than such a study
    result = emitted(tmp_path, "run", {"kind": kind, "name": "study", **OF_STUDIES[kind]})
    assert set(result) == {"rows", "folder", "interrupted"}
    assert names_of(result["rows"]) == documented(kind)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.*")) == [
        "manifest.json", "metrics.parquet", "run.json", "spec.yaml",
    ]  # fmt: skip


def test_tables_hold_what_is_documented(
    runs: dict[str, tuple[Path, dict[str, Any]]], comparison: tuple[Path, dict[str, Any]]
) -> None:
    folders = [folder / "out" for folder, _ in (*runs.values(), comparison)]
    for table in ("ledger", "timeline"):
        for folder in folders:
            assert set(pq.read_schema(folder / f"{table}.parquet").names) == documented(f"{table}.parquet")
    columns = [set(pq.read_schema(folder / "metrics.parquet").names) for folder in folders]
    assert set.union(*columns) == documented("metrics.parquet")
    columns = [set(pq.read_schema(folder / "curves.parquet").names) for folder in folders]
    assert set.union(*columns) == documented("curves.parquet")
    columns = [set(pq.read_schema(folder / "summary.parquet").names) for folder in folders]
    assert set.union(*columns) == documented("summary.parquet") | documented("run")


def test_run_json_holds_what_is_documented(
    runs: dict[str, tuple[Path, dict[str, Any]]], comparison: tuple[Path, dict[str, Any]]
) -> None:
    for folder, result in (*runs.values(), comparison):
        record = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
        assert set(record) == documented("run.json")
        assert record["rows"] == result["rows"]


def test_the_page_of_records_is_made_of_the_declared_columns() -> None:
    text = records_page.FILE.read_text(encoding="utf-8")
    assert records_page.written_anew(text) == text, "python -m tests.records"
    titles = {re.split(r":|\n", part, maxsplit=1)[0] for part in re.split(r"(?m)^## ", text)}
    assert {*records()} <= titles
    assert len(columns()) > 500 and {*columns()} == {*columns()} | {
        name for names in records().values() for name in names
    }


# Specs.


def test_the_examples_of_the_spec_page_are_specs() -> None:
    examples = [yaml.safe_load(text) for text in blocks(DOCS / "specs.md", "yaml")]
    assert {example["kind"] for example in examples} == {*KINDS, *STUDIES.names()}
    for example in examples:
        validate(class_of_kind(example["kind"]), example)


def test_the_spec_page_names_every_field() -> None:
    text = (DOCS / "specs.md").read_text(encoding="utf-8")
    models = [class_of_kind(kind) for kind in [*KINDS, *STUDIES.names()]]
    models += [ComputeSpec, ScheduleSpec, SlowWorkerSpec, PauseSpec]
    models += [LateMethod, RemedySpec, PipelineClockSpec, StagesSpec]
    models += [RandomQuadraticsSpec, TrapSpec]
    models += [DistributionSpec, NoiseSpec, PaperVotes, VectorsSpec, TuningSpec, Mark, SpeedCell, Strategy]
    fields = {field for model in models for field in model.model_fields}
    fields |= {field for name in PROBLEMS for field in PROBLEMS[name].__dataclass_fields__}  # type: ignore[attr-defined]
    missing = sorted(field for field in fields if not re.search(rf"\b{field}\b", text))
    assert not missing


def test_the_spec_page_and_the_pages_of_methods_name_every_field_of_a_method_and_its_parts() -> None:
    pages = [*(DOCS / f"{name}.md" for name in ("specs", "methods", "elastic")), *(DOCS / "methods").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    parts = [part for module in (asynchronous, compressors, diloco, rules) for part in vars(module).values()]
    models = [
        *map(METHOD_KINDS.get, METHOD_KINDS.names()),
        *(part for part in parts if isinstance(part, type) and issubclass(part, Spec)),
    ]
    fields = {field for model in models for field in model.model_fields}
    missing = sorted(field for field in fields if not re.search(rf"\b{field}\b", text))
    assert not missing


def test_the_spec_page_names_every_field_of_a_link() -> None:
    assert documented("`network`", "specs.md") == set(LINK_FIELDS) - {"name"}


def test_pages_name_only_what_exists() -> None:
    """Bundled specs and named methods that a page gives to a command."""
    known = {*bundled(), *METHODS}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        given = re.findall(r"syncline (?:compare|run|project|pipeline) +([a-z][\w-]+)(?![\w./-])", text)
        assert set(given) <= known | {"my"}, page.name
