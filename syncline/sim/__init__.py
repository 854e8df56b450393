"""The discrete-event simulator: workers that run programs over links, and the clock of a training.

>>> from syncline.costmodel.networks import network
>>> each_step = [Call(step, "all_reduce", 619 * 2**20) for step in range(10)]
>>> f"{clock(each_step, 3.375, network('wan'), workers=2, steps=10).step_time_s:.3f}"
'8.618'
"""

from syncline.sim.clock import Clock, clock
from syncline.sim.collective import collective_finish_s, rounds_finish_s
from syncline.sim.compute import ComputeTime, Disturbance, LogNormalJitter, Pause, SlowWorker
from syncline.sim.events import run_events
from syncline.sim.faults import LatencyJitter, SlowLink, with_slow_links
from syncline.sim.overlap import calls_of, data_parallel, run_lockstep
from syncline.sim.phases import phased_clock
from syncline.sim.programs import Call, Collective, Compute, Instruction, Program, Recv, Send, Wait
from syncline.sim.rounds import Round, rounds
from syncline.sim.schedule import Contention
from syncline.sim.stragglers import ExponentialTail, ParetoTail, PersistentSpeeds, Slowdowns
from syncline.sim.timeline import STREAMS, Span, Timeline
from syncline.sim.trace import chrome_trace

__all__ = [
    "STREAMS",
    "Call",
    "Clock",
    "Collective",
    "Compute",
    "ComputeTime",
    "Contention",
    "Disturbance",
    "ExponentialTail",
    "Instruction",
    "LatencyJitter",
    "LogNormalJitter",
    "ParetoTail",
    "Pause",
    "PersistentSpeeds",
    "Program",
    "Recv",
    "Round",
    "Send",
    "SlowLink",
    "SlowWorker",
    "Slowdowns",
    "Span",
    "Timeline",
    "Wait",
    "calls_of",
    "chrome_trace",
    "clock",
    "collective_finish_s",
    "data_parallel",
    "phased_clock",
    "rounds",
    "rounds_finish_s",
    "run_events",
    "run_lockstep",
    "with_slow_links",
]
