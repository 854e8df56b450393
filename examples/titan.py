r"""A Llama trained with tensor, pipeline and data parallelism at once, by torch alone: it knows nothing of Syncline.

    python examples/titan.py                                     # one process
    torchrun --nproc-per-node 8 examples/titan.py --tp 2 --pp 2   # 2 x 2 x 2 of them: the same losses
    syncline trace --workers 8 --network 10gbe -- examples/titan.py --tp 2 --pp 2
    syncline trace --shapes --workers 512 --network dgx-h100 --hardware h100 -- examples/titan.py --size 405b \
        --tp 8 --pp 8 --batch 32 --micro 1 --context 8192 --recompute layers --bf16 --steps 2 --quiet

Each layer's matrices are split over ``--tp`` ranks, with the sequence between them; the layers over ``--pp`` stages
that run one forward, one backward; what is left is data parallelism that keeps every parameter in pieces (FSDP2): fp32
at rest, bf16 to compute with ``--bf16``, gradients added up in fp32.

Output:

step 1: loss 5.789
step 2: loss 5.691
step 3: loss 5.678
"""

from __future__ import annotations

import argparse
import os
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor import parallel as split
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class Size(NamedTuple):
    """Of a model."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int


SIZES = {
    "tiny": Size(64, 4, 4, 2, 160, 256),
    "8b": Size(4096, 32, 32, 8, 14336, 128256),
    "70b": Size(8192, 80, 64, 8, 28672, 128256),
    "405b": Size(16384, 126, 128, 8, 53248, 128256),
}


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Positions: pairs of entries, turned."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[: x.shape[1], None]).flatten(-2).type_as(x)


class Attention(nn.Module):
    """Causal, with keys and values that several heads share."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.each = size.width // size.heads
        self.shared = size.heads // size.kv_heads
        widths = size.width, size.kv_heads * self.each, size.kv_heads * self.each
        self.query, self.key, self.value = (nn.Linear(size.width, one, bias=False) for one in widths)
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """``(batch, time, width)`` to the same."""
        query, key, value = (one(x).unflatten(-1, (-1, self.each)) for one in (self.query, self.key, self.value))
        query, key = rotated(query, turns), rotated(key, turns)
        key, value = (one.repeat_interleave(self.shared, dim=2) for one in (key, value))
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """With a gate."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(size.width, size.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, time, width)`` to the same."""
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Layer(nn.Module):
    """Attention and a feed-forward network, beside a residual path."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(size.width, eps=1e-5), Attention(size)
        self.mlp_norm, self.mlp = nn.RMSNorm(size.width, eps=1e-5), FeedForward(size)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """``(batch, time, width)`` to the same."""
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.mlp(self.mlp_norm(x))


class Stage(nn.Module):
    """Some of the layers, with the embedding before the first and the output behind the last."""

    def __init__(self, size: Size, context: int, stage: int, stages: int, recompute: str) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(context), 5e5 ** (-torch.arange(0, 1, 2 * size.heads / size.width)))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.recompute = recompute
        mine = range(size.layers * stage // stages, size.layers * (stage + 1) // stages)
        # Every rank draws all weights, so that they do not depend on who has them.
        embed = nn.Embedding(size.vocabulary, size.width)
        layers = {str(number): Layer(size) for number in range(size.layers)}
        output = nn.Linear(size.width, size.vocabulary, bias=False)
        self.embed = embed if stage == 0 else None
        self.layers = nn.ModuleDict({name: layer for name, layer in layers.items() if int(name) in mine})
        self.norm = nn.RMSNorm(size.width, eps=1e-5) if stage == stages - 1 else None
        self.output = output if stage == stages - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens to what the next stage takes, or to logits."""
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers.values():
            if self.recompute == "none":
                x = layer(x, self.turns)
            else:
                keep: dict[str, Any] = {"context_fn": products_kept} if self.recompute == "some" else {}
                x = checkpoint(layer, x, self.turns, use_reentrant=False, **keep)
        if self.norm is not None and self.output is not None:
            x = self.output(self.norm(x))
        return x


def products_kept() -> object:
    """Of a layer attention, what was scattered and every second product is kept for the backward pass."""
    counts = {True: 0, False: 0}

    def policy(context: object, operation: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        again = bool(getattr(context, "is_recompute", False))
        if operation is torch.ops.aten.mm.default:
            counts[again] += 1
            keep = counts[again] % 2 == 1
        else:
            keep = any(name in str(operation) for name in ("scaled_dot_product", "reduce_scatter"))
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def split_matrices(model: Stage, mesh: DeviceMesh) -> None:
    """Tensor parallelism, with the sequence split between the matrices."""
    rows, all_of_it = Shard(1), Replicate()
    outside = {
        "embed": split.RowwiseParallel(input_layouts=all_of_it, output_layouts=rows),
        "norm": split.SequenceParallel(),
        "output": split.ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), use_local_output=False),
    }
    split.parallelize_module(
        model, mesh, {name: how for name, how in outside.items() if getattr(model, name) is not None}
    )
    for layer in model.layers.values():
        split.parallelize_module(layer, mesh, {
            "attention_norm": split.SequenceParallel(),
            "attention": split.PrepareModuleInput(input_layouts=(rows, None), desired_input_layouts=(all_of_it, None)),
            "attention.query": split.ColwiseParallel(), "attention.key": split.ColwiseParallel(),
            "attention.value": split.ColwiseParallel(), "attention.out": split.RowwiseParallel(output_layouts=rows),
            "mlp_norm": split.SequenceParallel(),
            "mlp": split.PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(all_of_it,)),
            "mlp.gate": split.ColwiseParallel(), "mlp.up": split.ColwiseParallel(),
            "mlp.down": split.RowwiseParallel(output_layouts=rows),
        })  # fmt: skip


def share_out(model: Stage, mesh: DeviceMesh, bf16: bool, keep: bool) -> None:
    """Data parallelism: every layer's parameters are gathered when it needs them."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Mean over the tokens."""
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def main() -> None:
    """Train."""
    told = argparse.ArgumentParser()
    for name, default in (("tp", 1), ("pp", 1), ("steps", 3), ("batch", 8), ("context", 32), ("micro", 2)):
        told.add_argument(f"--{name}", type=int, default=default)
    told.add_argument("--size", choices=SIZES, default="tiny")
    told.add_argument("--recompute", choices=("none", "some", "layers"), default="none")
    for name in ("bf16", "quiet"):
        told.add_argument(f"--{name}", action="store_true")
    options = told.parse_args()
    alone: dict[str, Any] = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **alone)
    dp = dist.get_world_size() // (options.tp * options.pp)
    mesh = init_device_mesh("cpu", (options.pp, dp, options.tp), mesh_dim_names=("pp", "dp", "tp"))
    stage, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
    torch.manual_seed(0)
    size, last = SIZES[options.size], stage == options.pp - 1
    model = Stage(size, options.context, stage, options.pp, options.recompute)
    if options.tp > 1:
        split_matrices(model, mesh["tp"])
    if dp > 1 or options.bf16:
        share_out(model, mesh["dp"], options.bf16, options.pp > 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    if options.pp > 1:
        part = PipelineStage(model, stage, options.pp, torch.device("cpu"), group=mesh.get_group("pp"))
        schedule = Schedule1F1B(part, options.batch // options.micro, loss_fn=loss_of)
    for step in range(options.steps):
        draw = torch.Generator().manual_seed(step)
        every = torch.randint(size.vocabulary, (dp * options.batch, options.context + 1), generator=draw)
        tokens = every[replica * options.batch : (replica + 1) * options.batch]
        losses: list[Tensor] = []
        with split.loss_parallel():
            if options.pp > 1:
                given = (tokens[:, :-1],) if stage == 0 else ()
                schedule.step(*given, target=tokens[:, 1:] if last else None, losses=losses if last else None)
            else:
                losses = [loss_of(model(tokens[:, :-1]), tokens[:, 1:])]
                losses[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        if not options.quiet:
            mean = torch.stack([one.detach() for one in losses]).mean() if last else torch.zeros(())
            mean = mean.full_tensor() if hasattr(mean, "full_tensor") else mean
            dist.all_reduce(mean)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {mean.item() / (dp * options.tp):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
