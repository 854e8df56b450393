"""A small GPT that learns to predict the next byte of a text: Python's standard library, PyTorch, or a user's file."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sysconfig
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.base import Rows, check_sizes, check_skew, select_half, site_part
from syncline.problems.gpt import GPT, Routing, gpt_weights, training_flops_per_token
from syncline.problems.network import Execution, NetworkTask, shape_only
from syncline.problems.random_draws import StepStream, integers, perturbed, torch_generator

HELD_OUT_ONE_IN = 10
"""One in so many files, or the last of so many parts of a user's file, is for validation."""

SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
"""Folders that are left out: packages, caches, and tests, which are 60% of the standard library's bytes."""

SKIPPED_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize")
"""Beginnings of names of files that are written when Python is built, so that they differ between machines."""


LIBRARY_COPY = "SYNCLINE_STANDARD_LIBRARY"
"""Environment variable with the folder of a copy of a standard library's source."""


@dataclass(frozen=True)
class Corpus:
    """Bytes to train on and bytes to validate on.

    Args:
        name: source of the text.
        train: ``(n,)`` uint8.
        validation: ``(m,)`` uint8.
        sha256: checksum of the training bytes followed by the validation bytes; for a user's file, of the file.
    """

    name: str
    train: Tensor
    validation: Tensor
    sha256: str


@cache
def standard_library() -> Corpus:
    """Return about 12 MB of Python: the standard library of the running interpreter, without its tests.

    If `LIBRARY_COPY` is set, the text is the copy in that folder, so that machines with other versions of Python train
    on the same bytes.

    Raises:
        SpecError: the interpreter was installed without the source of its library.
    """
    copy = os.environ.get(LIBRARY_COPY)
    if copy:
        return _read_corpus(f"standard library in {copy}", Path(copy), SKIPPED_FOLDERS)
    name = f"standard library of Python {platform.python_version()}"
    return _read_corpus(name, Path(sysconfig.get_path("stdlib")), SKIPPED_FOLDERS)


@cache
def torch_source() -> Corpus:
    """Return about 41 MB of Python: the source of the installed PyTorch, without its tests.

    Raises:
        SpecError: PyTorch was installed without its source.
    """
    module_spec = importlib.util.find_spec("torch")
    assert module_spec is not None and module_spec.origin is not None  # this module has imported torch
    root = Path(module_spec.origin).parent
    return _read_corpus(f"source of PyTorch {metadata.version('torch')}", root, SKIPPED_FOLDERS | {"testing"})


TEXTS: Mapping[str, Callable[[], Corpus]] = {"standard-library": standard_library, "torch": torch_source}
"""Functions that load the built-in texts, by name."""


def _read_corpus(name: str, root: Path, skipped: Set[str]) -> Corpus:
    """Return the Python files below a folder as a corpus, in the order of their paths; skip folders of these names."""
    train, validation = bytearray(), bytearray()
    for path in library_files(root, skipped):
        text = (root / path).read_bytes()
        if is_held_out(path):
            validation.extend(text)
        else:
            train.extend(text)
    if not train:
        raise SpecError("problem.path", None, f"the path of a text file, as {root} holds no Python source")
    return _make_corpus(name, train, validation)


def library_files(root: Path, skipped: Set[str] = SKIPPED_FOLDERS) -> list[str]:
    """Return the sorted paths of a corpus's Python files, relative to ``root`` and with forward slashes.

    Args:
        skipped: names of folders that are left out.
    """
    paths = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in skipped and not name.startswith(SKIPPED_PREFIXES)]
        for name in names:
            if name.endswith(".py") and not name.startswith(SKIPPED_PREFIXES):
                paths.append(Path(folder, name).relative_to(root).as_posix())
    return sorted(paths)


def is_held_out(path: str) -> bool:
    """Return whether a file is for validation: one in ten, by the SHA-256 of its relative path.

    The answer for a path is the same on every machine and in every version of Python.
    """
    digest = hashlib.sha256(path.encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def text_file(path: str | Path) -> Corpus:
    """Return the bytes of a file, text or not, as a corpus; the last tenth is for validation."""
    try:
        text = bytearray(Path(path).expanduser().read_bytes())
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SpecError("problem.path", str(path), f"a text file that can be read ({reason})") from None
    if not text:
        raise SpecError("problem.path", str(path), "a text file that is not empty")
    num_training = len(text) - len(text) // HELD_OUT_ONE_IN
    return _make_corpus(Path(path).name, text[:num_training], text[num_training:])


def _make_corpus(name: str, train: bytearray, validation: bytearray) -> Corpus:
    """Return bytes as a corpus, with their checksum."""
    digest = hashlib.sha256(train)
    digest.update(validation)
    return Corpus(name, _byte_tensor(train), validation=_byte_tensor(validation), sha256=digest.hexdigest())


def _byte_tensor(text: bytearray) -> Tensor:
    """Return bytes as a tensor; torch.frombuffer refuses the empty validation part of a very short file."""
    return torch.frombuffer(text, dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)


BYTES = 256
"""Size of the vocabulary: a token is a byte."""

MOST_LAYERS = 1000
"""Largest number of layers: that of the deepest published transformer (H. Wang et al. (2022), DeepNet, 2203.00555)."""


@dataclass(frozen=True, kw_only=True)
class TextGPT:
    """Next-byte prediction by a GPT; the loss is in nats per byte, about ln 256 = 5.5 before training.

    Args:
        width: width of the residual path.
        layers: number of blocks.
        heads: number of heads of each attention.
        context: largest number of bytes that a prediction depends on.
        batch_size: number of windows of ``context`` bytes per worker and step, drawn from random places of the text.
        validation_windows: number of windows of each evaluation, evenly spaced over the held-out text.
        held_out: part of the held-out text that evaluations use: ``whole``, ``first-half`` or ``second-half``. A
            replication tunes methods on one half and compares them on the other.
        text: the source code of Python's ``standard-library``, or that of ``torch``; they share no file.
        path: path of a text file that replaces ``text``.
        tied: whether the output layer is the token embedding. It must be false in a pipeline, whose first stage has the
            embedding and whose last stage has the output layer.
        experts: number of expert MLPs of each block, behind a router; with 1, a block has one MLP and no router.
        experts_per_token: number of experts that each token goes through.
        balance: weight of the loss term that balances the loads of experts. It is part of the gradients, but not of
            reported losses.
        skew: share of a batch's windows from the worker's own contiguous part of the text; unless 0, at least one
            window. Other windows are from random places.
        sites: number of sites, which are equal parts of the workers; the workers of a site share a part of the text. By
            default, each worker has its own part.
        perturbation: relative size of a random change of the initial weights, equal on all workers. A training with
            1e-6 shows how much rounding errors grow.
    """

    name: ClassVar[str] = "text-gpt"
    loss_label: ClassVar[str] = "validation loss (nats per byte)"
    width: int = 96
    layers: int = 3
    heads: int = 4
    context: int = 64
    batch_size: int = 8
    validation_windows: int = 64
    held_out: Literal["whole", "first-half", "second-half"] = "whole"
    text: Literal["standard-library", "torch"] = "standard-library"
    path: str | None = None
    tied: bool = True
    experts: int = 1
    experts_per_token: int = 1
    balance: float = 0.01
    skew: float = 0.0
    sites: int | None = None
    perturbation: float = 0.0

    def __post_init__(self) -> None:
        """Raise an error for sizes out of range, and for a model that cannot be built."""
        check_sizes(self, "width", "heads", "context", "batch_size", "validation_windows")
        check_sizes(self, "layers", largest=MOST_LAYERS)
        check_skew(self.skew, self.sites, "each from its own part of the text")
        if not 0 <= self.perturbation < 1:
            raise SpecError("problem.perturbation", self.perturbation, "a number from 0 to below 1")
        self.module()  # raises an error for sizes that do not fit together

    @property
    def routing(self) -> Routing | None:
        """Return the routing of experts, or None if a block has one MLP."""
        if self.experts == 1 and self.experts_per_token == 1:
            return None
        return Routing(self.experts, self.experts_per_token, self.balance)

    def _network(self) -> GPT:
        """Return the network; a training replaces its weights."""
        return GPT(
            vocabulary=BYTES, context=self.context, width=self.width, layers=self.layers, heads=self.heads,
            tied=self.tied, routing=self.routing,
        )  # fmt: skip

    def module(self) -> GPT:
        """Return the network on the meta device, without memory."""
        module = shape_only(self._network)
        assert isinstance(module, GPT)
        return module

    def initial_network(self, seed: int, dtype: torch.dtype = torch.float32) -> GPT:
        """Return the network with the weights that the replica ``seed`` starts from."""
        module = self._network()
        module.load_state_dict(self._initial_weights(seed))
        return module.to(dtype)

    def _initial_weights(self, seed: int) -> dict[str, Tensor]:
        """Return the weights that the replica ``seed`` starts from, with the problem's perturbation."""
        weights = gpt_weights(self.module(), torch_generator(seed, "weights"))
        return perturbed(weights, self.perturbation, seed)

    def build(
        self,
        rows: Rows,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        execution: Execution = "auto",
        autocast: torch.dtype | None = None,
    ) -> NetworkTask:
        """Read the text, and return the task of ``rows``; ``execution`` is explained in `gradient_function`."""
        module = self.module()
        corpus = TEXTS[self.text]() if self.path is None else text_file(self.path)
        held_out = select_half(corpus.validation, self.held_out)
        if min(len(corpus.train), len(held_out)) <= self.context:  # too short for a window and its last target
            shortest, part_of = HELD_OUT_ONE_IN * (self.context + 1), ""
            if self.held_out != "whole":
                shortest, part_of = 2 * shortest, "half of "
            expected = f"a text of at least {shortest} bytes, {part_of}whose last tenth is longer than the context"
            raise SpecError("problem.path", self.path, expected)
        num_from_part = max(1, round(self.skew * self.batch_size)) if self.skew else 0
        windows = Windows(
            corpus.train.to(device),
            held_out.to(device),
            rows,
            context=self.context,
            batch_size=self.batch_size,
            validation_windows=self.validation_windows,
            num_from_part=num_from_part,
            sites=self.sites,
        )
        # The matrices between hidden layers, without routers, whose rows are experts.
        matrices = []
        for name, p in module.named_parameters():
            if p.ndim == 2 and name.startswith("blocks.") and ".router." not in name:
                matrices.append(name)
        return NetworkTask(
            module,
            rows.parameters(self._initial_weights, dtype, device),
            data=windows,
            rows=rows,
            matrices=tuple(matrices),
            flops_per_step=training_flops_per_token(module, self.context) * self.batch_size * self.context,
            facts={
                "corpus": corpus.name,
                "corpus_sha256": corpus.sha256,
                "train_bytes": len(corpus.train),
                "validation_bytes": len(held_out),
            },
            execution=execution,
            autocast=autocast,
        )


class Windows:
    """The data of a `NetworkTask`: windows of a text as inputs, and the byte after each input byte as targets.

    Args:
        train: bytes to train on, ``(n,)``.
        validation: bytes of evaluations, ``(m,)``.
        context: number of bytes of a window.
        num_from_part: number of windows of a batch that come from the worker's own part of the text.
        sites: number of sites, whose workers share a part; None if each worker has its own part.
    """

    def __init__(
        self,
        train: Tensor,
        validation: Tensor,
        rows: Rows,
        *,
        context: int,
        batch_size: int,
        validation_windows: int,
        num_from_part: int = 0,
        sites: int | None = None,
    ) -> None:
        """Cut the text into windows, with evenly spaced ones for validation."""
        device = train.device
        self._windows = train.unfold(0, context + 1, 1)  # a view: (starts, context + 1)
        num_windows = len(self._windows)
        held_out = validation.unfold(0, context + 1, 1)
        evenly_spaced = torch.linspace(0, len(held_out) - 1, validation_windows, dtype=torch.float64)
        self.validation = _inputs_and_targets(held_out[evenly_spaced.long().to(device)])
        draw = integers(num_windows)
        self._starts = StepStream(rows, "batches", shape=(batch_size,), draw=draw, dtype=torch.int64, device=device)

        # For each row, (R, 1): the first window in its worker's part of the text, and the number of windows there.
        self._num_from_part = num_from_part
        first_windows, part_lengths = [], []
        for worker in rows.workers * len(rows.seeds):  # rows are in order of replicas, then of workers
            part, num_parts = site_part(worker, rows.world_size, sites)
            begin, end = num_windows * part // num_parts, num_windows * (part + 1) // num_parts
            if num_from_part and begin == end:
                expected = f"0, as a text of {num_windows} windows has not one for each part"
                raise SpecError("problem.skew", num_from_part / batch_size, expected)
            first_windows.append([begin])
            part_lengths.append([end - begin])
        self._first_windows = torch.tensor(first_windows, device=device)
        self._part_lengths = torch.tensor(part_lengths, device=device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, context)``."""
        starts = self._starts[step]  # (R, batch), drawn from the whole text
        if self._num_from_part:  # map the first draws of each worker from the whole text to its part
            in_part, anywhere = starts[:, : self._num_from_part], starts[:, self._num_from_part :]
            in_part = self._first_windows + in_part * self._part_lengths // len(self._windows)
            starts = torch.cat((in_part, anywhere), dim=1)
        return _inputs_and_targets(self._windows[starts])


def _inputs_and_targets(windows: Tensor) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of windows ``(..., context + 1)``: all but the last byte, and all but the first."""
    tokens = windows.long()
    return tokens[..., :-1], tokens[..., 1:]
