"""A training with a straggler, on two networks: in every step another of four workers takes 3 ms instead of 1 ms.

Data parallelism averages gradients in every step. Local SGD averages every 8 steps, and between averages each worker is
slow twice: 6 × 1 + 2 × 3 = 12 ms. The parameters are few, so an all-reduce is 2 (P - 1) = 6 latencies α, of 50 us on
10gbe and of 25 ms on wan. For 64 steps:

    ddp     at most 64 × (3 ms + 6 α) = 211.2 ms and 9792 ms; less, as in a ring who is early sends early
    local   8 × (12 ms + 6 α) = 98.4 ms and 1296 ms

One training gives both clocks: it does not know how long anything takes.

Output:

    ddp    64 calls  10gbe  208.1 ms  wan 9696.0 ms  loss 0.001
    local   8 calls  10gbe   98.4 ms  wan 1296.0 ms  loss 0.001
"""

from syncline.comm import SimulatedCommunicator
from syncline.methods import DDP, Local
from syncline.optim import sgdm
from syncline.problems import Quadratic
from syncline.sim import Call, clock
from syncline.specs import network
from syncline.training import rows_of, train

WORKERS, STEPS = 4, 64
compute_s = [[3e-3 if worker == step % WORKERS else 1e-3 for worker in range(WORKERS)] for step in range(STEPS)]
methods = {
    "ddp": lambda params, **world: DDP(params, 0.05, sgdm(), **world),
    "local": lambda params, **world: Local(params, 0.05, sgdm(), period=8, **world),
}
for name, make in methods.items():
    comm = SimulatedCommunicator(WORKERS)
    task = Quadratic(spectrum=(1.0, 10.0), noise_std=0.1).build(rows_of(comm, (0,)))
    history = train(task, make(task.params.values(), comm=comm, worker_axis=True), (0,), STEPS)
    calls = [Call(one.step, one.collective, one.payload_bytes) for one in comm.ledger.records]
    ends_s = {on: clock(calls, compute_s, network(on), WORKERS, STEPS).step_end_s[-1] for on in ("10gbe", "wan")}
    times = "  ".join(f"{on} {end_s * 1e3:6.1f} ms" for on, end_s in ends_s.items())
    print(f"{name:5}  {len(calls):2} calls  {times}  loss {history.evaluation['loss'][-1].mean():.3f}")
