"""Data parallelism with Adam in a rotated basis or a subspace: Basis Rotation, SOAP, EShampoo, GaLore, LDAdam."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import TensorShape, dion_rank
from syncline.costmodel.compute import update_work
from syncline.costmodel.compute.operations import memory
from syncline.costmodel.compute.tensors import matches_patterns
from syncline.fields import Period, Positive, Rate, refusal
from syncline.methods.ddp import DataParallelBase
from syncline.methods.parts.method_spec import Presets, Tensors, elements, tensors_of
from syncline.methods.registry import register

Allocation = Literal["uniform", "stage-aware", "reversed"]


class RotationBase(DataParallelBase):
    """The base of methods that update matrices by Adam in a rotated basis, renewed every ``frequency`` steps.

    Args:
        frequency: number of steps between renewals of the bases; None for never.
        allocation: how the stages of a pipeline share the renewals: ``uniform``; ``stage-aware``, more for stages with
            a longer gradient delay; ``reversed``, fewer.
        estimate: how a basis is renewed: ``power``, by one power iteration and a QR decomposition; ``exact``, by
            eigenvectors.
        layers: patterns of parameter names; only matching matrices are rotated. By default, all matrices are.
        beta1: decay rate of the first moment.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
    """

    frequency: Period | None = 10
    allocation: Allocation = "uniform"
    estimate: Literal["power", "exact"] = "power"
    layers: tuple[str, ...] = ()
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Positive = 1e-8

    @model_validator(mode="after")
    def _check_allocation_has_renewals(self) -> Self:
        """Raise an error for ``allocation``, which says which basis is renewed when, if no basis is renewed."""
        if self.frequency is None and self.allocation != "uniform":
            raise refusal("allocation", self.allocation, "uniform without a frequency, as no basis is renewed")
        return self

    @property
    @abstractmethod
    def _rotation_arguments(self) -> dict[str, Any]:
        """Return the arguments of `optim.RotatedAdam` in which the methods differ, by name.

        They include ``source``, ``geometry`` and ``momentum``.
        """

    def _rule(self) -> optim.MatrixSplit:
        """Return the update rule of this method with the fields of its spec."""
        names = ("frequency", "estimate", "layers", "beta1", "beta2", "eps")
        return optim.basis_rotation(**self._rotation_arguments, **{name: getattr(self, name) for name in names})

    @property
    @override
    def name(self) -> str:
        """Return the label, or the kind and the settings that differ from the defaults."""
        if self.label:
            return self.label
        spec_fields = type(self).model_fields
        words = [self.kind]
        for field in ("basis_source", "geometry"):
            if field in spec_fields:
                words.append(getattr(self, field).removesuffix("lateral"))  # unilateral or bilateral: uni or bi
        if self.frequency != spec_fields["frequency"].default:
            words.append("frozen" if self.frequency is None else f"every-{self.frequency}")
        for field in ("allocation", "estimate"):
            if getattr(self, field) != spec_fields[field].default:
                words.append(getattr(self, field))
        return "-".join(words) + self._suffix

    def _is_rotated(self, tensor: TensorShape) -> bool:
        """Return whether a parameter is a matrix that the method rotates."""
        return tensor.is_matrix and matches_patterns(tensor.name, self.layers)

    def _rotated_sides(self, model: Tensors) -> list[tuple[int, int]]:
        """Return the numbers of rows and columns of each rotated matrix."""
        return [tensor.sides for tensor in tensors_of(model) if self._is_rotated(tensor)]

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of moments, bases, covariances, and of a compressor's errors."""
        tensors = tensors_of(model)
        source, geometry = self._rotation_arguments["source"], self._rotation_arguments["geometry"]
        basis_elements = sum(
            update_work.rotation_elements(m, n, source, geometry) for m, n in self._rotated_sides(model)
        )
        return 2 * elements(tensors) + basis_elements + self._compressor_elements(tensors, reference=False)

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> update_work.UpdateWork:
        """Return the operations of rotations, of renewals of bases, and of Adam for other parameters."""
        work = self._step_work(tensors)
        arguments = self._rotation_arguments
        options = {name: arguments[name] for name in ("source", "geometry", "momentum")}
        for (rows, columns), count in Counter(self._rotated_sides(tensors)).items():
            work += update_work.repeated(
                update_work.rotation_work(rows, columns, estimate=self.estimate, **options), count
            )
        return work + update_work.UpdateWork(update_work.ADAM.on(t for t in tensors if not self._is_rotated(t)))

    @override
    def _renewal_period(self, delay: int, stages: int) -> float | None:
        """Return the number of steps between renewals of bases in a stage with this gradient delay."""
        if self.allocation == "uniform" or stages == 1:  # a single stage has all renewals
            return self.frequency
        interval_by_delay = self._interval_by_delay(range(stages))  # the stages have the delays 0 to stages - 1
        return interval_by_delay[delay]

    def _interval_by_delay(self, delays: Sequence[int]) -> dict[int, int | None]:
        """Return the number of steps between renewals of bases for stages with these gradient delays, by delay."""
        assert self.frequency is not None
        is_reversed = self.allocation == "reversed"
        intervals = update_work.stage_renewal_intervals(list(delays), self.frequency, reversed_order=is_reversed)
        return dict(zip(delays, intervals, strict=True))

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        """Build the optimizer; ``allocation`` gives each pipeline stage its number of steps between renewals of bases.

        A parameter group of a stage has the key ``delay``, the number of steps by which its gradients are late. The
        allocation depends on the delays of all stages; a process that has only one stage passes them in the group's key
        ``delays``.
        """
        groups = optim.groups.as_list(params)
        # Only groups have delays, not a plain list of parameters.
        if self.allocation != "uniform" and groups and isinstance(groups[0], Mapping):
            delays: set[int] = set()
            for group in groups:
                delays |= {group.get("delay", 0), *group.get("delays", ())}
            interval_by_delay = self._interval_by_delay(sorted(delays))
            groups = [{**group, "frequency": interval_by_delay[group.get("delay", 0)]} for group in groups]
        return self._build_optimizer(groups, self._rule(), **options)


@register
class BasisRotationSpec(RotationBase):
    """Basis Rotation: data parallelism with Adam in a rotated basis, which counteracts delayed gradients in pipelines.

    With ``refresh: after`` and ``momentum: rotated`` it is SOAP.

    Args:
        basis_source: matrix whose eigenvectors are the basis: ``2nd``, the moving average of products of gradients;
            ``1st``, products of the momentum.
        geometry: ``bilateral``, rows and columns are rotated; ``unilateral``, only the smaller side.
        refresh: whether a basis is renewed ``before`` or ``after`` the update of a step.
        momentum: whether the momentum is kept in the ``original`` basis or in the ``rotated`` one.
        covariance_beta: decay rate of the moving averages of products of gradients; by default ``beta2``.
    """

    source = "Basis Rotation, Algorithms 1 and 2"

    presets: ClassVar[Presets] = {
        "basis-rotation": {"lr": 0.003},
        "basis-rotation-2nd-uni": {"geometry": "unilateral", "lr": 0.003},
        "basis-rotation-1st-bi": {"basis_source": "1st", "lr": 0.003},
        "basis-rotation-1st-uni": {"basis_source": "1st", "geometry": "unilateral", "lr": 0.003},
    }

    kind: Literal["basis-rotation"] = "basis-rotation"
    basis_source: Literal["1st", "2nd"] = "2nd"
    geometry: Literal["unilateral", "bilateral"] = "bilateral"
    refresh: Literal["before", "after"] = "before"
    momentum: Literal["original", "rotated"] = "original"
    covariance_beta: Rate | None = None

    @model_validator(mode="after")
    def _check_averages(self) -> Self:
        """Raise an error for ``covariance_beta`` without averages of products of gradients."""
        if self.basis_source == "1st" and self.covariance_beta is not None:
            raise refusal("covariance_beta", self.covariance_beta, "none with basis_source 1st, which averages nothing")
        return self

    @property
    @override
    def _rotation_arguments(self) -> dict[str, Any]:
        names = ("geometry", "refresh", "momentum", "covariance_beta")
        return {"source": self.basis_source, **{name: getattr(self, name) for name in names}}


@register
class SOAPSpec(RotationBase):
    """SOAP: data parallelism with Adam in the eigenvectors of Shampoo's covariances, renewed after updates.

    The bases of both sides are renewed after a step, and the momentum stays in their coordinates.

    Args:
        covariance_beta: decay rate of the moving averages of products of gradients; by default ``beta2``.

    Source: N. Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam" (2025), and its public code.
    """

    source = "SOAP (Vyas et al., 2025)"

    presets: ClassVar[Presets] = {"soap": {"lr": 0.003}}

    kind: Literal["soap"] = "soap"
    beta1: Rate = 0.95
    beta2: Rate = 0.95
    covariance_beta: Rate | None = None

    @property
    @override
    def _rotation_arguments(self) -> dict[str, Any]:
        renewal = {"refresh": "after", "momentum": "rotated"}
        return {"source": "2nd", "geometry": "bilateral", **renewal, "covariance_beta": self.covariance_beta}


@register
class EShampooSpec(RotationBase):
    """EShampoo: data parallelism with eigenvalue-corrected Shampoo, whose eigenvectors are exact when renewed.

    Args:
        covariance_beta: decay rate of the moving averages of products of gradients; by default ``beta2``.
        tolerance: a basis is renewed only if the off-diagonal share of the rotated covariance is above this value; by
            default, it is always renewed.

    Source: R. Eschenhagen et al., "Purifying Shampoo: Investigating Shampoo's Heuristics by Decomposing its
    Preconditioner" (2025), eigenvalue-corrected Shampoo, and its public code.
    """

    source = "EShampoo (Eschenhagen et al., 2025)"

    presets: ClassVar[Presets] = {"eshampoo": {"lr": 0.003}}

    kind: Literal["eshampoo"] = "eshampoo"
    estimate: Literal["exact", "power"] = "exact"
    covariance_beta: Rate | None = None
    tolerance: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    @override
    def _rotation_arguments(self) -> dict[str, Any]:
        renewal = {"carry": False, "tolerance": self.tolerance, "covariance_beta": self.covariance_beta}
        return {"source": "2nd", "geometry": "bilateral", "momentum": "original", **renewal}


@register
class GaLoreSpec(RotationBase):
    """GaLore at full rank: data parallelism with Adam in the singular vectors of one gradient, on the smaller side.

    Both moments are in rotated coordinates, and do not change when the basis changes.

    Source: J. Zhao et al., "GaLore" (2024), Algorithm 2, with full rank and a scale of 1.
    """

    source = "GaLore (Zhao et al., 2024), full rank"

    presets: ClassVar[Presets] = {"galore": {"lr": 0.003}}

    kind: Literal["galore"] = "galore"
    frequency: Period | None = 200
    estimate: Literal["exact", "power"] = "exact"

    @property
    @override
    def _rotation_arguments(self) -> dict[str, Any]:
        return {"source": "gradient", "geometry": "unilateral", "momentum": "rotated", "carry": False}


PROJECTION_WORK = update_work.ElementwiseWork(kernel_bytes=88, kernels=9)
"""LDAdam's errors, moments and norms of matrices that it projects."""


@register
class LDAdamSpec(DataParallelBase):
    """LDAdam: data parallelism with Adam in a subspace of each matrix, which changes in every step.

    Workers send ``4 N`` bytes per step for N parameters in fp32, by one all-reduce. For an m by n matrix at rank r a
    worker keeps ``2 r max(m, n) + r min(m, n)`` elements, and ``m n`` more with error feedback; for other parameters,
    Adam's moments.

    Args:
        rank_fraction: rank of the subspace as a share of the matrix's smaller side.
        rho: share of the momentum in the power iteration that moves the subspace.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        error_feedback: whether the parts of gradients and moments outside the subspace are added to the next gradient.
        layers: patterns of parameter names; only matching matrices are projected. By default, all matrices are.

    Source: LDAdam (Robert et al., 2025), Algorithms 1 and 2.
    """

    source = "LDAdam (Robert et al., 2025)"

    presets: ClassVar[Presets] = {"ldadam": {"lr": 0.003}}

    kind: Literal["ldadam"] = "ldadam"
    rank_fraction: Annotated[float, Field(gt=0, le=1)] = 0.25
    rho: Rate = 0.908
    beta1: Rate = 0.908
    beta2: Rate = 0.99
    eps: Positive = 1e-8
    error_feedback: bool = True
    layers: tuple[str, ...] = ()

    @property
    @override
    def name(self) -> str:
        return self.label or f"ldadam{self._suffix}"

    def _projected(self, model: Tensors) -> list[TensorShape]:
        """Return the matrices that are projected to a subspace."""
        return [t for t in tensors_of(model) if t.is_matrix and matches_patterns(t.name, self.layers)]

    def _rank(self, tensor: TensorShape) -> int:
        """Return the rank of the subspace of a matrix."""
        return dion_rank(*tensor.sides, self.rank_fraction)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return how many numbers a worker stores: the elements of moments, projections and errors.

        Projected matrices have low-rank moments, a projection and an error; other parameters have Adam's moments.
        """
        tensors, projected = tensors_of(model), self._projected(model)
        moments = 2 * (elements(tensors) - elements(projected))
        projections = 0
        for t in projected:
            moments += 2 * self._rank(t) * max(t.sides)
            projections += self._rank(t) * min(t.sides)
        return moments + projections + self.error_feedback_elements(model, workers)

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return how many stored numbers are errors: the elements of the errors of projections and of a compressor."""
        projection_errors = elements(self._projected(model)) if self.error_feedback else 0
        return super().error_feedback_elements(model, workers) + projection_errors

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> update_work.UpdateWork:
        """Return the operations of projected matrices, and of Adam for other parameters.

        For an m by n matrix at rank r, these are eight products of ``2 m n r`` operations (six without error feedback),
        four smaller products by which the moments follow the projection, and a QR decomposition.
        """
        projected = self._projected(tensors)
        step = PROJECTION_WORK.on(projected) + update_work.ADAM.on(t for t in tensors if t not in projected)
        work = update_work.UpdateWork(step) + self._step_work(tensors)
        for (m, n, r), count in Counter((*sorted(t.sides), self._rank(t)) for t in projected).items():
            operations = (
                update_work.fp32_product(r, n, m, count=2),  # (r, m) (m, n)
                update_work.fp32_product(m, r, n),
                update_work.fp32_product(m, n, r, count=5 if self.error_feedback else 3),
                update_work.fp32_product(r, r, m),
                update_work.fp32_product(r, n, r, count=3),
                update_work.qr(m, r),
                memory(176 / 20 * n * r, count=20),  # 20 elementwise kernels on the moments, 176 bytes per entry in all
                memory(68 / 15 * m * r, count=15),  # 15 kernels on the projection, 68 bytes per entry
            )
            work += update_work.repeated(update_work.UpdateWork(operations), count)
        return work

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        names = ("rank_fraction", "rho", "beta1", "beta2", "eps", "error_feedback", "layers")
        rule = optim.ldadam(**{name: getattr(self, name) for name in names})
        return self._build_optimizer(params, rule, **options)
