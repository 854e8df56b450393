"""CurvaDion's Appendix E: what its flags save, with the sync times that it measured and those of a link alone."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from syncline.costmodel import Call, Exchange, Model, collective_s, curvadion_speedup, curvadion_step_s
from syncline.costmodel.traffic.overlap import PricedCall, exposed_s, gradient_buckets, split_call
from syncline.fields import Positive, Seconds, Spec
from syncline.specs.cluster.spec_fields import LinkField
from syncline.specs.models import ModelField
from syncline.specs.tables.columns import Column, seconds_of, text_of
from syncline.studies.papers.base import PaperTable, paper_table


class MeasuredSync(Spec):
    """A network of a paper's table: what was measured or stated, and the link preset nearest to it."""

    network: LinkField
    sync: Seconds


class CurvaDionTableSpec(PaperTable):
    """CurvaDion's Appendix E: a step's measured parts and each network's sync time, beside alpha-beta alone.

    ``model``: whose gradient it is; then the baseline is told with overlap, too.
    """

    kind: Literal["curvadion-table"]
    compute: Seconds
    optimizer: Seconds
    flag: Seconds
    sync_rate: float = Field(ge=0, le=1)
    payload_bytes: Positive
    model: ModelField | None = None
    workers: int = Field(ge=1, le=10**9)
    networks: tuple[MeasuredSync, ...] = Field(min_length=1)


def sync_rows(spec: CurvaDionTableSpec) -> list[dict[str, Any]]:
    """CurvaDion's projection per network, and the same with the sync time of a ring all-reduce on the link alone.

    ``unexplained_sync_s`` is what the paper's sync time holds beyond latency and bandwidth. Of a baseline with overlap,
    whose gradient travels in buckets during the backward pass, each has its share of the paper's sync time.
    """
    parts = (spec.compute, spec.optimizer, spec.flag)
    rows = []
    for measured in spec.networks:
        link = measured.network
        link_sync_s = float(collective_s("all_reduce", spec.workers, spec.payload_bytes, link))
        step_s = curvadion_step_s(*parts, measured.sync, spec.sync_rate)
        rows.append({
            "method": "curvadion",
            "network": link.name,
            "workers": spec.workers,
            "step_time_s": step_s,
            "baseline_step_time_s": curvadion_step_s(spec.compute, spec.optimizer, 0.0, measured.sync, 1.0),
            "compute_s": spec.compute + spec.optimizer,
            "communication_s": spec.flag + spec.sync_rate * measured.sync,
            "exposed_communication_s": spec.flag + spec.sync_rate * measured.sync,
            "bytes_per_worker": spec.sync_rate * spec.payload_bytes,
            "speedup": curvadion_speedup(*parts, measured.sync, spec.sync_rate),
            "sync_s": measured.sync,
            "alpha_beta_sync_s": link_sync_s,
            "alpha_beta_speedup": curvadion_speedup(*parts, link_sync_s, spec.sync_rate),
            "unexplained_sync_s": measured.sync - link_sync_s,
        })  # fmt: skip
        if spec.model is not None:
            overlapped_s = spec.compute + spec.optimizer + exposed_sync_s(spec.model, spec.compute, measured.sync)
            rows[-1] |= {"overlapped_baseline_step_time_s": overlapped_s, "overlapped_speedup": overlapped_s / step_s}
    return rows


def exposed_sync_s(model: Model, compute_s: float, sync_s: float) -> float:
    """Seconds that data parallelism waits for a gradient whose sync takes so long, in buckets beside its backward pass.

    Args:
        model: whose gradient.
        compute_s: forward and backward.
        sync_s: of the whole gradient; a bucket's is its share.
    """
    buckets = gradient_buckets([tensor.elements for tensor in model.tensors])

    def timed(call: Call) -> list[PricedCall]:
        return [PricedCall(one, sync_s * one.payload_bytes) for one in split_call(call, "ddp", buckets)]

    return float(exposed_s(compute_s, [Exchange(1.0, in_backward=True)], 1, timed))


SYNC_COLUMNS: list[Column] = [
    text_of("network"),
    ("sync\n(paper)", seconds_of("sync_s")),
    ("speedup\n(paper)", lambda row: f"{row['speedup']:.4f}"),
    ("sync\n(alpha-beta)", seconds_of("alpha_beta_sync_s")),
    ("speedup\n(alpha-beta)", lambda row: f"{row['alpha_beta_speedup']:.4f}"),
    ("sync beyond\nalpha-beta", seconds_of("unexplained_sync_s")),
    ("speedup\n(overlap)", lambda row: f"{row['overlapped_speedup']:.4f}" if "overlapped_speedup" in row else "-"),
]

STUDY = paper_table(
    CurvaDionTableSpec,
    sync_rows,
    SYNC_COLUMNS,
    "Overlap: over a baseline whose gradient travels in buckets during the backward pass. ",
)
