"""Tables of ``syncline validate`` for people: errors by group, and constants."""

from __future__ import annotations

from typing import Any

from rich.console import Group

from syncline.measure.validation.measured_steps import BOTH, GROUPS, LEFT_OUT
from syncline.planner.tables.columns import Column, count_of, table, text_of
from syncline.specs import ClustersSpec, StepTimesSpec, ValidationSpec
from syncline.specs.study import Record
from syncline.units import format_seconds


def _percent(name: str, sign: str = "", digits: int = 2, title: str = "", missing: str = "-") -> Column:
    """Return a column of percents, with the text ``missing`` in the place of None."""
    return title or name, lambda row: missing if row[name] is None else f"{100 * row[name]:{sign}.{digits}f}%"


ERRORS = [_percent("mape", title="mean"), _percent("median"), _percent("worst"), _percent("bias", "+")]

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


def validate_tables(result: dict[str, Any], spec: ValidationSpec) -> list[Group]:
    """Return tables of the errors, of their groups, and of the constants."""
    if isinstance(spec, ClustersSpec):
        return _cluster_tables(result, spec)
    rows = result["summary"]
    roles = [row for row in rows if row["by"] == "tensor" and row["role"] not in ("repeats", LEFT_OUT)]
    first: list[Column] = [("of", _role), count_of("points"), *ERRORS]
    note = NOTE.format(calibration=_repeats(rows, spec))
    tables = [table(f"{spec.name}: predicted against measured", first, rows=roles, note=note)]
    groups: list[Column] = [text_of("by"), text_of("value"), count_of("points"), *ERRORS]
    group_rows = [row for row in rows if row["by"] in (*GROUPS, BOTH) and row["role"] != LEFT_OUT]
    tables.append(table("One node without tensor parallelism, by group", groups, group_rows, section="by"))
    left_out_rows = [row for row in rows if row["role"] == LEFT_OUT]
    if left_out_rows:
        cells = [row for row in left_out_rows if row["by"] == BOTH]
        total = next(row for row in left_out_rows if row["by"] == "tensor") | {"by": "all cells", "value": ""}
        tables.append(table("The same, each cell predicted from points outside of it", groups, [*cells, total]))
    tables.append(table("Constants", [text_of("name"), ("value", _value), ("spread", _spread)], result["constants"]))
    return tables


def _cluster_tables(result: dict[str, Any], spec: ClustersSpec) -> list[Group]:
    """Return the tables of ``validate clusters``: errors by file and regime, and after fits without a group."""
    median, worst, bias = (ERRORS[index] for index in (1, 2, 3))
    columns: list[Column] = [
        ("", lambda row: f"all of {row['file']}" if row["regime"] == "all" else str(row["regime"])),
        count_of("points"), median, worst, bias, _percent("half_width", digits=1, title="+-", missing=""),
        _percent("coverage", digits=0, title="within", missing=""),
    ]  # fmt: skip
    shown = [
        table(
            f"{spec.name}: predicted against measured",
            columns,
            rows=result["summary"],
            note=CLUSTERS_NOTE,
            text_columns=(0,),
            section="file",
        )
    ]
    if result["cross_validation"]:
        columns = [
            text_of("stage"), ("left out", lambda row: f"{row['held_out']} {row['value']}"), count_of("points"), median,
            ERRORS[0], worst, bias,
        ]  # fmt: skip
        fits = result["cross_validation"]
        shown.append(
            table(
                "Constants fitted without a group",
                columns,
                rows=fits,
                note=LEFT_OUT_NOTE,
                text_columns=(0, 1),
                section="stage",
            )
        )
    return shown


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
        ("communication", lambda row: ", ".join(
            format_seconds(row[f"{source}_communication_s"]) for source in ("predicted", "measured"))),
        ("bytes", lambda row: ", ".join(  # once if they are equal
            f"{nbytes:,.0f}" for nbytes in dict.fromkeys((row["predicted_bytes"], row["measured_bytes"])))),
        ("device", lambda row: "-" if row["device_error"] is None else f"{100 * row['device_error']:+.1f}%"),
        ("loss", lambda row: f"{row['loss_difference']:+.1e}" if row["loss_difference"] else "the same"),
    ]  # fmt: skip
    tables = []
    for spec in dict.fromkeys(row["spec"] for row in rows):
        spec_rows = [row for row in rows if row["spec"] == spec]
        tables.append(table(f"{spec}: predicted, then measured", columns, spec_rows, TRAININGS_NOTE))
    errors: list[Column] = [
        text_of("by"), text_of("value"), count_of("points"), *(_percent(name) for name in ("median", "worst")),
        _percent("bias", "+"), _percent("spread"),
    ]  # fmt: skip
    return [*tables, table("Errors of a mean step", errors, result["summary"], section="by")]


def _role(row: Record) -> str:
    """Return the words for a row of errors: on which nodes, with which tensor parallelism."""
    where = "several nodes" if row["role"] == "extrapolation" else "one node"
    tensor = {"1": "tensor parallelism 1", "above 1": "above 1", "all": "all"}[row["value"]]
    return f"{where}, {tensor}" + (" (calibrated on)" if row["role"] == "calibration" else "")


def _repeats(rows: list[Record], spec: StepTimesSpec) -> str:
    """Return the sentence about calibrations on random points; empty if there were none."""
    for row in rows:
        if row["role"] == "repeats":
            return (
                f"Calibrated {spec.repeats} times on {row['calibrated']} random points instead, the others' mean error "
                f"is {row['mape']:.2%} (from {row['mape_best']:.2%} to {row['mape_worst']:.2%})."
            )
    return ""


def _value(row: Record) -> str:
    """Return the value of a fitted constant with its unit."""
    value, name = row["value"], row["name"]
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e9:,.4g} GB/s"
    return f"{value / 1e12:.4g} TFLOP/s" if name.endswith("_flops") else format_seconds(value)


def _spread(row: Record) -> str:
    """Return the relative standard error of a fitted constant, or that the fit ended at its limit."""
    if row["spread"] is None:
        return "-"
    at_ceiling = row["ceiling"] is not None and row["value"] >= row["ceiling"] * (1 - 1e-9)
    return "at its ceiling" if at_ceiling else f"{row['spread']:.1%}"
