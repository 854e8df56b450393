from .base import (
    Communicator as Communicator,
    Handle as Handle,
    ReduceOp as ReduceOp,
    encoded_from as encoded_from,
    first_rows as first_rows,
    flat as flat,
    for_all as for_all,
)
from .copies import (
    as_one_copy as as_one_copy,
    as_own_copies as as_own_copies,
    computed_once as computed_once,
    for_rows as for_rows,
    is_one_copy as is_one_copy,
    the_copy as the_copy,
)
from .packed import E3M0 as E3M0
from .packed import PackedIntegers as PackedIntegers
from .base import PLAIN as PLAIN, Details as Details, Ledger as Ledger
from .simulated import Absence as Absence, Membership as Membership
from .processes import ProcessGroupCommunicator as ProcessGroupCommunicator
from .simulated import ShapesCommunicator as ShapesCommunicator
from .transport import (
    CarriedCollective as CarriedCollective,
    SharedMemory as SharedMemory,
)
from .packed import PackedSigns as PackedSigns
from .simulated import SimulatedCommunicator as SimulatedCommunicator
from .packed import SparsePairs as SparsePairs
from .wire import BF16 as BF16, DENSE as DENSE, FP16 as FP16, WIRE_FORMATS as WIRE_FORMATS, WireFormat as WireFormat
