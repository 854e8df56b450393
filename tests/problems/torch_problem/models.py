"""Small modules with whatever makes a module hard to train as one of many."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from syncline.comm import SimulatedCommunicator
from syncline.methods import DDP
from syncline.optim import sgdm
from syncline.training import parameter_groups, rows_of, train

ITEMS, PIXELS, CLASSES, TOKENS = 48, 6, 4, 11
STEPS, LR, SEED = 14, 0.1, 3


def images(items: int = ITEMS) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (items,), generator=source)
    return torch.randn(items, 1, PIXELS, PIXELS, generator=source) + labels.view(-1, 1, 1, 1) / 2, labels


def sentences(items: int = ITEMS) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    tokens = torch.randint(TOKENS, (items, 6), generator=source)
    return tokens[:, :-1], tokens[:, 1:]


class Convolutional(nn.Sequential):
    """Convolutions, batch norm, and dropout where it is wanted."""

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(dropout),
            nn.Conv2d(4, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES),
        )  # fmt: skip


class TiedFrozen(nn.Module):
    """An embedding that is the output layer too, a frozen layer between, and a mask as a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, 6)
        self.fixed = nn.Linear(6, 6).requires_grad_(False)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, TOKENS, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("mask", torch.tensor([1.0, 1, 1, 0, 1, 1]), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(self.fixed(self.table(tokens)).relu()) * self.mask)
        return logits


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm, self.head = (
            nn.Embedding(TOKENS, 5),
            nn.LSTM(5, 6, batch_first=True),
            nn.Linear(6, TOKENS),
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.lstm(self.table(tokens))[0])
        return logits


class Answering(nn.Module):
    """As those of Hugging Face: a batch by keywords, an object with ``.loss`` in return."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Recurrent()

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> SimpleNamespace:
        logits = self.inner(input_ids)
        return SimpleNamespace(loss=token_loss(logits, labels), logits=logits)


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


class Dictionaries(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        inputs, labels = sentences()
        return {"input_ids": inputs[number], "labels": labels[number]}


def classified(output, target):
    return nn.functional.cross_entropy(output, target)


def trained(problem, make=None, *, workers=1, seeds=(SEED,), steps=STEPS, dtype=torch.float32, **options):
    comm = SimulatedCommunicator(workers, len(seeds))
    task = problem.build(rows_of(comm, seeds), dtype=dtype)
    make = make or (lambda params, comm: DDP(params, LR, sgdm(0.9), comm=comm, worker_axis=True))
    method = make(parameter_groups(task), comm)
    return train(task, method, seeds, steps, **options), task, comm
