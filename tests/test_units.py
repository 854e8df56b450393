from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import SpecError
from syncline.units import format_bandwidth, format_bytes, format_seconds, parse_bandwidth, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50 ms", 0.05), ("50us", 50e-6), ("50 µs", 50e-6), ("2e3 ns", 2e-6), ("1.5h", 5400.0), (0.05, 0.05), (0, 0.0)],
)
def test_times(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds  # to the last bit


@pytest.mark.parametrize(
    ("text", "nbytes"), [("619MiB", 619 * 2**20), ("619 MB", 619e6), ("1 KiB", 1024), ("1kB", 1000), (".5 GB", 5e8)]
)
def test_sizes_tell_powers_of_1000_from_powers_of_1024(text: str, nbytes: float) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["10 Gbit/s", "10Gb/s", "10 Gbps", "1.25 GB/s", "1.25GBps", "10000 Mbit/s", 1.25e9])
def test_bandwidths_tell_bits_from_bytes(text: str | float) -> None:
    assert parse_bandwidth(text) == 1.25e9


@pytest.mark.parametrize(
    "text",
    [
        "50",
        "50 m",
        "-1 s",
        "1__0 s",
        "s",
        "",
        "1 s 2 s",
        "inf s",
        "1e999999999999999999999 s",
        math.nan,
        -1.0,
        True,
        None,
    ],
)
def test_what_is_no_time_is_refused_in_one_line_that_names_the_field(text: object) -> None:
    with pytest.raises(SpecError) as caught:
        parse_seconds(text, path="network.latency")  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith("network.latency: got ")
    assert repr(text) in message
    assert "50 ms" in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["10 Gb", "10 gB", "10 mB", "10 MiB/s"])
def test_a_size_is_in_bytes(text: str) -> None:
    with pytest.raises(SpecError, match="B is byte"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["0 Gbit/s", 0, "10 Gbit", "10 GB", "10 gbit/s", math.inf])
def test_a_bandwidth_is_positive_and_per_second(text: str | float) -> None:
    with pytest.raises(SpecError, match="100 Gbit/s"):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2e-6, "2 us"),
        (0.9999, "1 s"),
        (59.99, "1 min"),
        (5400, "1.5 h"),
        (1e-12, "0.001 ns"),
        (1e9, "11600 d"),
    ],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_sizes_and_bandwidths_for_people() -> None:
    assert format_bytes(648_806_400) == "649 MB"
    assert format_bytes(0) == "0 B"
    assert format_bandwidth(12.5e9) == "100 Gbit/s"
    assert format_bytes(math.inf) == "inf B"


@given(st.floats(min_value=1e-12, max_value=1e15))
def test_what_is_written_reads_back_to_three_digits(value: float) -> None:
    assert parse_seconds(format_seconds(value)) == pytest.approx(value, rel=0.005)
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=0.005)
    assert parse_bandwidth(format_bandwidth(value)) == pytest.approx(value, rel=0.005)
