"""Tables of measured collectives: their own points, what lies between and beyond, and what is no table."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import HARDWARE
from syncline.costmodel.numerics.measured_times import MeasuredTimes, Point, nvlink_all_reduce, read_times
from syncline.errors import SpecError
from syncline.specs.cluster.hardware import hardware, hardware_fields

TABLE = MeasuredTimes(
    "all_reduce", (Point(2, 1e3, 1e-3), Point(2, 1e5, 1e-2), Point(4, 1e3, 2e-3), Point(4, 1e5, 4e-2))
)


def test_measured_points_are_told_as_they_are():
    for times in (TABLE, nvlink_all_reduce("a100"), nvlink_all_reduce("v100")):
        ranks, nbytes, seconds = np.array(times.points).T
        np.testing.assert_allclose(times.time_s(nbytes, ranks), seconds, rtol=1e-12)


def test_between_and_beyond():
    assert TABLE.time_s(1e4, 2) == pytest.approx(np.sqrt(1e-3 * 1e-2))  # a power law
    assert TABLE.time_s(3e5, 2) == pytest.approx(3e-2) and TABLE.time_s(1.0, 2) == pytest.approx(1e-3)
    share = (2 / 3 - 1 / 2) / (3 / 4 - 1 / 2)
    assert TABLE.time_s(1e3, 3) == pytest.approx(1e-3 * 2**share)
    assert TABLE.time_s([1e3, 1e5], [[2], [4]]).shape == (2, 2)
    assert np.isnan(TABLE.time_s(1e3, [8, 1])).all()  # nobody measured those


def test_a_machine_has_its_tables_and_describes_them(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("gpu,gpus,bytes,seconds\nmine,2,1000,1e-3\nyours,2,1000,1.0\nmine,4,1000,2e-3\n")
    given = {"name": "mine", "peak_flops": 1e12, "mfu": 0.5, "collectives": {"all_reduce": str(file)}}
    mine = hardware(given)
    measured = mine.measured("all_reduce")
    assert measured is not None and measured.points == ((2, 1e3, 1e-3), (4, 1e3, 2e-3))
    assert mine.measured("all_gather") is None and HARDWARE["h100"].measured("all_reduce") is None
    again = hardware(hardware_fields(mine)).measured("all_reduce")
    assert again is not None and again.points == measured.points
    assert hardware_fields(HARDWARE["a100"]) == "a100"


@pytest.mark.parametrize(
    ("collectives", "message"),
    [
        ({"all_redcue": []}, "collectives: got 'all_redcue'; expected one of"),
        ({"all_reduce": "none.csv"}, "collectives.all_reduce: got 'none.csv'; expected a file that can be read"),
        ({"all_reduce": [[2, 1e3]]}, r"collectives.all_reduce: got .*; expected a .csv file, or a list of \[ranks"),
        ({"all_reduce": [[1, 1e3, 1e-3]]}, "expected at least 2 ranks"),
        ({"all_reduce": []}, "expected at least one measurement"),
    ],
)
def test_what_is_no_table_is_refused(collectives, message):
    with pytest.raises(SpecError, match=message):
        hardware({"peak_flops": 1e12, "mfu": 0.5, "collectives": collectives})


def test_files_that_hold_something_else(tmp_path):
    file = tmp_path / "f.csv"
    for text in ("a,b\n1,2\n", "gpus,bytes,seconds\n2,many,1\n"):
        file.write_text(text)
        with pytest.raises(SpecError, match="the columns gpus, bytes and seconds"):
            read_times(file, "all_reduce")
