"""What trains nothing: the clock of a training in closed form, collectives, pipeline schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, listed, spec_of, told
from syncline.specs import Experiment, PipelineSpec, ProjectSpec, asked_of, network_fields
from syncline.specs.failures import failures_of
from syncline.specs.prices import prices_of
from syncline.units import parse_count

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.planner.collectives import CostQuestion
    from syncline.planner.projection.training_totals import WholeTraining


@checked
def project(
    spec: Asked | Sequence[Experiment] = "project-gpt-160m",
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
    thresholds: bool | None = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    prices: Any = None,
    extrapolate: bool = False,
    failures: Any = None,
    **fields: Any,
) -> Result:
    """Project the clock in closed form: no training, an answer at once. Of several of something, every combination.

    Args:
        spec: see `sl.compare`; also a table or figure of a paper that is projected, or specs that are ready.
        model: whose tensors are sent, or several: a name, a ``config.json``, a torch module or what makes one; all
            that a spec takes.
        workers: M, or several.
        hardware: that computes, or several.
        methods: the first is the baseline of the speedups.
        networks: on which networks.
        cluster: in their place, and of hardware and workers where these are not given: a bundled one's name, a file.
        overlap: ``none``, ``ddp`` or ``async``.
        algorithm: of collectives; or ``auto``, ``gloo``, ``nccl`` for their choice.
        sequence: tokens in a training sequence of the models.
        precision: of gradients: ``fp32``, ``bf16`` or ``fp16``; unless given what the hardware's peak is of.
        layout: of a replica, or several: ``"tensor=8,pipeline=4"``, or fields.
        thresholds: whether rows say at which bandwidths a method is worth it, which takes most of the time; unless
            given, where there are at most 1,000 rows.
        tokens: of the whole training: ``140e9``, ``"140B"``; rows say its time, and its loss where a fit covers it.
        target_loss: what it is trained to; rows say the tokens and the time to it.
        prices: a list of prices, see `syncline.costmodel.prices.Prices`: a name, a file, its fields; rows say what the
            training costs, in money and energy.
        extrapolate: whether losses are told beyond what published fits have seen, marked as such.
        failures: of the machines, see `sl.goodput`; rows say the goodput, and the training's time, money and energy
            are with what failures cost.
        **fields: others of the spec, by name or by path.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.

    >>> import syncline as sl
    >>> result = sl.project(workers=[8, 64], methods=["ddp-adam", "diloco"], networks=["10gbe"])
    >>> [(row["method"], row["workers"], round(row["speedup"], 1)) for row in result.rows]
    [('ddp-adam', 8, 1.0), ('diloco', 8, 5.0), ('ddp-adam', 64, 1.0), ('diloco', 64, 5.4)]
    """
    from syncline.planner.projection import projections

    if not isinstance(spec, Sequence) or isinstance(spec, str):
        several = None if networks is None else listed(networks)
        machines = None if hardware is None else listed(hardware)
        several, machines, workers = asked_of(cluster, several, machines, workers)
        loaded = spec_of(spec, {"networks": several} | fields, ProjectSpec, kind="project", studies_of="project")
        options = projections.Options(
            None if workers is None else listed(workers), listed(model), machines or [],
            listed(methods), overlap, algorithm, sequence, precision, listed(layout),
        )  # fmt: skip
        spec = projections.variants(loaded, options)
        told(projections.left_out(spec))
    from syncline.planner.projection.training_totals import WholeTraining

    asked = WholeTraining(
        None if tokens is None else parse_count(tokens, "tokens"),
        target_loss,
        None if prices is None else prices_of(prices),
        extrapolate,
        None if failures is None else failures_of(failures),
    )
    return projected(spec, thresholds=thresholds, asked=asked)


def projected(
    specs: Sequence[Experiment],
    rows: Sequence[dict[str, Any]] | None = None,
    thresholds: bool | None = None,
    asked: WholeTraining | None = None,
) -> Result:
    """The result of projections, whose rows may be there already."""
    from syncline.planner.projection import projections

    def tables() -> list[Group]:
        from syncline.planner.projection.tables import project_tables  # only here: JSON needs no rich

        return project_tables(list(all_rows), *specs)

    all_rows = projections.projection_rows(specs, thresholds) if rows is None else rows
    if asked is not None and not asked.is_nothing:
        from syncline.planner.projection.training_totals import with_training

        all_rows = with_training(all_rows, specs, asked)
    return Result(
        "project",
        {"spec": specs[0].name, "rows": all_rows},
        specs[0],
        tables=tables,
        figure=partial(projections.projection_figure, specs, all_rows),
        asked=lambda: {"specs": [one.model_dump(mode="json") for one in specs]},
    )


@checked
def collectives(
    workers: int | None = None,
    nbytes: str | float = "619 MiB",
    networks: Any = None,
    *,
    cluster: Any = None,
    collectives: str | Iterable[str] | None = None,
    algorithms: str | Iterable[str] | None = None,
    rule: str = "eager",
    starts: Sequence[str | float] | None = None,
) -> Result:
    """Compare the algorithms of collectives on networks: closed form, lockstep and events.

    Args:
        workers: P; 8 unless given, or one per start.
        nbytes: of the tensor; of a gather, what each worker gives: ``"619 MiB"``, or bytes.
        networks: a network, or several; ``10gbe`` unless given.
        cluster: in their place, and for its number of workers: a bundled one's name, a file.
        collectives: only these: ``"all_reduce"``.
        algorithms: only these; ``auto``, ``gloo`` and ``nccl`` for their choice.
        rule: when messages start: ``eager`` or ``rendezvous``.
        starts: when each worker enters.

    Returns:
        Beside the rows, ``crossovers`` and ``choices`` in `Result.json`.

    Raises:
        SpecError: what is wrong, where, and what would be accepted.

    >>> import syncline as sl
    >>> result = sl.collectives(4, "1 MB", "10gbe", collectives="all_reduce", algorithms=["ring", "tree"])
    >>> [(row["algorithm"], row["fastest"]) for row in result.rows]
    [('ring', True), ('tree', False)]
    """
    from syncline.planner import collectives as experiment

    def names(given: Any) -> list[Any] | None:
        return None if given is None else listed(given)

    several, _, count = asked_of(cluster, names(networks), None, workers)
    question = experiment.CostQuestion.of(count, nbytes, several, names(collectives), starts, names(algorithms), rule)
    return priced(question)


def priced(question: CostQuestion, answer: dict[str, Any] | None = None) -> Result:
    """The result of a question about collectives, whose answer may be there already."""
    from syncline.planner import collectives as experiment

    answer = experiment.collectives(question) if answer is None else answer

    def tables() -> list[Any]:
        from syncline.planner.collective_tables import collectives_tables

        return collectives_tables(answer["rows"], question)

    asked = dataclasses.asdict(question) | {"networks": [network_fields(one) for one in question.networks]}
    figure = partial(experiment.costs_figure, question)
    return Result("collectives", answer, tables=tables, figure=figure, asked=lambda: {"question": asked})


@checked
def pipeline(
    spec: Asked = "pipeline-schedules",
    *,
    schedules: Any = None,
    stages: int | None = None,
    microbatches: int | None = None,
    forward: Any = None,
    backward: Any = None,
    networks: Any = None,
    out: str | Path | None = None,
    exact: bool = True,
    **fields: Any,
) -> Result:
    """Play the schedules of a pipeline: bubbles, delays, memory. Nothing is trained.

    Args:
        spec: see `sl.compare`.
        schedules: which.
        stages: K.
        microbatches: M.
        forward: time of a micro-batch, or one per stage.
        backward: likewise.
        networks: on which networks; free links without.
        out: see `sl.compare`.
        exact: see `sl.compare`.
        **fields: others of the spec, by name or by path.

    Raises:
        SynclineError: what is wrong, where, and what would be accepted; or a schedule that cannot finish.

    >>> import syncline as sl
    >>> result = sl.pipeline(schedules=["gpipe", "1f1b"], stages=4, microbatches=8, forward="10 ms", backward="20 ms")
    >>> [(row["schedule"], round(row["makespan_s"], 3), round(row["bubble"], 3)) for row in result.rows]
    [('gpipe', 0.33, 0.273), ('1f1b', 0.33, 0.273)]
    """
    given = {"schedules": schedules, "stages": stages, "microbatches": microbatches, "forward": forward,
             "backward": backward, "networks": networks}  # fmt: skip
    loaded: PipelineSpec = spec_of(spec, given | fields, PipelineSpec, kind="pipeline")
    from syncline.runs import pipeline as experiment

    with place(out, loaded.name) as (path, scratch):
        answer = experiment.pipeline(loaded, path, exact=exact and out is not None, figures=out is not None)
    return played(loaded, answer, scratch)


def played(spec: PipelineSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """The result of schedules that were played."""
    from syncline.runs.pipeline_tables import pipeline_tables

    tables = partial(pipeline_tables, answer["rows"], spec)
    return Result("pipeline", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)
