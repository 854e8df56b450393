"""What meets a target: the question of a projection the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, listed, spec_of, told
from syncline.specs import Experiment, ProjectSpec, asked_of

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.planner.solving.question import Inverse

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
    """What meets a target: least bandwidth, longest latency or period, fewest workers, cheapest network.

    Args:
        variable: ``bandwidth``, ``latency``, ``period``, ``workers`` or ``network``.
        spec: see `sl.project`, as are the arguments up to ``extrapolate``.
        model: whose tensors are sent, or several.
        workers: M, or several.
        hardware: that computes, or several.
        methods: ``ddp-adam``, ``diloco`` and ``streaming-diloco`` unless given, or a spec of one's own has others.
        networks: on which networks.
        cluster: in their place, and of hardware and workers where these are not given.
        overlap: ``none``, ``ddp`` or ``async``.
        algorithm: of collectives.
        sequence: tokens in a training sequence of the models.
        precision: of gradients.
        layout: of a replica, or several.
        tokens: of the whole training: ``"140B"``.
        target_loss: what it is trained to, which takes tokens by a published fit.
        prices: a list of prices.
        extrapolate: whether losses are told beyond what fits have seen.
        deadline: target: most time of the whole training, ``"30d"``.
        budget: target: most money for it, ``"50k"``, by the prices.
        step_time: target: longest mean step, ``"2 s"``.
        utilisation: target: least part of the hardware's peak, ``0.4``.
        compute_utilisation: target: least part of a step in which something is computed, ``0.8``.
        exposed: target: most of a step that workers wait for the network, ``0.05`` or ``"5%"``.
        speedup: target: how many times faster than a baseline.
        loss_penalty: target: by how much the predicted loss may be above data parallelism's, ``"1%"``.
        over: the baseline of a speedup; ``ddp-adam`` unless given.
        level: of a network of several: whose link is another, or of whose units there are more; the outermost link, or
            all levels from the inside out, unless given.
        among: of a network: links by name, with commas between, or links; a mapping has what a month of each costs.
        most: workers that are tried; 16 times as many as there are unless given.
        batch_tokens: of a step of all workers together, in place of the spec's tokens per worker.
        best: whether any plan of `sl.advise` may meet a deadline, in place of the layout, and of the methods unless
            they are given.
        fits: target: what a worker keeps fits into its memory; of workers unless told otherwise.
        **fields: others of the spec, by name or by path.

    Returns:
        A row per method, best first: ``holds`` says where the target is met, ``value`` the one that is asked for,
        ``low`` and ``high`` what it is if the clock is at its bounds; and `sl.project`'s row there.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.

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
        several = None if networks is None else listed(networks)
        machines = None if hardware is None else listed(hardware)
        several, machines, workers = asked_of(cluster, several, machines, workers)
        loaded = spec_of(spec, {"networks": several} | fields, ProjectSpec, kind="project")
        options = Options(
            None if workers is None else listed(workers), listed(model), machines or [],
            listed(methods), overlap, algorithm, sequence, precision, listed(layout),
        )  # fmt: skip
        specs = inputs.specs(loaded, options, own_methods=spec != DEFAULT)
        told(left_out(specs))
    question = inputs.question(variable, specs, own_methods=methods is not None)
    return answered(question)


def answered(question: Inverse) -> Result:
    """The result of a question that is ready."""
    from syncline.planner.solving.solver import solved

    def tables() -> list[Group]:
        from syncline.planner.solving.tables import solve_tables  # only here: JSON needs no rich

        return solve_tables(rows, question)

    rows = solved(question)
    return Result("solve", {"sought": question.variable, "rows": rows}, question.specs[0], tables=tables)
