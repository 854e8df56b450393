"""A training by EXO Gym, a script that knows nothing of the project: ``peer_exogym.py METHOD RELUS STEPS WORKERS``.

The MLP has 64 inputs, a hidden layer of RELUS and 10 classes; 1,437 images of random numbers, batches of 32.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import Tensor, nn

join_group = torch.distributed.init_process_group


def join_group_on_linux(*arguments: Any, **options: Any) -> None:
    """Join a process group over Linux's loopback, because EXO Gym names that of macOS, ``lo0``."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    join_group(*arguments, **options)


if __name__ in ("__main__", "__mp_main__"):  # the script, or one of the processes that EXO Gym spawns
    torch.distributed.init_process_group = join_group_on_linux


class Classifier(nn.Module):
    """The MLP, which returns the loss of a batch of images and labels, as EXO Gym expects."""

    def __init__(self, relus: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, relus), nn.ReLU(), nn.Linear(relus, 10))

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)


def main(method: str, relus: int, steps: int, workers: int) -> None:
    """Train with EXO Gym, which only this function needs."""
    from exogym.strategy.demo import DeMoStrategy
    from exogym.strategy.diloco import DiLoCoStrategy
    from exogym.strategy.optim import OptimSpec
    from exogym.strategy.strategy import SimpleReduceStrategy
    from exogym.trainer import Trainer

    adam = OptimSpec(torch.optim.Adam, lr=1e-3)
    strategies = {"ddp-adam": SimpleReduceStrategy(adam), "diloco": DiLoCoStrategy(adam, H=10), "demo": DeMoStrategy()}
    images = torch.utils.data.TensorDataset(torch.randn(1437, 64), torch.randint(10, (1437,)))
    trainer = Trainer(Classifier(relus), images, images, device="cpu")
    trainer.fit(
        num_epochs=1000, strategy=strategies[method], num_nodes=workers, max_steps=steps, batch_size=32,
        minibatch_size=32, val_size=32, val_interval=steps, run_name="peer",
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
