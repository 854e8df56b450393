"""Communicators over the worker axis, wire formats, and the ledger of what was sent."""

from syncline.comm.base import Communicator, Handle, ReduceOp, encoded_from, first_rows, flat, for_all
from syncline.comm.copies import as_one_copy, as_own_copies, computed_once, for_rows, is_one_copy, the_copy
from syncline.comm.floats import E3M0
from syncline.comm.integers import PackedIntegers
from syncline.comm.ledger import PLAIN, Details, Ledger
from syncline.comm.membership import Absence, Membership
from syncline.comm.processes import ProcessGroupCommunicator
from syncline.comm.shapes import ShapesCommunicator
from syncline.comm.shared_memory import CarriedCollective, SharedMemory
from syncline.comm.signs import PackedSigns
from syncline.comm.simulated import SimulatedCommunicator
from syncline.comm.sparse import SparsePairs
from syncline.comm.wire import BF16, DENSE, FP16, WIRE_FORMATS, WireFormat

__all__ = [
    "BF16",
    "DENSE",
    "E3M0",
    "FP16",
    "PLAIN",
    "WIRE_FORMATS",
    "Absence",
    "CarriedCollective",
    "Communicator",
    "Details",
    "Handle",
    "Ledger",
    "Membership",
    "PackedIntegers",
    "PackedSigns",
    "ProcessGroupCommunicator",
    "ReduceOp",
    "ShapesCommunicator",
    "SharedMemory",
    "SimulatedCommunicator",
    "SparsePairs",
    "WireFormat",
    "as_one_copy",
    "as_own_copies",
    "computed_once",
    "encoded_from",
    "first_rows",
    "flat",
    "for_all",
    "for_rows",
    "is_one_copy",
    "the_copy",
]
