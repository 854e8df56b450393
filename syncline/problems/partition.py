"""Models cut into stages: which part of a pipeline a parameter belongs to."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from syncline.costmodel.pipeline.closed_form import block_stages, even_parts
from syncline.errors import SpecError
from syncline.problems.gpt import GPT


def parameter_stages(names: Iterable[str], stages: int) -> dict[str, int]:
    """Return each GPT parameter's stage: blocks in even parts, embeddings in the first, norm and head in the last.

    Raises:
        SpecError: more stages than blocks, or a model whose output layer is its embedding, which cannot be cut.
    """
    listed = list(names)
    numbers = {int(name.split(".")[1]) for name in listed if name.startswith("blocks.")}
    if not numbers:
        raise SpecError("problem", listed[:3], "text-gpt, whose blocks can be stages, or a landscape's coordinates")
    of_block = {block: stage for stage, part in enumerate(block_stages(len(numbers), stages)) for block in part}
    if stages > 1 and "head.weight" not in listed:
        raise SpecError("problem.tied", True, "false in a pipeline: its first and its last stage each have a table")
    return {
        name: of_block[int(name.split(".")[1])]
        if name.startswith("blocks.")
        else (0 if name.startswith(("token.", "position.")) else stages - 1)
        for name in listed
    }


class GPTStage(nn.Module):
    """Consecutive blocks of a GPT; the first also embeds, the last also unembeds. Names are the whole model's."""

    def __init__(self, model: GPT, blocks: range, *, first: bool, last: bool) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.blocks = nn.ModuleDict({str(block): model.blocks[block] for block in blocks})
        if first:
            self.token, self.position = model.token, model.position
        if last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens or activations to activations, or in the last stage to logits."""
        if self.first:
            embedded: Tensor = self.token(x)
            x = embedded + self.position.weight[: x.shape[-1]]
        for block in self.blocks.values():
            x = block(x)
        if not self.last:
            return x
        table = self.token.weight if self.head is None else self.head.weight
        return nn.functional.linear(self.norm(x), table)


def cut(model: GPT, stages: int) -> list[nn.Module]:
    """Return the stages of a GPT as modules that, one after another, are the model, and share its parameters.

    Raises:
        SpecError: as `parameter_stages`.
    """
    parameter_stages([name for name, _ in model.named_parameters()], stages)
    parts = block_stages(len(model.blocks), stages)
    return [GPTStage(model, part, first=k == 0, last=k == stages - 1) for k, part in enumerate(parts)]


def coordinate_delays(coordinates: int, stages: int, delays: Iterable[int]) -> Tensor:
    """Return the delay of each coordinate of a landscape, cut into even parts like blocks, ``(d,)``."""
    of_part = list(delays)
    return torch.cat([
        torch.full((len(part),), of_part[stage]) for stage, part in enumerate(even_parts(coordinates, stages))
    ])  # fmt: skip
