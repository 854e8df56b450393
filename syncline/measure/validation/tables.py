"""Tables of ``syncline validate`` for people: errors by group, and constants."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.columns import column_of
from syncline.measure.validation.measured_steps import LEFT_OUT, WIDTH_AND_MICRO_BATCH
from syncline.planner.tables.table import table
from syncline.specs import ClustersSpec, StepTimesSpec, ValidationSpec
from syncline.specs.study import Record
from syncline.units import format_seconds

NOTE = (
    "Absolute errors, |predicted / measured - 1|: mean, median, worst; bias: the mean with its sign, + is too slow.\n"
    "{calibration}"
)
CLUSTERS_NOTE = (
    "Absolute errors, |predicted / measured - 1|: median, worst; bias: the mean with its sign, + is too slow. "
    "Constants were fitted to the collectives that come with the package; nothing was fitted to the steps but what "
    "they compute, and of NVLink the times themselves are known. +-: half of the interval in which nine of ten are "
    "expected, the median; within: how many are (of what comes with the package, in the interval that the others give)."
)
LEFT_OUT_NOTE = "Errors of the rows of a group when the constants are fitted to all rows but these."
ERRORS = "points mape median worst bias"


def validate_tables(result: dict[str, Any], spec: ValidationSpec) -> list[Group]:
    """Return tables of the errors, of their groups, and of the constants."""
    if isinstance(spec, ClustersSpec):
        return _cluster_tables(result, spec)
    rows = result["summary"]
    left_out_rows = [row for row in rows if row["role"] == LEFT_OUT]
    other_rows = [row for row in rows if row["role"] not in ("repeats", LEFT_OUT)]
    role_rows = [row for row in other_rows if row["by"] == "tensor"]
    note = NOTE.format(calibration=_sentence_about_repeats(rows, spec))
    title = f"{spec.name}: predicted against measured"
    tables: list[Group] = [table(title, f"group {ERRORS}", role_rows, note=note, values={"group": _role})]
    columns = f"by value {ERRORS}"
    group_rows = [row for row in other_rows if row["by"] != "tensor"]
    tables.append(table("One node without tensor parallelism, by group", columns, group_rows, section="by"))
    if left_out_rows:
        cells = [row for row in left_out_rows if row["by"] == WIDTH_AND_MICRO_BATCH]
        total, *_ = left_out_rows  # the first row has the errors of all cells
        cells.append(total | {"by": "all cells", "value": ""})
        tables.append(table("The same, each cell predicted from points outside of it", columns, cells))
    computed = {"value": _value_with_unit, "constant_spread": _spread}
    tables.append(table("Constants", "name value constant_spread", result["constants"], values=computed))
    return tables


def _cluster_tables(result: dict[str, Any], spec: ClustersSpec) -> list[Group]:
    """Return the tables of ``validate clusters``: errors by file and regime, and of groups that a fit left out."""

    def group_name(row: Record) -> str:
        return f"all of {row['file']}" if row["regime"] == "all" else str(row["regime"])

    tables = [
        table(
            f"{spec.name}: predicted against measured", "group points median worst bias half_width coverage",
            result["summary"], note=CLUSTERS_NOTE, section="file", values={"group": group_name},
        )
    ]  # fmt: skip
    if result["cross_validation"]:
        left_out = {"group_left_out": lambda row: f"{row['held_out']} {row['value']}"}
        tables.append(table(
            "Constants fitted without a group", "stage group_left_out points mape median worst bias",
            result["cross_validation"], note=LEFT_OUT_NOTE, section="stage", values=left_out,
        ))  # fmt: skip
    return tables


TRAININGS_NOTE = (
    "A mean step, of medians over repetitions; error: predicted / measured - 1; spread: the median deviation of the "
    "repetitions, times 1.48. ~: the error is within the spread. Communication: standing still for it, encoding "
    "included. Device: what the kernel counted on a worker's device, headers and acknowledgements included."
)


def validation_tables(result: dict[str, Any]) -> list[Group]:
    """Return tables of predicted and measured trainings, and of the errors of the predictions."""
    rows = result["rows"]
    columns = (
        "method network bound predicted_s measured_s error spread both_communications both_bytes device_error "
        "loss_difference"
    )
    values: dict[str, Any] = {
        "network": lambda row: f"{row['network']}, {row['workers']}",
        "error": _error,
        "both_communications": lambda row: ", ".join(
            format_seconds(row[f"{kind}_communication_s"]) for kind in ("predicted", "measured")
        ),
        "both_bytes": _both_bytes,
        "loss_difference": lambda row: row["loss_difference"] or "the same",
    }
    tables: list[Group] = []
    for spec in dict.fromkeys(row["spec"] for row in rows):
        title, spec_rows = f"{spec}: predicted, then measured", [row for row in rows if row["spec"] == spec]
        tables.append(table(title, columns, spec_rows, note=TRAININGS_NOTE, values=values))
    errors = "by value points median worst bias spread"
    return [*tables, table("Errors of a mean step", errors, result["summary"], section="by")]


def _error(row: Record) -> str:
    """Return the error of a prediction; a ``~`` marks one within the spread of the measurements."""
    mark = "~" if row["noisy"] else ""
    return f"{column_of('error').text(row['error'])}{mark}"


def _both_bytes(row: Record) -> str:
    """Return the predicted and the measured bytes of a worker's step; one number if they are equal."""
    predicted, measured = row["predicted_bytes"], row["measured_bytes"]
    return f"{predicted:,.0f}" if predicted == measured else f"{predicted:,.0f}, {measured:,.0f}"


def _role(row: Record) -> str:
    """Return the words for a row of errors: on which nodes, with which tensor parallelism."""
    where = "several nodes" if row["role"] == "extrapolation" else "one node"
    tensor = "tensor parallelism 1" if row["value"] == "1" else row["value"]
    return f"{where}, {tensor}" + (" (calibrated on)" if row["role"] == "calibration" else "")


def _sentence_about_repeats(rows: list[Record], spec: StepTimesSpec) -> str:
    """Return the sentence about calibrations on random points; empty if there were none."""
    for row in rows:
        if row["role"] == "repeats":
            return (
                f"Calibrated {spec.repeats} times on {row['calibrated']} random points instead, the others' mean error "
                f"is {row['mape']:.2%} (from {row['mape_best']:.2%} to {row['mape_worst']:.2%})."
            )
    return ""


def _value_with_unit(row: Record) -> str:
    """Return the value of a fitted constant with its unit."""
    value, name = row["value"], row["name"]
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e9:,.4g} GB/s"
    if name.endswith("_flops"):
        return f"{value / 1e12:.4g} TFLOP/s"
    return format_seconds(value)


def _spread(row: Record) -> Any:
    """Return the relative standard error of a fitted constant, or that the constant is at its largest value."""
    is_fitted, has_ceiling = row["spread"] is not None, row["ceiling"] is not None
    if is_fitted and has_ceiling and row["value"] >= row["ceiling"] * (1 - 1e-9):  # up to the fit's rounding
        return "at its ceiling"
    return row["spread"]
