"""The discrete-event simulator: workers that run programs over links, and the clock of a training.

>>> from syncline.costmodel import NETWORKS
>>> each_step = [Call(step, "all_reduce", 619 * 2**20) for step in range(10)]
>>> f"{clock(each_step, 3.375, NETWORKS['wan'].network, workers=2, steps=10).step_time_s:.3f}"
'8.618'
"""

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import calls_of
from syncline.sim.clocks.overlap import data_parallel, run_lockstep
from syncline.sim.clocks.phases_and_failures import phased_clock
from syncline.sim.clocks.single_collective import collective_finish_s, rounds_finish_s
from syncline.sim.clocks.training import Clock, clock
from syncline.sim.events.run import run_events
from syncline.sim.lockstep.routed import Contention
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.report import PipelineReport, report, task_spans
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import SCHEDULES, PipelineTask, Schedule, schedule
from syncline.sim.program.disturbances import (
    ComputeTime,
    Disturbance,
    ExponentialTail,
    LatencyJitter,
    LogNormalJitter,
    ParetoTail,
    Pause,
    PersistentSpeeds,
    Slowdowns,
    SlowLink,
    SlowWorker,
    with_slow_links,
)
from syncline.sim.program.instructions import (
    Collective,
    Compute,
    HostWait,
    Instruction,
    Program,
    Queued,
    Recv,
    Send,
    StreamMark,
    StreamWait,
    Wait,
)
from syncline.sim.program.rounds import rounds
from syncline.sim.program.timeline import STREAMS, Span, Timeline, chrome_trace

__all__ = [
    "SCHEDULES",
    "STREAMS",
    "Call",
    "Clock",
    "Collective",
    "Compute",
    "ComputeTime",
    "Contention",
    "Disturbance",
    "Durations",
    "ExponentialTail",
    "HostWait",
    "Instruction",
    "LatencyJitter",
    "LogNormalJitter",
    "ParetoTail",
    "Pause",
    "PersistentSpeeds",
    "Pipeline",
    "PipelineReport",
    "PipelineTask",
    "Program",
    "Queued",
    "Recv",
    "Round",
    "Schedule",
    "Send",
    "SlowLink",
    "SlowWorker",
    "Slowdowns",
    "Span",
    "StreamMark",
    "StreamWait",
    "Timeline",
    "Wait",
    "calls_of",
    "chrome_trace",
    "clock",
    "collective_finish_s",
    "data_parallel",
    "phased_clock",
    "report",
    "rounds",
    "rounds_finish_s",
    "run_events",
    "run_lockstep",
    "run_pipeline",
    "schedule",
    "task_spans",
    "with_slow_links",
]
