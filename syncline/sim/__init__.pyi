from .clocks.overlap import data_parallel as data_parallel, run_lockstep as run_lockstep
from .clocks.phases_and_failures import phased_clock as phased_clock
from .clocks.single_collective import (
    Round as Round,
    collective_finish_s as collective_finish_s,
    rounds_finish_s as rounds_finish_s,
)
from .clocks.training import Call as Call, Clock as Clock, clock as clock
from .events.run import run_events as run_events
from .lockstep.routed import Contention as Contention
from .pipelines.pipeline import Durations as Durations, Pipeline as Pipeline
from .pipelines.report import PipelineReport as PipelineReport, report as report, task_spans as task_spans
from .pipelines.run import run_pipeline as run_pipeline
from .pipelines.schedules import (
    SCHEDULES as SCHEDULES,
    PipelineTask as PipelineTask,
    Schedule as Schedule,
    schedule as schedule,
)
from .program.disturbances import (
    ComputeTime as ComputeTime,
    Disturbance as Disturbance,
    ExponentialTail as ExponentialTail,
    LatencyJitter as LatencyJitter,
    LogNormalJitter as LogNormalJitter,
    ParetoTail as ParetoTail,
    Pause as Pause,
    PersistentSpeeds as PersistentSpeeds,
    SlowLink as SlowLink,
    Slowdowns as Slowdowns,
    SlowWorker as SlowWorker,
    with_slow_links as with_slow_links,
)
from .program.instructions import (
    Collective as Collective,
    Compute as Compute,
    HostWait as HostWait,
    Instruction as Instruction,
    Program as Program,
    Queued as Queued,
    Recv as Recv,
    Send as Send,
    StreamMark as StreamMark,
    StreamWait as StreamWait,
    Wait as Wait,
)
from .program.rounds import rounds as rounds
from .program.timeline import STREAMS as STREAMS, Span as Span, Timeline as Timeline, chrome_trace as chrome_trace
