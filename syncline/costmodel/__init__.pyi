from .collectives.cost import (
    NoClosedForm as NoClosedForm,
    best_algorithm as best_algorithm,
    closed_form_s as closed_form_s,
    collective_s as collective_s,
    gather_s as gather_s,
    ring_all_reduce_s as ring_all_reduce_s,
    rounds_and_block as rounds_and_block,
    wire_bytes as wire_bytes,
)
from .collectives.gloo import gloo_message_s as gloo_message_s, gloo_s as gloo_s
from .collectives.hierarchical import inner_sizes as inner_sizes, level_sizes as level_sizes, node_size as node_size
from .collectives.nccl import nccl_sockets_s as nccl_sockets_s
from .collectives.policies import POLICIES as POLICIES, chosen_algorithm as chosen_algorithm
from .collectives.table import (
    ALGORITHMS as ALGORITHMS,
    COLLECTIVES as COLLECTIVES,
    HIERARCHICAL as HIERARCHICAL,
    OF_DIRECT as OF_DIRECT,
    OF_GLOO as OF_GLOO,
    OF_NCCL as OF_NCCL,
    OF_PLACES as OF_PLACES,
    SERVERS as SERVERS,
    algorithms_on as algorithms_on,
)
from .compute.hardware import (
    HARDWARE as HARDWARE,
    BatchTimes as BatchTimes,
    Hardware as Hardware,
    compute_s as compute_s,
)
from .compute.model_shape import Model as Model, ModelShape as ModelShape, ModuleShape as ModuleShape
from .compute.models import MODELS as MODELS
from .compute.tensors import (
    TensorShape as TensorShape,
    dion_rank as dion_rank,
    is_worth_factors as is_worth_factors,
    largest_divisor as largest_divisor,
    matrix_sides as matrix_sides,
    model_fragments as model_fragments,
)
from .layouts.memory import (
    Activations as Activations,
    Memory as Memory,
    Precision as Precision,
    activation_bytes as activation_bytes,
    call_bytes as call_bytes,
    largest_call_bytes as largest_call_bytes,
    model_memory as model_memory,
    update_s as update_s,
)
from .network.graph import Edge as Edge, Graph as Graph
from .network.link import Link as Link, topology as topology
from .network.matrix import Matrix as Matrix
from .network.multi_level import Level as Level, MultiLevel as MultiLevel
from .network.paths import Network as Network, Topology as Topology
from .network.presets import NETWORKS as NETWORKS
from .network.software_costs import (
    GLOO as GLOO,
    GlooCosts as GlooCosts,
    HivemindCosts as HivemindCosts,
    NcclCosts as NcclCosts,
)
from .network.tcp import Tcp as Tcp
from .network.two_level import Sites as Sites, TwoLevel as TwoLevel
from .traffic.call import Call as Call
from .traffic.exchanges import (
    Exchange as Exchange,
    bytes_per_step as bytes_per_step,
    calls_at as calls_at,
    calls_by_step as calls_by_step,
    calls_of as calls_of,
    communication_factor as communication_factor,
    communication_s as communication_s,
    half_life as half_life,
    half_life_period as half_life_period,
    mean_bytes_per_step as mean_bytes_per_step,
)
from .traffic.step_time import StepTime as StepTime, mean_step as mean_step
