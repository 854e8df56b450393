"""The methods: real optimizer math over the worker axis, composed from parts."""

from syncline.optim.base import MeanGradient, Method, OuterOptimizer, Reducer, SyncPolicy, UpdateRule
from syncline.optim.ddp import DDP
from syncline.optim.demo import DeMo, demo_rule
from syncline.optim.des_loc import DESLOC
from syncline.optim.diloco import DiLoCo
from syncline.optim.dion import CurvaDion, Dion, DionRule
from syncline.optim.local import Local
from syncline.optim.matrices import MatrixSplit, Orthogonalised, Signed
from syncline.optim.mt_dao import MTDAO, multi_momentum_rule
from syncline.optim.muon import muon
from syncline.optim.outer import FedAdam, Nesterov
from syncline.optim.power_sgd import PowerSGD
from syncline.optim.rules import AdamScaling, AdoptScaling, MomentumRule, Unscaled, adam, adopt, sgdm
from syncline.optim.schedules import warmup_stable_decay, wsd_factor
from syncline.optim.streaming import Streaming, StreamingDiLoCo, StreamingMTDAO
from syncline.optim.sync import EveryStep, Periodic
from syncline.optim.triggers import RMMC, Every

__all__ = [
    "DDP",
    "DESLOC",
    "MTDAO",
    "RMMC",
    "AdamScaling",
    "AdoptScaling",
    "CurvaDion",
    "DeMo",
    "DiLoCo",
    "Dion",
    "DionRule",
    "Every",
    "EveryStep",
    "FedAdam",
    "Local",
    "MatrixSplit",
    "MeanGradient",
    "Method",
    "MomentumRule",
    "Nesterov",
    "Orthogonalised",
    "OuterOptimizer",
    "Periodic",
    "PowerSGD",
    "Reducer",
    "Signed",
    "Streaming",
    "StreamingDiLoCo",
    "StreamingMTDAO",
    "SyncPolicy",
    "Unscaled",
    "UpdateRule",
    "adam",
    "adopt",
    "demo_rule",
    "multi_momentum_rule",
    "muon",
    "sgdm",
    "warmup_stable_decay",
    "wsd_factor",
]
