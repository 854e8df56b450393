"""The registry of networks by name."""

from __future__ import annotations

from typing import Any

from syncline.costmodel.network.presets import NETWORKS
from syncline.registry import Registry

BY_NAME: Registry[Any] = Registry(
    "networks", "syncline.networks", {name: preset.network for name, preset in NETWORKS.items()}
)
"""Presets and registered networks: a network, or a description of one."""
