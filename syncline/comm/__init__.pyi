from .base import (
    Communicator as Communicator,
    Handle as Handle,
    ReduceOp as ReduceOp,
    encoding_details as encoding_details,
    first_row_per_replica as first_row_per_replica,
    flatten_rows as flatten_rows,
    repeat_for_workers as repeat_for_workers,
)
from .copies import (
    share_equal_rows as share_equal_rows,
    separate_rows as separate_rows,
    compute_once_if_shared as compute_once_if_shared,
    expand_rows as expand_rows,
    rows_share_memory as rows_share_memory,
    shared_row as shared_row,
)
from .packed import E3M0 as E3M0
from .packed import PackedIntegers as PackedIntegers
from .base import PLAIN as PLAIN, Details as Details, Ledger as Ledger
from .simulated import Absence as Absence, Membership as Membership
from .processes import ProcessGroupCommunicator as ProcessGroupCommunicator
from .simulated import ShapesCommunicator as ShapesCommunicator
from .transport import CarriedCollective as CarriedCollective, SharedMemory as SharedMemory
from .packed import PackedSigns as PackedSigns
from .simulated import SimulatedCommunicator as SimulatedCommunicator
from .packed import SparsePairs as SparsePairs
from .wire import BF16 as BF16, DENSE as DENSE, FP16 as FP16, WIRE_FORMATS as WIRE_FORMATS, WireFormat as WireFormat
