"""CurvaDion's Appendix E: the speedup of its flags, with measured sync times and with those of a link alone."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from replication.studies.papers.base import PaperTable, paper_table
from replication.theory.wall_clock import curvadion_speedup, curvadion_step_s
from syncline.costmodel import Call, Exchange, Model, collective_s
from syncline.costmodel.traffic.overlap import gradient_buckets, split_call
from syncline.costmodel.traffic.step_time import PricedCall, worker_after
from syncline.fields import Positive, Seconds, Spec
from syncline.specs import ModelField
from syncline.specs.cluster.clusters import LinkField


class MeasuredSync(Spec):
    """A network of a paper's table: the measured or stated sync time, and the link preset nearest to the network."""

    network: LinkField
    sync: Seconds


class CurvaDionTableSpec(PaperTable):
    """CurvaDion's Appendix E: a step's measured parts and each network's sync time, beside alpha-beta alone.

    ``model`` is the model whose gradient is averaged; with it the rows also have a baseline with overlap.
    """

    kind: Literal["curvadion-table"]
    compute: Seconds
    optimizer: Seconds
    trigger_time: Seconds
    sync_rate: float = Field(ge=0, le=1)
    payload_bytes: Positive
    model: ModelField | None = None
    workers: int = Field(ge=1, le=10**9)
    networks: tuple[MeasuredSync, ...] = Field(min_length=1)


def sync_rows(spec: CurvaDionTableSpec) -> list[dict[str, Any]]:
    """Return CurvaDion's projection per network, with the paper's sync time and with that of a ring all-reduce.

    ``unexplained_sync_s`` is the part of the paper's sync time beyond latency and bandwidth of the link. A baseline
    with overlap sends its gradient in buckets during the backward pass; each bucket takes its share of the paper's
    sync time.
    """
    parts = (spec.compute, spec.optimizer, spec.trigger_time)
    rows = []
    for measured in spec.networks:
        link = measured.network
        link_sync_s = float(collective_s("all_reduce", spec.workers, spec.payload_bytes, link))
        step_s = curvadion_step_s(*parts, measured.sync, spec.sync_rate)
        rows.append({
            "method": "curvadion", "network": link.name, "workers": spec.workers, "step_time_s": step_s,
            "baseline_step_time_s": curvadion_step_s(spec.compute, spec.optimizer, 0.0, measured.sync, 1.0),
            "compute_s": spec.compute + spec.optimizer,
            "communication_s": spec.trigger_time + spec.sync_rate * measured.sync,
            "exposed_communication_s": spec.trigger_time + spec.sync_rate * measured.sync,
            "bytes_per_worker": spec.sync_rate * spec.payload_bytes,
            "speedup": curvadion_speedup(*parts, measured.sync, spec.sync_rate), "sync_s": measured.sync,
            "alpha_beta_sync_s": link_sync_s,
            "alpha_beta_speedup": curvadion_speedup(*parts, link_sync_s, spec.sync_rate),
            "unexplained_sync_s": measured.sync - link_sync_s,
        })  # fmt: skip
        if spec.model is not None:
            overlapped_s = spec.compute + spec.optimizer + exposed_sync_s(spec.model, spec.compute, measured.sync)
            rows[-1] |= {"overlapped_baseline_step_time_s": overlapped_s, "overlapped_speedup": overlapped_s / step_s}
    return rows


def exposed_sync_s(model: Model, compute_s: float, sync_s: float) -> float:
    """Return the seconds that data parallelism waits for a gradient sent in buckets during the backward pass.

    Args:
        model: the model whose gradient is averaged.
        compute_s: seconds of the forward and backward pass.
        sync_s: seconds to average the whole gradient; a bucket takes its share of them.
    """
    buckets = gradient_buckets([tensor.elements for tensor in model.tensors])

    def priced_calls(call: Call) -> list[PricedCall]:
        return [PricedCall(bucket, sync_s * bucket.payload_bytes) for bucket in split_call(call, "ddp", buckets)]

    return float(worker_after(compute_s, [Exchange(1.0, in_backward=True)], 1, priced_calls).exposed_s)


SYNC_COLUMNS = "network sync_s paper_speedup alpha_beta_sync_s alpha_beta_speedup unexplained_sync_s overlapped_speedup"

STUDY = paper_table(
    CurvaDionTableSpec, sync_rows, SYNC_COLUMNS,
    "Overlap: over a baseline whose gradient travels in buckets during the backward pass. ",
    values={"paper_speedup": lambda row: row["speedup"]},
)  # fmt: skip
