"""Inverse projections: the setting that meets a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, listed, spec_of, warn_lines
from syncline.specs import Experiment, ProjectSpec, resolve_cluster_options

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.planner.solving.question import InverseProblem

DEFAULT = "project-gpt-160m"


@checked
def solve(
    variable: str,
    spec: Asked | Sequence[Experiment] = DEFAULT,
    *,
    model: Any = None,
    workers: int | Iterable[int] | None = None,
    hardware: Any = None,
    methods: Any = None,
    networks: Any = None,
    cluster: Any = None,
    overlap: str | None = None,
    algorithm: str | None = None,
    sequence: int | None = None,
    precision: str | None = None,
    layout: Any = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    prices: Any = None,
    extrapolate: bool = False,
    deadline: str | float | None = None,
    budget: str | float | None = None,
    step_time: str | float | None = None,
    utilisation: str | float | None = None,
    compute_utilisation: str | float | None = None,
    exposed: str | float | None = None,
    speedup: str | float | None = None,
    loss_penalty: str | float | None = None,
    over: str | None = None,
    level: str | int | None = None,
    among: Any = None,
    most: int | None = None,
    batch_tokens: str | float | None = None,
    best: bool = False,
    fits: bool | None = None,
    **fields: Any,
) -> Result:
    """Solve for the setting that meets a target: bandwidth, latency, period, delay, workers, or network.

    Args:
        variable: the variable to solve for: ``bandwidth``, ``latency``, ``period``, ``delay``, ``workers`` or
            ``network``.
        spec: see `sl.project`, as for the arguments up to ``extrapolate``.
        model: the model whose tensors are sent, or several.
        workers: M, the number of workers, or several.
        hardware: the hardware that computes, or several.
        methods: the methods; by default ``ddp-adam``, ``diloco`` and ``streaming-diloco``, or those of another spec.
        networks: the networks.
        cluster: the name or file of a cluster, instead of networks; it also provides hardware and workers unless given.
        overlap: overlap of communication and computing: ``none``, ``ddp`` or ``async``.
        algorithm: the algorithm of collectives.
        sequence: tokens in a training sequence of the models.
        precision: number format of gradients.
        layout: layout of a replica, or several.
        tokens: number of tokens of the training: ``"140B"``.
        target_loss: the loss to train to; a published fit gives the tokens that it takes.
        prices: a list of prices.
        extrapolate: predict losses also outside the range of the published fits.
        deadline: target: longest time of the training, ``"30d"``.
        budget: target: largest cost of the training, ``"50k"``, by the prices.
        step_time: target: longest mean step, ``"2 s"``.
        utilisation: target: least share of the hardware's peak, ``0.4``.
        compute_utilisation: target: least share of a step in which a worker computes, ``0.8``.
        exposed: target: largest share of a step that workers wait for the network, ``0.05`` or ``"5%"``.
        speedup: target: least speedup over a baseline.
        loss_penalty: target: largest excess of the predicted loss over data parallelism's, ``"1%"``.
        over: the baseline of a speedup; ``ddp-adam`` by default.
        level: level of a hierarchical network whose link, or whose number of units, is the variable; by default the
            outermost link, or all levels from the inside out.
        among: the candidates for a network: names of links, separated by commas, or links; a mapping has the monthly
            cost of each.
        most: largest number of workers to try; 16 times the present number by default.
        batch_tokens: tokens of all workers in a step, instead of the spec's tokens per worker.
        best: let any plan of `sl.advise` meet the deadline, instead of the given layout, and instead of the methods
            unless they are given.
        fits: target: a worker's data fits into its memory; by default only if the variable is ``workers``.
        **fields: other fields of the spec, by name or by path.

    Returns:
        The result with a row per method, best first: ``holds`` says where the target is met, ``value`` is the solution,
        ``low`` and ``high`` are the solutions at the bounds of the clock. Each row also has `sl.project`'s row there.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.

    >>> import syncline as sl
    >>> asked = {"model": "llama-7b", "cluster": "two-sites-a100", "methods": "diloco", "tokens": "140B"}
    >>> (row,) = sl.solve("bandwidth", **asked, deadline="30d").rows
    >>> f"{row['holds']} {8 * row['value'] / 1e6:.0f} Mbit/s, {8 * row['low'] / 1e6:.0f} to {8 * row['high'] / 1e6:.0f}"
    'from 236 Mbit/s, 224 to 372'
    """
    from syncline.planner.projection.projections import Options, left_out
    from syncline.planner.solving.inputs import InverseInputs

    inputs = InverseInputs(
        tokens, target_loss, prices, extrapolate, deadline, budget, step_time, utilisation, compute_utilisation,
        exposed, speedup, loss_penalty, over, level, among, most, batch_tokens, best, fits,
    )  # fmt: skip
    inputs.targets()
    specs: Sequence[Experiment]
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        specs = spec
    else:
        chosen_networks = None if networks is None else listed(networks)
        machines = None if hardware is None else listed(hardware)
        chosen_networks, machines, workers = resolve_cluster_options(cluster, chosen_networks, machines, workers)
        loaded = spec_of(spec, {"networks": chosen_networks} | fields, ProjectSpec, kind="project")
        options = Options(
            None if workers is None else listed(workers), listed(model), machines or [],
            listed(methods), overlap, algorithm, sequence, precision, listed(layout),
        )  # fmt: skip
        specs = inputs.specs(loaded, options, own_methods=spec != DEFAULT)
        warn_lines(left_out(specs))
    question = inputs.question(variable, specs, own_methods=methods is not None)
    return solve_result(question)


def solve_result(question: InverseProblem) -> Result:
    """Return the result of a question whose arguments are complete."""
    from syncline.planner.solving.assumptions import solve_assumptions
    from syncline.planner.solving.solver import solve_rows

    def tables() -> list[Group]:
        from syncline.planner.solving.tables import solve_tables  # lazy import: JSON needs no rich

        return solve_tables(rows, question)

    rows = solve_rows(question)
    assumptions = [assumption.record() for assumption in solve_assumptions(rows, question)]
    answer = {"sought": question.variable, "assumptions": assumptions, "rows": rows}
    return Result("solve", answer, question.specs[0], tables=tables)
