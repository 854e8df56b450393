"""A script that knows nothing of the project: collectives one after another, or a small transformer under DDP.

    traced.py collectives|training OUT ROUNDS [BATCH]

Rank 0 writes CPU seconds of its main thread to OUT, a JSON list: of a collective each, or of a step.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, LAYERS, TOKENS, VOCABULARY = 256, 4, 4, 128, 2048
CALLS = 500


def cpu_s() -> float:
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = self.attend(self.before(x)).split(WIDTH, 2)
        query, key, value = (one.view(batch, tokens, HEADS, -1).transpose(1, 2) for one in parts)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, WIDTH))
        told: Tensor = x + self.mlp(self.between(x))
        return told


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        told: Tensor = self.head(self.norm(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1])))))
        return told


def collectives(rounds: int) -> list[float]:
    x = torch.ones(256)
    for _ in range(50):
        dist.all_reduce(x)
    taken = []
    for _ in range(rounds):
        begin = cpu_s()
        for _ in range(CALLS):
            dist.all_reduce(x)
        taken.append((cpu_s() - begin) / CALLS)
    return taken


def training(rounds: int, batch: int) -> list[float]:
    torch.manual_seed(0)
    model = DistributedDataParallel(Transformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    taken = []
    for _ in range(rounds + 2):
        begin = cpu_s()
        text = torch.randint(VOCABULARY, (batch, TOKENS + 1))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        taken.append(cpu_s() - begin)
    return taken[2:]


def main(what: str, out: str, rounds: int, batch: int = 8) -> None:
    dist.init_process_group("gloo")
    taken = collectives(rounds) if what == "collectives" else training(rounds, batch)
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps([float(one) for one in taken]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    what, out, *numbers = sys.argv[1:]
    main(what, out, *map(int, numbers))
