"""A network that is a link, one of a class of its own, a card, and a model by the fields of its config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.costmodel import Hardware, Link
from syncline.costmodel.network.paths import Paths

LAB = Link(40e-6, 3.125e9, "acme-lab")

CARD = Hardware("acme-card", 2e14, 0.5, "bf16", "Acme's data sheet", 48 * 2.0**30, 1e12)

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "max_position_embeddings": 128,
}


@dataclass(frozen=True)
class Bus:
    """One channel that all messages share."""

    latency_s: float
    bytes_per_s: float
    name: str = "acme-bus"
    gloo: None = None

    def among(self, workers: int) -> OnBus:
        """The same channel for everybody."""
        return OnBus(self, workers)

    def describe(self) -> str:
        """For people."""
        return f"a bus of {8e-9 * self.bytes_per_s:g} Gbit/s"


@dataclass(frozen=True)
class OnBus:
    """So many workers on a bus."""

    bus: Bus
    workers: int
    name: str = "acme-bus"
    gloo: None = None

    @property
    def bandwidth_bytes_per_s(self) -> np.ndarray:
        """Of the one channel."""
        return np.array([self.bus.bytes_per_s])

    def paths(self, senders: Any, receivers: Any) -> Paths:
        """Every message passes the channel."""
        count = len(senders)
        return Paths(np.zeros((count, 1), dtype=int), np.full(count, self.bus.latency_s), np.zeros(count))


BUS = Bus(1e-5, 1.25e9)
