"""Batches read by other processes, objects saved by the first rank, layers computed twice, gradients added up."""

import contextlib
import io
import tempfile

import torch
import torch.distributed as dist
from common import batches, net, tell
from torch import nn
from torch.distributed import checkpoint
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint as again
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Twice(nn.Module):
    """A network of which the second half is computed once more in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.dropout = net(), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = self.net[:2](x)
        return again(lambda h: self.net[2:](self.dropout(h)), half, use_reentrant=False)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(Twice())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(*(torch.cat(parts) for parts in zip(*batches(0), strict=True)))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=2, pin_memory=False)
for _ in range(2):
    for number, (x, y) in enumerate(loader):
        last = number % 2 == 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / 2).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
kept = io.BytesIO()
if not rank:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, kept)
    print("told: saved", len(kept.getvalue()), flush=True)
place = [tempfile.mkdtemp()] if not rank else [None]
dist.broadcast_object_list(place)
state = {name: x.clone() for name, x in model.module.state_dict().items()}
checkpoint.save(state, checkpoint_id=place[0])
for x in state.values():
    x.zero_()
checkpoint.load(state, checkpoint_id=place[0])
model.module.load_state_dict(state)
tell("workers", model, loss)
