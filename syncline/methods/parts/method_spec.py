"""The base class of method specs: fields, traffic in closed form, kept state, and the construction of the optimizer.

Only ``build`` imports torch, so that commands that read a spec or project its clock start fast.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
    model_validator,
)

from syncline import optim
from syncline.costmodel import Exchange, Hardware, TensorShape
from syncline.costmodel.compute.tensors import TensorShapes
from syncline.costmodel.compute.update_work import ADAM, DECAY, EAGER, MOVE, UpdateWork, Updating, above_adam_s
from syncline.fields import Positive, Spec

if TYPE_CHECKING:
    from syncline.comm import Communicator


SPEC_VALUES = (str, int, float, bool, list, tuple, dict, BaseModel, type(None))
"""Types of values in a spec file, or of values that were read from a spec file."""


@dataclass(frozen=True)
class ObjectPart:
    """The spec of an update rule, outer optimizer or compressor that the user passes as a Python object.

    Args:
        part: the Python object.
        error_feedback: whether workers send later what a compressor left out.
    """

    part: Any
    error_feedback: bool = True

    @property
    def kind(self) -> str:
        """Return the word with which specs name the object's class, or the class's name if specs have none."""
        return str(getattr(self.part, "kind", type(self.part).__name__))

    @property
    def name(self) -> str:
        """Return the part's kind as its name within a method's name."""
        return self.kind

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements of the states that the rule or outer optimizer keeps for these parameters."""
        import torch

        total = 0
        for param_index, tensor in enumerate(tensors):
            part = self.part
            one_worker = torch.empty(1, *tensor.shape, device="meta")  # the first dimension is the worker axis
            while isinstance(part, optim.MatrixSplit):  # the parts of a split can be splits, too
                part = part.matrix if tensor.is_matrix else part.other_rule
            is_rule = hasattr(part, "direction")
            states = part.init(one_worker, param_index) if is_rule else part.init(one_worker)
            total += sum(state.numel() for state in states.values())
        return total

    def build(self) -> Any:
        """Return the Python object that the user passed."""
        return self.part


def or_object(protocol: str) -> WrapValidator:
    """Return a validator that also accepts Python objects with the methods of a protocol.

    ``protocol`` names it as ``module:Protocol``, so that the module is imported only for an object.
    """

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        """Wrap an object that follows the protocol; hand fields and names to pydantic."""
        if isinstance(value, ObjectPart):
            return value
        if not isinstance(value, SPEC_VALUES):
            module, _, name = protocol.partition(":")
            if isinstance(value, getattr(import_module(module), name)):
                return ObjectPart(value)
        return handler(value)

    return WrapValidator(validate)


BYTES_PER_ELEMENT = {"dense": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number in each wire format; the names are those of ``syncline.comm.WIRE_FORMATS``."""

FP32_BYTES = BYTES_PER_ELEMENT["dense"]

Presets = Mapping[str, Mapping[str, Any]]
"""The fields of each preset of a method, by the preset's name."""

Tensors = int | Sequence[TensorShape]
"""The parameters of a model: their shapes, or only their number of elements."""


def tensors_of(model: Tensors) -> TensorShapes:
    """Return the shapes of all nonempty tensors of a model; a number means one vector of that length."""
    if isinstance(model, TensorShapes):
        return model
    if isinstance(model, int):
        return TensorShapes([TensorShape("parameters", (model,))])
    return TensorShapes(tensor for tensor in model if 0 not in tensor.shape)


def elements(tensors: Sequence[TensorShape]) -> int:
    """Return the total number of elements of tensors of these shapes."""
    return tensors.elements if isinstance(tensors, TensorShapes) else sum(tensor.elements for tensor in tensors)


def per_step_formula(sent: str, period: int) -> str:
    """Return the formula of the bytes per step if bytes with the formula ``sent`` are sent every ``period`` steps.

    >>> per_step_formula("4 N + 4", 32)
    '(4 N + 4) / 32'
    """
    if period == 1:
        return sent
    return f"({sent}) / {period}" if " + " in sent else f"{sent} / {period}"


def wire_name(value: Any) -> Any:
    """Return the name of a wire format that is given as an object; return a name unchanged."""
    return getattr(value, "name", value)


class MethodBase(Spec):
    """The base of all methods.

    Args:
        kind: name of the method in specs.
        label: name in tables and figures; by default the kind.
        lr: learning rate.
        other_lr: learning rate of parameters that are not matrices, if the update rule treats matrices differently;
            by default ``lr``.
        weight_decay: coefficient of decoupled weight decay, as in AdamW.
        clip_norm: largest norm of each worker's gradient; by default, gradients are not clipped.
        wire: number format in which tensors are sent; by default fp32, or for gradients the format in which they are
            computed.
    """

    family: ClassVar[str]
    """Name of the family; methods of a family reduce communication in the same way."""

    source: ClassVar[str]
    """The paper that describes the method."""

    presets: ClassVar[Presets] = {}
    """Fields of each preset by name. A spec can name a preset, as ``method: mt-dao``, and change single fields."""

    sends_only_means: ClassVar[bool] = False
    """Whether all traffic is uncompressed means over the workers, so that the method can train with absent workers."""

    averages_states: ClassVar[bool] = False
    """Whether the method can average states of its update rule together with the parameters."""

    # The fields that `written_as` got, and the values of all fields at that call.
    _spec_file_fields: tuple[dict[str, Any], dict[str, Any]] | None = PrivateAttr(default=None)
    _gradient_precision: str = PrivateAttr(default="fp32")  # see `in_precision`

    kind: str
    label: str = ""
    lr: Positive
    other_lr: Positive | None = None
    weight_decay: float = Field(default=0.0, ge=0)
    clip_norm: Positive | None = None
    wire: Annotated[Literal["dense", "bf16", "fp16"] | None, BeforeValidator(wire_name)] = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        """Raise an error if the update rule or the asynchronous settings do not accept the method's other fields."""
        parts: list[Any] = [getattr(self, "rule", None), getattr(self, "asynchronous", None)]
        for part in parts:
            if hasattr(part, "check"):
                part.check(self)
        return self

    @property
    def sends_gradients(self) -> bool:
        """Return whether the method averages only gradients; it sends them in the precision of their computation."""
        return False

    @property
    def can_shard_states(self) -> bool:
        """Return whether optimizer states can be sharded over workers: if the gradient is averaged in every step."""
        return False

    def in_precision(self, precision: str) -> Self:
        """Return a copy of the method for gradients that are computed in ``fp32``, ``bf16`` or ``fp16``.

        If the method sends only gradients, it sends them in this precision unless it has a ``wire``. Parameters and
        momenta are sent in the format ``wire``, by default in fp32.
        """
        if precision == self._gradient_precision or not self.sends_gradients:  # nothing changes
            return self
        method = self.model_copy()
        method._gradient_precision = precision
        return method

    @property
    def wire_format(self) -> str:
        """Return the wire format of tensors that are sent without a compressor or a vote; ``dense`` is fp32."""
        gradient_format = "dense" if self._gradient_precision == "fp32" else self._gradient_precision
        return self.wire or gradient_format

    @property
    def converts_to_wire(self) -> bool:
        """Return whether tensors must be converted to the wire format before they are sent."""
        return self.wire_format not in ("dense", self._gradient_precision)

    def written_as(self, fields: Mapping[str, Any]) -> Self:
        """Return a copy of the method; spec files show it as ``fields`` until one of its own fields changes."""
        method = self.model_copy()
        method._spec_file_fields = dict(fields), dict(self)
        return method

    @model_serializer(mode="wrap")
    def _as_written(self, as_fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields to write: those that `written_as` got, unless a field has changed since that call."""
        if self._spec_file_fields is not None:
            fields_to_write, values_at_call = self._spec_file_fields
            if fields_to_write and values_at_call == dict(self):
                return fields_to_write
        return as_fields(self)

    @property
    def name(self) -> str:
        """Return the name of the method in tables and figures: its label, or else its kind."""
        return self.label or self.kind.rpartition(":")[2]  # a kind may be a reference, ``module:Class``

    @property
    def one_seed_at_a_time(self) -> bool:
        """Return whether seeds must train one after another, because a seed's tensors decide when workers send."""
        return False

    @property
    def same_for_any_group(self) -> bool:
        """Return whether a worker's traffic and kept state are the same for any number of workers."""
        return False

    @abstractmethod
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return all exchanges of a worker in a training, in closed form.

        Args:
            model: parameters of the model, in fp32.
            workers: number of workers.
        """

    def exchanges_of_training(
        self, model: Tensors, workers: int, steps: int, averaged_steps: Sequence[int]
    ) -> list[Exchange] | None:
        """Return the exchanges of a finished training, from the steps after which its workers averaged.

        The result is None if `exchanges` knows these steps beforehand.

        Args:
            model: parameters of the model, in fp32.
            workers: number of workers.
            steps: number of steps of the training.
            averaged_steps: steps, from 0, after which the training averaged.
        """
        return None

    def traffic_formula(self, workers: int) -> str:
        """Return, as text, the formula of the bytes that a worker sends per step.

        N is the number of parameters of the model, and N' the number of those that are not in matrices. Methods whose
        bytes are not linear in both override this function.
        """

        def bytes_by_period(matrix_elements: int, other_elements: int) -> dict[int, float]:
            """Return a worker's bytes for a matrix and a vector, by the number of steps between exchanges."""
            shapes = [TensorShape("", (matrix_elements, 1), is_matrix=True), TensorShape("", (other_elements,))]
            nbytes: dict[int, float] = {}
            for exchange in self.exchanges(shapes, workers):
                nbytes[exchange.period] = nbytes.get(exchange.period, 0) + exchange.payload_bytes
            return nbytes

        # The coefficients of a linear function, from its values at three points.
        bytes_at_1_1 = bytes_by_period(matrix_elements=1, other_elements=1)
        bytes_at_2_1 = bytes_by_period(matrix_elements=2, other_elements=1)
        bytes_at_1_2 = bytes_by_period(matrix_elements=1, other_elements=2)
        formulas = []
        for period, nbytes in bytes_at_1_1.items():
            per_matrix_element = bytes_at_2_1[period] - nbytes
            per_other_element = bytes_at_1_2[period] - nbytes
            constant = nbytes - per_matrix_element - per_other_element
            # N counts all parameters: the coefficient of N' is the difference from a matrix element.
            coefficients = {"": constant, " N": per_matrix_element, " N'": per_other_element - per_matrix_element}
            terms = [f"{coefficient:g}{symbol}" for symbol, coefficient in coefficients.items() if coefficient]
            formulas.append(per_step_formula(" + ".join(terms), period))
        return " + ".join(formulas)

    @abstractmethod
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements that a worker stores besides parameters: momenta, errors and other states.

        Fragments that are in transit are not counted.
        """

    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return how many of the stored elements are errors of compression that error feedback adds later."""
        return 0

    def check_model(self, model: Sequence[TensorShape]) -> None:
        """Raise a SpecError if the method cannot train a model with parameters of these shapes."""

    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        """Build the method's optimizer for parameters, or parameter groups, and the communicator of the workers.

        ``worker_axis`` tells whether the parameters' first dimension is the worker axis.
        """
        from syncline.comm import WIRE_FORMATS

        # `optimizer` itself handles a format that only its method has.
        wire = WIRE_FORMATS.get(self.wire_format, WIRE_FORMATS["dense"])
        return self.optimizer(
            params, other_lr=self.other_lr, weight_decay=self.weight_decay, clip_norm=self.clip_norm, wire=wire,
            comm=comm, worker_axis=worker_axis,
        )  # fmt: skip

    @abstractmethod
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        """Build the method's optimizer; ``options`` are the arguments of `optim.Method` that `build` passes."""

    @property
    def sends_in_backward(self) -> bool:
        """Return whether the method sends tensors as soon as they are ready, during the backward pass."""
        return False

    def added_update_s(
        self, model: Tensors, hardware: Hardware, delay: int = 0, stages: int = 1, *, updating: Updating = EAGER
    ) -> float:
        """Return the seconds per step that the update takes longer than Adam's; a step's time includes Adam's.

        If the kernels of the GPU are known, these are the seconds of the update's kernels minus those of Adam's, at
        least 0. Otherwise only matrix products and decompositions count.

        Args:
            model: shapes of the parameters of a model, or of one stage of a pipeline.
            hardware: the device that updates the parameters.
            delay: number of updates by which the gradients of the stage are late.
            stages: number of stages of the pipeline.
            updating: implementation of the update, and whether to include the packing of what workers send.
        """
        tensors = tensors_of(model)
        renewal_period = self._renewal_period(delay, stages)
        return above_adam_s(self._update_work(tensors), tensors, hardware, renewal_period, updating)

    def _renewal_period(self, delay: int, stages: int) -> float | None:
        """Return the number of steps between renewals of the bases of a rotation; None for a method without renewals.

        It may depend on ``delay``, the number of updates by which a pipeline stage's gradients are late.
        """
        return None

    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of an update: of the rule (of Adam for a user's rule), and of the step."""
        rule: Any = getattr(self, "rule", None)
        rule_work = rule.update_work(tensors) if hasattr(rule, "update_work") else UpdateWork(ADAM.on(tensors))
        return rule_work + self._step_work(tensors)

    def _step_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of moving the parameters, and of weight decay if there is any."""
        operations = MOVE.on(tensors)
        if self.weight_decay:
            operations += DECAY.on(tensors)
        return UpdateWork(operations)

    def readbacks(self, model: Tensors) -> int:
        """Return how many values per step the host reads from its device to decide whether workers send."""
        return 0

    def _wire_bytes(self, count: int) -> int:
        """Return the bytes of ``count`` numbers in the method's wire format."""
        return count * BYTES_PER_ELEMENT[self.wire_format]

    def _plain_exchange(self, count: int, period: int = 1, label: str = "", **options: Any) -> Exchange:
        """Return an exchange of ``count`` numbers without a compressor, in the wire format, every ``period`` steps."""
        encoded = FP32_BYTES * count if self.converts_to_wire else 0
        return Exchange(self._wire_bytes(count), period, label, encoded_bytes=encoded, **options)
