"""Every combination of values, in a file."""

from __future__ import annotations

import itertools

import pandas as pd
import pyarrow.parquet as pq
import pytest

from syncline.errors import SpecError
from syncline.planner.projection import grid as module
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.grid import ProjectedGrid, grids_of
from syncline.planner.projection.parquet import write_parquet, write_rows
from syncline.planner.projection.project import project
from syncline.planner.projection.projections import Options
from syncline.specs import ProjectSpec, load_spec
from syncline.specs.grid import Grid

METHODS = ["ddp-adam", "diloco", "lion-cub"]


def spec(*overrides, **fields):
    given = {"methods": METHODS, "networks": ["10gbe", "wan"], "steps": 320} | fields
    return load_spec("project-gpt-160m", given, ProjectSpec)


def projected(*grids, options=None, **fields):
    return ProjectedGrid(spec(**fields), [*grids_of(options or Options()), *map(Grid.parse, grids)])


def rows_of(grid, **options):
    return ColumnRows(list(grid.parts(**options))).tolist()


def test_rows_are_those_of_each_configuration_alone():
    grid = projected("workers=2,8,300", "overlap=none,ddp", "sequence=512,1024", "hardware=h100,a100",
                     "network.latency_s=[1us, 1e-3]", "diloco:method.period=8,300", "algorithm=ring,auto")  # fmt: skip
    rows = rows_of(grid)
    assert grid.rows == 3 * 2 * 2 * 2 * 2 * 2 * 2 * 4
    assert len(rows) == grid.rows - 2**6  # of lion-cub and 300 workers
    (line,) = grid.left_out()
    assert line.startswith("lion-cub: left out for 300 workers: bits: got 8")
    told = {}
    for row in rows:
        key = (row["workers"], row["overlap"], row["sequence"], row["hardware"], row["asked_algorithm"], row["network"],
               row["network.latency_s"], row["method"], row["method.period"])  # fmt: skip
        assert key not in told
        told[key] = row
    some = itertools.islice(told.items(), 0, None, 23)
    for (workers, overlap, sequence, hardware, algorithm, network, latency_s, method, period), row in some:
        diloco = {"kind": "diloco", "lr": 1, "period": period} if period else {"kind": "diloco", "lr": 1}
        link = {"preset": network, "latency": latency_s, "name": network}
        one = spec(workers=workers, overlap=overlap, algorithm=algorithm, networks=[link],
                   compute={"hardware": hardware}, model={"kind": "gpt-160m", "sequence": sequence},
                   methods=["ddp-adam", *({"diloco": [diloco], "lion-cub": ["lion-cub"]}.get(method, []))])  # fmt: skip
        alone = project(one)[-1]
        for name, value in alone.items():
            if not name.startswith("faster"):
                assert row[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


def test_it_is_the_same_however_many_rows_are_in_memory(monkeypatch):
    given = "workers=2,4,8,300", "network.bandwidth=[1 Gbit/s, 2 Gbit/s]", "steps=100,200", "method.lr=[0.1, 0.2]"
    whole = rows_of(projected(*given))
    keys = [name for name in whole[0] if name != "algorithm"]
    for at_a_time in (1, 7, 40):
        monkeypatch.setattr(module, "ROWS_AT_A_TIME", at_a_time)
        parts = list(projected(*given).parts())
        assert len(parts) > 1

        def order(row):
            return [str(row[key]) for key in keys]

        assert sorted(ColumnRows(parts).tolist(), key=order) == sorted(whole, key=order)


def test_options_are_grids_too_and_thresholds_are_told_if_asked():
    grid = projected("network=wan", options=Options("8,64", ["gpt-160m,olmo-1b"], ["h100"], METHODS[:2], "ddp", "auto"))
    rows = rows_of(grid, thresholds=True)
    assert [(row["model"], row["workers"], row["method"]) for row in rows] == [
        *itertools.product(["gpt-160m", "olmo-1b"], [8, 64], METHODS[:2])
    ]
    assert {row["faster"] for row in rows if row["method"] == "diloco"} == {"always"}
    assert "faster" not in rows_of(grid)[0]


def test_a_file_has_units_and_numbers_of_the_networks(tmp_path):
    grid = projected("workers=2,4", "network=[10gbe, '50us,25Gbit/s', {per_node: 2, inside: nvlink4, between: ib-ndr}]")
    done = []
    file = tmp_path / "new" / "rows.parquet"
    assert write_parquet(grid.parts(), file, {"spec": "x"}, done.append) == done[-1] == grid.rows
    read = pq.read_table(file)
    units = {field.name: (field.metadata or {}).get(b"unit") for field in read.schema}
    assert units["step_time_s"] == units["network.latency_s"] == b"s"
    assert units["network.bandwidth_bytes_per_s"] == b"B/s" and units["memory_bytes"] == b"B" and not units["method"]
    frame = read.to_pandas()
    assert frame["network.latency_s"].isna().sum() == 2 * 3 and frame["fits"].all()
    assert set(frame["network.bandwidth_bytes_per_s"].dropna()) == {1.25e9, 3.125e9}
    rows = pd.DataFrame(rows_of(grid))
    assert frame["step_time_s"].tolist() == rows["step_time_s"].tolist()
    assert frame["algorithm"].astype(str).tolist() == rows["algorithm"].tolist()


def test_rows_of_a_projection_are_written_and_those_of_a_paper_are_not(tmp_path):
    rows = ColumnRows(list(projected("workers=2").parts()))
    assert pq.read_table(write_rows(rows, tmp_path / "rows.parquet")).num_rows == len(rows)
    with pytest.raises(SpecError, match=r"--parquet: got .* expected a projection; these are the rows of a paper"):
        write_rows([{"a": 1}], tmp_path / "other.parquet")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_ends_in_the_middle_leaves_what_there_was(tmp_path, error):
    def parts():
        yield from projected("workers=2").parts()
        raise error

    file = tmp_path / "rows.parquet"
    file.write_text("before")
    with pytest.raises((KeyboardInterrupt, SpecError)):
        write_parquet(parts(), file, {})
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_a_model_of_nodes_takes_fields_of_its_own():
    nodes = {"per_node": 2, "inside": "nvlink4", "between": "ib-ndr", "name": "nodes"}
    rows = rows_of(projected("workers=8", "network.per_node=2,4,8", "method=ddp-adam", networks=[nodes]))
    assert [row["network.per_node"] for row in rows] == [2, 4, 8]
    assert rows[0]["step_time_s"] > rows[1]["step_time_s"] > rows[2]["step_time_s"]


@pytest.mark.parametrize(
    ("grids", "error"),
    [
        (["network.foo=1"], "--grid network.foo: got 1; expected no such field here, but one of 'bandwidth'"),
        (["network.latency=1,x"], "--grid network.latency: got 'x'; expected a time with its unit"),
        (["network.latency=1", "network.latency_s=2"], "--grid network.latency: got 'network.latency'; expected each"),
        (["network.per_node=3"], "--grid network.per_node (network.latency of 10gbe): got"),
        (["network=a"], "--grid network: got 'a'; expected one of "),
        (["network=wan,wan"], "--grid network: got 'wan'; expected different names"),
        (["networks=[wan]"], "--grid networks: got 'networks'; expected network, which stands for each of them"),
        (["workers=0,3"], "--grid workers: got 0; expected at least 1"),
        (["workers=2", "workers=3"], "--grid workers: got 'workers'; expected each field once"),
        (["method.perod=3"], "--grid method.perod: got 'perod'; expected a field that a method here has: one of"),
        (["mt-da:method.period=3"], "--grid mt-da:method.period: got 'mt-da'; expected one of 'ddp-adam', 'diloco'"),
        (["diloco:workers=3"], "--grid diloco:workers: got 'diloco'; expected no method before workers"),
        (["method.period=0"], "--grid method.period: got 0; expected at least 1"),
        (["method=foo"], "--grid method: got 'foo'; expected one of"),
        (["method=diloco,diloco"], "--grid method: got 'diloco'; expected different names"),
        (["model=gpt"], "--grid model: got 'gpt'; expected one of"),
        (["hardware=h1"], "--grid hardware: got 'h1'; expected one of"),
        (["sequence=0"], "--grid sequence: got 0; expected at least 1"),
        (["sequence=a"], "--grid sequence: got 'a'; expected whole numbers of tokens"),
        (["seqence=3"], "--grid seqence: got 3; expected no such field here"),
        (["overlap=dd"], "--grid overlap: got 'dd'; expected 'none', 'ddp' or 'async'"),
        (["steps=[1, 10000000000]"], "--grid steps: got 10000000000; expected"),
        ([f"{name}={list(range(1, 1001))}" for name in ("workers", "steps", "tokens_per_worker")],
         "--grid tokens_per_worker: got 1000; expected 100,000,000 rows or fewer, not 6,000,000,000"),
    ],
)  # fmt: skip
def test_mistakes_name_the_grid(grids, error):
    with pytest.raises(SpecError) as refused:
        projected(*grids)
    assert str(refused.value).startswith(error)
