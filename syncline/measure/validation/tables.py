"""Tables of ``syncline validate`` for people: errors by group, and constants."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.measure.validation.vtrain import BOTH, GROUPS, LEFT_OUT
from syncline.planner.tables.columns import Column, count_of, table, text_of
from syncline.specs import ClustersSpec, StepTimesSpec, ValidationSpec
from syncline.specs.study import Record
from syncline.units import format_seconds


def _percent(name: str, sign: str = "") -> Column:
    titles = {"mape": "mean", "bias": "bias"}
    return titles.get(name, name), lambda row: "-" if row[name] is None else f"{100 * row[name]:{sign}.2f}%"


ERRORS = [_percent("mape"), _percent("median"), _percent("worst"), _percent("bias", "+")]

NOTE = (
    "Absolute errors, |predicted / measured - 1|: mean, median, worst; bias: the mean with its sign, + is too slow.\n"
    "{calibration}"
)
REPEATS = (
    "Calibrated {count} times on {size} random points instead, the others' mean error is {mean:.2%} "
    "(from {best:.2%} to {worst:.2%})."
)


def validate_tables(result: dict[str, Any], spec: ValidationSpec) -> list[Group]:
    """Return tables of the errors, of their groups, and of the constants."""
    if isinstance(spec, ClustersSpec):
        from syncline.measure.validation.clusters import cluster_tables

        return cluster_tables(result, spec)
    rows = result["summary"]
    roles = [
        row | {"of": _role(row)} for row in rows if row["by"] == "tensor" and row["role"] not in ("repeats", LEFT_OUT)
    ]
    first: list[Column] = [text_of("of"), count_of("points"), *ERRORS]
    tables = [
        table(f"{spec.name}: predicted against measured", first, roles, NOTE.format(calibration=_repeats(rows, spec)))
    ]
    groups: list[Column] = [text_of("by"), text_of("value"), count_of("points"), *ERRORS]
    group_rows = [row for row in rows if row["by"] in (*GROUPS, BOTH) and row["role"] != LEFT_OUT]
    tables.append(table("One node without tensor parallelism, by group", groups, group_rows, section="by"))
    left_out_rows = [row for row in rows if row["role"] == LEFT_OUT]
    if left_out_rows:
        title = "The same, each cell predicted from points outside of it"
        tables.append(
            table(title, groups, [row for row in left_out_rows if row["by"] == BOTH] + [_total(left_out_rows)])
        )
    tables.append(table("Constants", [text_of("name"), ("value", _value), ("spread", _spread)], result["constants"]))
    return tables


NOISY = "~"

TRAININGS_NOTE = (
    "A mean step, of medians over repetitions; error: predicted / measured - 1; spread: the median deviation of the "
    "repetitions, times 1.48. ~: the error is within the spread. Communication: standing still for it, encoding "
    "included. Device: what the kernel counted on a worker's device, headers and acknowledgements included."
)


def validation_tables(result: dict[str, Any]) -> list[Group]:
    """Return tables of predicted and measured trainings, and of the errors of the predictions."""
    rows = result["rows"]
    columns: list[Column] = [
        text_of("method"),
        ("network", lambda row: f"{row['network']}, {row['workers']}"),
        ("bound by", lambda row: row["bound"]),
        ("predicted", lambda row: format_seconds(row["predicted_s"])),
        ("measured", lambda row: format_seconds(row["measured_s"])),
        ("error", lambda row: f"{100 * row['error']:+.2f}%" + (NOISY if row["noisy"] else "")),
        ("spread", lambda row: f"{100 * row['spread']:.2f}%"),
        (
            "communication",
            lambda row: (
                f"{format_seconds(row['predicted_communication_s'])}, {format_seconds(row['measured_communication_s'])}"
            ),
        ),
        ("bytes", lambda row: _pair(row["predicted_bytes"], row["measured_bytes"])),
        ("device", lambda row: "-" if row["device_error"] is None else f"{100 * row['device_error']:+.1f}%"),
        ("loss", lambda row: f"{row['loss_difference']:+.1e}" if row["loss_difference"] else "the same"),
    ]
    tables = [
        table(
            f"{spec}: predicted, then measured", columns, [row for row in rows if row["spec"] == spec], TRAININGS_NOTE
        )
        for spec in dict.fromkeys(row["spec"] for row in rows)
    ]
    errors: list[Column] = [
        text_of("by"), text_of("value"), count_of("points"), *(_percent(name) for name in ("median", "worst")),
        _percent("bias", "+"), _percent("spread"),
    ]  # fmt: skip
    return [*tables, table("Errors of a mean step", errors, result["summary"], section="by")]


def _pair(predicted: float, measured: float) -> str:
    return f"{predicted:,.0f}" if predicted == measured else f"{predicted:,.0f}, {measured:,.0f}"


def _total(rows: list[Record]) -> Record:
    """Return the row of all cells together."""
    return next(row for row in rows if row["by"] == "tensor") | {"by": "all cells", "value": ""}


def _role(row: Record) -> str:
    where = "several nodes" if row["role"] == "extrapolation" else "one node"
    tensor = {"1": "tensor parallelism 1", "above 1": "above 1", "all": "all"}[row["value"]]
    return f"{where}, {tensor}" + (" (calibrated on)" if row["role"] == "calibration" else "")


def _repeats(rows: list[Record], spec: StepTimesSpec) -> str:
    for row in rows:
        if row["role"] == "repeats":
            return REPEATS.format(
                count=spec.repeats,
                size=row["calibrated"],
                mean=row["mape"],
                best=row["mape_best"],
                worst=row["mape_worst"],
            )
    return ""


def _value(row: Record) -> str:
    value, name = row["value"], row["name"]
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e9:,.4g} GB/s"
    return f"{value / 1e12:.4g} TFLOP/s" if name.endswith("_flops") else format_seconds(value)


def _spread(row: Record) -> str:
    if row["spread"] is None:
        return "-"
    at_ceiling = row["ceiling"] is not None and row["value"] >= row["ceiling"] * (1 - 1e-9)
    return "at its ceiling" if at_ceiling else f"{row['spread']:.1%}"
