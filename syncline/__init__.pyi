from .api.folders import load as load
from .api.functions import (
    advise as advise,
    calibrate as calibrate,
    collectives as collectives,
    compare as compare,
    goodput as goodput,
    launch as launch,
    loss as loss,
    pipeline as pipeline,
    project as project,
    replicate as replicate,
    report as report,
    reproduce as reproduce,
    run as run,
    solve as solve,
    sweep as sweep,
    trace as trace,
    whatif as whatif,
)
from .api.spec_arguments import Link as Link
from .api.result import Result as Result
from .errors import SpecError as SpecError, SynclineError as SynclineError
from .methods.functions import (
    basis_rotation as basis_rotation,
    curvadion as curvadion,
    ddp as ddp,
    demo as demo,
    des_loc as des_loc,
    diloco as diloco,
    dion as dion,
    eshampoo as eshampoo,
    galore as galore,
    ldadam as ldadam,
    lion_cub as lion_cub,
    local as local,
    mt_dao as mt_dao,
    one_bit_adam as one_bit_adam,
    placed_dion as placed_dion,
    powersgd as powersgd,
    selsync as selsync,
    selsync_dion as selsync_dion,
    sign_sgd as sign_sgd,
    soap as soap,
    streaming_diloco as streaming_diloco,
    streaming_mt_dao as streaming_mt_dao,
    zero_one_adam as zero_one_adam,
)
from .problems import TorchProblem as TorchProblem
from .version import __version__ as __version__
