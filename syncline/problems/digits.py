"""Handwritten digits: a two-layer network that trains in seconds, with workers that may see different labels."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from syncline.errors import SpecError
from syncline.problems.base import Rows, check_sizes, check_skew, select_half, site_part
from syncline.problems.network import Execution, NetworkTask, shape_only
from syncline.problems.random_draws import StepStream, integers, perturbed, torch_generator

PIXELS, CLASSES = 64, 10
IMAGES_FILE = Path(__file__).with_name("digits.npz")
"""File of the images; digits.md beside it has their source and licence."""

VALIDATION_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Digits:
    """The 1,797 digits of 8 x 8 pixels of UCI's optical recognition set, and an MLP with one hidden layer of ReLUs.

    One fifth of the images, the same for all seeds, is for validation. The others are cut into one shard per worker;
    a batch is drawn from the shard with replacement.

    Args:
        hidden: width of the hidden layer.
        batch_size: number of images per worker and step.
        skew: share of each shard that is dealt by label; the rest is dealt at random. With 0 all shards have the same
            distribution. With 1 the images, sorted by label, are cut into M pieces, so that a worker sees few labels.
            Source: K. Hsieh et al. (2020), The Non-IID Data Quagmire of Decentralized Machine Learning.
        sites: number of sites, which are equal parts of the workers. The images dealt by label go to sites, and within
            a site to random workers. By default, each worker is its own site.
        held_out: part of the validation images that evaluations use: ``whole``, ``first-half`` or ``second-half``.
        perturbation: relative size of a random change of the initial weights, equal on all workers.
    """

    name: ClassVar[str] = "digits"
    loss_label: ClassVar[str] = "validation loss (nats)"
    hidden: int = 64
    batch_size: int = 32
    skew: float = 0.0
    sites: int | None = None
    held_out: Literal["whole", "first-half", "second-half"] = "whole"
    perturbation: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(self, "hidden", "batch_size")
        check_skew(self.skew, self.sites, "sorted by label")
        if not 0 <= self.perturbation < 1:
            raise SpecError("problem.perturbation", self.perturbation, "a number from 0 to below 1")

    def module(self) -> nn.Module:
        """Return the network on the meta device, without memory."""
        return shape_only(lambda: mlp(self.hidden))

    def build(
        self,
        rows: Rows,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        execution: Execution = "auto",
        autocast: torch.dtype | None = None,
    ) -> NetworkTask:
        """Return the task of ``rows``, with gradients computed as ``execution`` says, see `gradient_function`."""
        module = self.module()

        def initial_weights(seed: int) -> dict[str, Tensor]:
            return perturbed(uniform_weights(module, torch_generator(seed, "weights")), self.perturbation, seed)

        num_weights = self.hidden * (PIXELS + CLASSES)
        return NetworkTask(
            module,
            rows.parameters(initial_weights, dtype, device),
            data=DigitsData(rows, self.batch_size, self.skew, self.sites, dtype, device, held_out=self.held_out),
            rows=rows,
            matrices=("0.weight",),  # the second layer is the output head
            # Two operations per weight and image forwards, twice that backwards.
            flops_per_step=6.0 * num_weights * self.batch_size,
            facts={"validation_images": len(load_images().validation_labels)},
            execution=execution,
            autocast=autocast,
        )


def mlp(hidden: int) -> nn.Sequential:
    """Return a network with one hidden layer of ReLUs, from pixels to logits of the classes."""
    return nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


def uniform_weights(module: nn.Module, source: torch.Generator) -> dict[str, Tensor]:
    """Return initial weights and biases of linear layers by name, uniform in +-1/sqrt(fan in), torch's default."""
    weights = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            for kind, parameter in layer.named_parameters():
                weights[f"{name}.{kind}"] = bound * (2 * torch.rand(parameter.shape, generator=source) - 1)
    return weights


@dataclass(frozen=True)
class Images:
    """Images ``(n, 64)`` with pixels in [0, 1] and their labels ``(n,)``, split the same way for all seeds."""

    train: Tensor
    train_labels: Tensor
    validation: Tensor
    validation_labels: Tensor


@cache
def load_images() -> Images:
    """Return the images, with the same split into training and validation for all seeds."""
    with np.load(IMAGES_FILE, allow_pickle=False) as file:
        pixels, all_labels = torch.from_numpy(file["images"]), torch.from_numpy(file["labels"])
    order = torch.randperm(len(all_labels), generator=torch_generator(0, "digits", "split"))
    images = (pixels.double() / 16)[order]  # pixels are integers from 0 to 16
    labels = all_labels[order].long()
    num_validation = round(VALIDATION_SHARE * len(labels))
    return Images(
        train=images[num_validation:],
        train_labels=labels[num_validation:],
        validation=images[:num_validation],
        validation_labels=labels[:num_validation],
    )


def shards(labels: Tensor, world_size: int, skew: float, source: torch.Generator, sites: int | None = None) -> Tensor:
    """Return the shard of each worker as indices into ``labels``, ``(M, n // M)``; no two shards share an image.

    Args:
        labels: labels of the images, ``(n,)``.
        world_size: M, number of workers.
        skew: share of each shard that comes from the images sorted by label.
        source: random generator of the order in which images are dealt.
        sites: number of sites; the images sorted by label are dealt at random among the workers of a site. By default,
            each worker is its own site.
    """
    size = len(labels) // world_size
    if size == 0:
        raise SpecError("workers", world_size, f"at most {len(labels)} workers, one per training image")
    order = torch.randperm(len(labels), generator=source)[: size * world_size]  # equal shards; the rest is unused
    num_random = round((1 - skew) * size)  # in each shard; other images are dealt by label
    random_part, rest = order[: num_random * world_size], order[num_random * world_size :]
    sorted_by_label = rest[labels[rest].argsort(stable=True)]
    dealt_by_label = sorted_by_label.view(world_size, size - num_random).clone()
    if sites is not None:  # deal the images of a site at random among its workers
        site_of_worker = [site_part(worker, world_size, sites)[0] for worker in range(world_size)]
        first_worker = 0  # the first worker of a site
        for num_workers in Counter(site_of_worker).values():
            workers = slice(first_worker, first_worker + num_workers)
            images = dealt_by_label[workers].flatten()
            shuffled = images[torch.randperm(len(images), generator=source)]
            dealt_by_label[workers] = shuffled.view(dealt_by_label[workers].shape)
            first_worker += num_workers
    return torch.cat((random_part.view(world_size, num_random), dealt_by_label), dim=1)


class DigitsData:
    """The data of a `NetworkTask`: images ``(R, batch, 64)`` from the shards of all workers."""

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        skew: float,
        sites: int | None,
        dtype: torch.dtype,
        device: torch.device | str,
        held_out: str = "whole",
    ) -> None:
        images = load_images()
        self._images, self._labels = images.train.to(device, dtype), images.train_labels.to(device)
        validation = select_half(images.validation, held_out)
        validation_labels = select_half(images.validation_labels, held_out)
        self.validation = validation.to(device, dtype), validation_labels.to(device)
        shards_by_replica = []
        for seed in rows.seeds:
            source = torch_generator(seed, "shards")
            group_shards = shards(images.train_labels, rows.world_size, skew, source, sites=sites)
            shards_by_replica.append(group_shards[list(rows.workers)])
        self._shards = torch.cat(shards_by_replica).to(device)  # (R, images of a shard)
        draw = integers(self._shards.shape[1])
        self._positions = StepStream(rows, "batches", shape=(batch_size,), draw=draw, dtype=torch.int64, device=device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return images ``(R, batch, 64)`` and labels ``(R, batch)``."""
        indices = self._shards.gather(1, self._positions[step])
        images = self._images.index_select(0, indices.view(-1))  # 3 times as fast as self._images[indices]
        return images.view(*indices.shape, PIXELS), self._labels.take(indices)
