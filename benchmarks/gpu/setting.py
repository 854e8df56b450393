"""Where the parts measure and how large: one GPU, or a CPU at sizes that only show that the code runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from syncline.costmodel import HARDWARE, Hardware
from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.models import MODELS

PRESETS = (
    (r"\bGB300\b", "gb300"),
    (r"\bGB200\b", "gb200"),
    (r"\bB300\b", "b300"),
    (r"\bB200\b", "b200"),
    (r"\bGH200 480GB", "gh200"),
    (r"\bH20\b(?!-3e)", "h20"),
    (r"\bH200\b(?! NVL)", "h200"),
    (r"\bH100 80GB HBM3", "h100"),
    (r"\bA100-SXM4-80GB", "a100"),
    (r"\bA100-SXM4-40GB", "a100-40gb"),
    (r"\bV100-SXM2-16GB", "v100"),
    (r"\bV100-SXM[23]-32GB", "v100-32gb"),
    (r"\bMI300X\b", "mi300x"),
    (r"\bMI325X\b", "mi325x"),
    (r"\bL40S\b", "l40s"),
    (r"\bRTX 5090(?! (D|Laptop))", "rtx-5090"),
    (r"\bRTX 4090(?! (D|Laptop))", "rtx-4090"),
    (r"\bRTX 3090(?! (Ti|Laptop))", "rtx-3090"),
)
"""Names of devices as drivers tell them, and hardware of the cost model: the same chip, board and clock, or none."""

TINY = ModelShape("tiny", layers=2, width=32, heads=2, vocabulary=64, sequence=16, source="none; to see the code run")


def preset_of(name: str) -> str | None:
    """The hardware of the cost model that a device's name stands for; none where its peak would be another."""
    return next((preset for pattern, preset in PRESETS if re.search(pattern, name)), None)


@dataclass(frozen=True)
class Setting:
    """Of a run.

    Args:
        device: ``cuda`` or ``cpu``.
        tiny: sizes that take no time and mean nothing.
    """

    device: str = "cuda"
    tiny: bool = False

    @property
    def on(self) -> torch.device:
        """The device: the first GPU, or the CPU."""
        return torch.device("cuda", 0) if self.device == "cuda" else torch.device("cpu")

    @property
    def name(self) -> str:
        """The device's, as its driver tells it."""
        return torch.cuda.get_device_name(self.on) if self.device == "cuda" else "cpu"

    @property
    def hardware(self) -> Hardware | None:
        """What predictions are made with; on the CPU a core, whose predictions show no more than that they are made."""
        preset = preset_of(self.name) if self.device == "cuda" else "cpu-core"
        return None if preset is None else HARDWARE[preset]

    @property
    def half(self) -> torch.dtype:
        """The half precision that the device multiplies in: bf16, or fp16 on GPUs before Ampere."""
        old = self.device == "cuda" and torch.cuda.get_device_capability(self.on) < (8, 0)
        return torch.float16 if old else torch.bfloat16

    @property
    def models(self) -> list[ModelShape]:
        """Whose steps are timed."""
        return [TINY] if self.tiny else [MODELS["gpt-160m"], MODELS["gpt-350m"]]


def dtype_name(dtype: torch.dtype) -> str:
    """``bf16``, ``fp16`` or ``fp32``."""
    return {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]
