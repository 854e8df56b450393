"""Computations without a training: projected clocks in closed form, costs of collectives, pipeline schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, listed, spec_of, warn_lines
from syncline.specs import Experiment, PipelineSpec, ProjectSpec, network_fields, resolve_cluster_options
from syncline.specs.failures import parse_failures
from syncline.specs.prices import parse_prices
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
    batch_tokens: str | float | None = None,
    period: str | int | None = None,
    thresholds: bool | None = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    prices: Any = None,
    extrapolate: bool = False,
    failures: Any = None,
    **fields: Any,
) -> Result:
    """Project the clock of trainings in closed form, without a training.

    If arguments have several values, the result covers every combination.

    Args:
        spec: see `sl.compare`; also a table or figure of a paper that is a projection, or a list of specs.
        model: the model whose tensors are sent, or several: a name, a ``config.json``, a torch module or a function
            that makes one, or any other form that a spec accepts.
        workers: M, the number of workers, or several.
        hardware: the hardware that computes, or several.
        methods: the methods; the first is the baseline of the speedups.
        networks: the networks.
        cluster: the name or file of a cluster, instead of networks; it also provides hardware and workers unless given.
        overlap: overlap of communication and computing: ``none``, ``ddp`` or ``async``.
        algorithm: the algorithm of collectives; or ``auto``, ``gloo`` or ``nccl`` for the choice that each makes.
        sequence: tokens in a training sequence of the models.
        precision: number format of gradients: ``fp32``, ``bf16`` or ``fp16``; by default the format of the hardware's
            peak.
        layout: layout of a replica, or several: ``"tensor=8,pipeline=4"``, or fields.
        batch_tokens: tokens of all workers in a step, rounded to whole sequences; by default between the best batches
            of the published fits.
        period: steps between exchanges, for all methods that exchange now and then; ``"preset"``: each preset's own. By
            default 30 for methods without a period of their own.
        thresholds: add to each row the bandwidths at which its method is worth it, which takes most of the time; by
            default only for at most 1,000 rows.
        tokens: number of tokens of the training: ``140e9``, ``"140B"``; rows then have its time, and its loss if a
            published fit covers the method.
        target_loss: the loss to train to; rows then have the tokens and the time to it.
        prices: a list of prices, see `syncline.costmodel.prices.Prices`: a name, a file, or fields; rows then have the
            cost of the training in money and energy.
        extrapolate: predict losses also outside the range of the published fits; such losses are marked.
        failures: failures of the machines, see `sl.goodput`; rows then have the goodput, and time, money and energy of
            the training include the cost of failures.
        **fields: other fields of the spec, by name or by path.

    Returns:
        The result with a row per method and setting.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.

    >>> import syncline as sl
    >>> result = sl.project(workers=[8, 64], methods=["ddp-adam", "diloco"], networks=["10gbe"])
    >>> [(row["method"], row["workers"], round(row["speedup"], 1)) for row in result.rows]
    [('ddp-adam', 8, 1.0), ('diloco', 8, 5.0), ('ddp-adam', 64, 1.0), ('diloco', 64, 5.4)]
    """
    from syncline.planner.projection import projections

    if not isinstance(spec, Sequence) or isinstance(spec, str):
        chosen_networks = None if networks is None else listed(networks)
        machines = None if hardware is None else listed(hardware)
        chosen_networks, machines, workers = resolve_cluster_options(cluster, chosen_networks, machines, workers)
        loaded = spec_of(
            spec, {"networks": chosen_networks} | fields, ProjectSpec, kind="project", studies_of="project"
        )
        options = projections.Options(
            None if workers is None else listed(workers), listed(model), machines or [],
            listed(methods), overlap, algorithm, sequence, precision, listed(layout), batch_tokens, period,
        )  # fmt: skip
        spec = projections.variants(loaded, options)
        if tokens is not None and "steps" not in fields:
            spec = [projections.with_steps_for(projection, parse_count(tokens, "tokens")) for projection in spec]
        warn_lines(projections.left_out(spec))
    from syncline.planner.projection.training_totals import WholeTraining

    training = WholeTraining(
        None if tokens is None else parse_count(tokens, "tokens"),
        target_loss,
        None if prices is None else parse_prices(prices),
        extrapolate,
        None if failures is None else parse_failures(failures),
    )
    return projection_result(spec, thresholds=thresholds, training=training)


def projection_result(
    specs: Sequence[Experiment],
    rows: Sequence[dict[str, Any]] | None = None,
    thresholds: bool | None = None,
    training: WholeTraining | None = None,
) -> Result:
    """Return the result of projections; compute the rows unless they are given."""
    from syncline.planner.assumptions import projection_assumptions
    from syncline.planner.projection import projections

    def tables() -> list[Group]:
        from syncline.planner.projection.tables import project_tables  # lazy import: JSON needs no rich

        return project_tables(list(all_rows), *specs)

    all_rows = projections.projection_rows(specs, thresholds) if rows is None else rows
    assumptions = [
        record.record()
        for record in projection_assumptions([spec for spec in specs if isinstance(spec, ProjectSpec)], all_rows)
    ]
    if training is not None and not training.is_nothing:
        from syncline.planner.projection.training_totals import with_training

        all_rows = with_training(all_rows, specs, training)
    return Result(
        "project",
        {"spec": specs[0].name, "assumptions": assumptions, "rows": all_rows},
        specs[0],
        tables=tables,
        figure=partial(projections.projection_figure, specs, all_rows),
        asked=lambda: {"specs": [spec.model_dump(mode="json") for spec in specs]},
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
    protocol: str = "eager",
    starts: Sequence[str | float] | None = None,
) -> Result:
    """Compare the algorithms of collectives on networks: by closed form, in lockstep and by events.

    Args:
        workers: P, the number of workers; 8 by default, or one per start.
        nbytes: size of the tensor, ``"619 MiB"`` or a number of bytes; for a gather, the size of each worker's part.
        networks: a network, or several; ``10gbe`` by default.
        cluster: the name or file of a cluster whose networks and number of workers are used, instead of ``networks``.
        collectives: the only collectives to compare: ``"all_reduce"``.
        algorithms: the only algorithms to compare; ``auto``, ``gloo`` and ``nccl`` stand for the choice that each
            makes.
        protocol: the time at which messages start: ``eager`` or ``rendezvous``.
        starts: the time at which each worker enters the collective.

    Returns:
        The result with a row per algorithm; `Result.json` also has ``crossovers`` and ``choices``.

    Raises:
        SpecError: an argument is wrong; the message says which one, and which values are accepted.

    >>> import syncline as sl
    >>> result = sl.collectives(4, "1 MB", "10gbe", collectives="all_reduce", algorithms=["ring", "tree"])
    >>> [(row["algorithm"], row["fastest"]) for row in result.rows]
    [('ring', True), ('tree', False)]
    """
    from syncline.planner import collectives as experiment

    def names(values: Any) -> list[Any] | None:
        return None if values is None else listed(values)

    chosen_networks, _, count = resolve_cluster_options(cluster, names(networks), None, workers)
    question = experiment.CostQuestion.from_options(
        count, nbytes, chosen_networks, names(collectives), starts, names(algorithms), protocol
    )
    return collectives_result(question)


def collectives_result(question: CostQuestion, answer: dict[str, Any] | None = None) -> Result:
    """Return the result of a question about collectives; compute the answer unless it is given."""
    from syncline.planner import collectives as experiment

    answer = experiment.collectives(question) if answer is None else answer

    def tables() -> list[Any]:
        from syncline.planner.collective_tables import collectives_tables

        return collectives_tables(answer["rows"], question)

    fields = dataclasses.asdict(question) | {"networks": [network_fields(network) for network in question.networks]}
    figure = partial(experiment.costs_figure, question)
    return Result("collectives", answer, tables=tables, figure=figure, asked=lambda: {"question": fields})


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
    """Simulate the schedules of a pipeline, without a training: bubbles, delays, memory.

    Args:
        spec: see `sl.compare`.
        schedules: the schedules to simulate.
        stages: K, the number of stages.
        microbatches: M, the number of micro-batches.
        forward: time of a micro-batch's forward pass, or one per stage.
        backward: time of a micro-batch's backward pass, or one per stage.
        networks: the networks between stages; by default links cost no time.
        out: see `sl.compare`.
        exact: see `sl.compare`.
        **fields: other fields of the spec, by name or by path.

    Returns:
        The result with a row per schedule and network.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted; or a schedule cannot finish.

    >>> import syncline as sl
    >>> result = sl.pipeline(schedules=["gpipe", "1f1b"], stages=4, microbatches=8, forward="10 ms", backward="20 ms")
    >>> [(row["schedule"], round(row["makespan_s"], 3), round(row["bubble"], 3)) for row in result.rows]
    [('gpipe', 0.33, 0.273), ('1f1b', 0.33, 0.273)]
    """
    named_fields = {"schedules": schedules, "stages": stages, "microbatches": microbatches, "forward": forward,
             "backward": backward, "networks": networks}  # fmt: skip
    loaded: PipelineSpec = spec_of(spec, named_fields | fields, PipelineSpec, kind="pipeline")
    from syncline.runs import pipeline as experiment

    with place(out, loaded.name) as (path, scratch):
        answer = experiment.pipeline(loaded, path, exact=exact and out is not None, figures=out is not None)
    return pipeline_result(loaded, answer, scratch)


def pipeline_result(spec: PipelineSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of schedules that were simulated."""
    from syncline.runs.pipeline_tables import pipeline_tables

    tables = partial(pipeline_tables, answer["rows"], spec)
    return Result("pipeline", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)
