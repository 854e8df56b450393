"""A network for images, with an example input by which its work is counted."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def make_model(channels: int = 16) -> tuple[nn.Module, Tensor]:
    """Two convolutions and a head, and a batch of four images."""
    net = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(channels * 64, 10),
    )  # fmt: skip
    return net, torch.zeros(4, 3, 8, 8)
