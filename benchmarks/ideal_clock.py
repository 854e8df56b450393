"""The idealised clock of Charles et al., Appendix A, with which the paper and public calculators time DiLoCo.

Computing takes ``6 N D / (R Q)`` seconds for N parameters and D tokens on R chips of Q FLOP/s. An all-reduce of S bytes
over P nodes of bandwidth W takes ``2 S / W (1 - 1/P) + latency``. Nothing overlaps. In contrast to the cost model of
this package, the clock has no topology, one latency per collective, no update of the optimizer and no buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.errors import SpecError


@dataclass(frozen=True)
class IdealClock:
    """The inputs and times of the idealised clock.

    Args:
        parameters: N, parameters of the model.
        tokens: D, tokens of the whole training.
        batch_tokens: B, tokens of a step of all replicas.
        replicas: M, each in a separate data centre; 1 for data parallelism.
        chips: R, chips of all replicas.
        flops: Q, achieved FLOP/s of a chip.
        inner_bandwidth_bytes_per_s: bandwidth of a chip inside a data centre.
        inner_latency_s: latency of an all-reduce inside a data centre.
        outer_bandwidth_bytes_per_s: bandwidth of a chip between data centres.
        outer_latency_s: latency of an all-reduce between data centres.
        bytes_per_parameter: bytes of a parameter in an all-reduce; 2 for bf16.

    Raises:
        SpecError: a number that is not positive, or more replicas than chips.

    Source: Charles et al. (2025), Appendix A.
    """

    parameters: float
    tokens: float
    batch_tokens: float
    replicas: int
    chips: int
    flops: float
    inner_bandwidth_bytes_per_s: float
    inner_latency_s: float
    outer_bandwidth_bytes_per_s: float
    outer_latency_s: float
    bytes_per_parameter: float = 2.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("latency_s"):
                if not value >= 0:
                    raise SpecError(name, value, "a time that is not negative")
            elif not 0 < value < float("inf"):
                raise SpecError(name, value, "a positive number")
        if self.replicas > self.chips:
            raise SpecError("replicas", self.replicas, f"at most one per chip, {self.chips}")

    @property
    def steps(self) -> float:
        """Return T, the number of steps: ``D / B``."""
        return self.tokens / self.batch_tokens

    @property
    def compute_s(self) -> float:
        """Return the computing seconds of the whole training."""
        return 6 * self.parameters * self.tokens / (self.chips * self.flops)

    @property
    def inner_s(self) -> float:
        """Return the seconds of one all-reduce inside a replica."""
        return self._all_reduce_s(self.chips / self.replicas, self.inner_bandwidth_bytes_per_s, self.inner_latency_s)

    @property
    def outer_s(self) -> float:
        """Return the seconds of one all-reduce among all chips."""
        return self._all_reduce_s(self.chips, self.outer_bandwidth_bytes_per_s, self.outer_latency_s)

    def _all_reduce_s(self, nodes: float, bandwidth_bytes_per_s: float, latency_s: float) -> float:
        """Return the seconds of an all-reduce of all parameters."""
        nbytes = self.parameters * self.bytes_per_parameter
        return 2 * nbytes / bandwidth_bytes_per_s * (1 - 1 / nodes) + latency_s

    def ddp_s(self) -> float:
        """Return the seconds of data parallelism, with an all-reduce among all chips in every step."""
        return self.compute_s + self.outer_s * self.steps

    def diloco_s(self, period: float) -> float:
        """Return the seconds of DiLoCo, with a replica in each data centre.

        A single replica is data parallelism with an outer step.

        Args:
            period: H, steps between two outer steps; positive.
        """
        if not period > 0:
            raise SpecError("period", period, "a positive number of steps")
        inner = self.outer_s if self.replicas == 1 else self.inner_s
        return self.compute_s + (inner + self.outer_s / period) * self.steps
