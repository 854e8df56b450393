"""The parts of methods: real optimizer math over the worker axis, and the one loop that plays parts together."""

from syncline.optim.ademamix import AdEMAMix
from syncline.optim.base import OuterOptimizer, Reducer, SyncPolicy, UpdateRule
from syncline.optim.buffers import Buffers, mean_buffers
from syncline.optim.compressors import QSGD, BlockTopK, Compressor, LpMean, OneBit, TopK
from syncline.optim.demo import CoefficientMean, demo_rule
from syncline.optim.dion import DionMethod, DionRule
from syncline.optim.error_feedback import CompressedAverages, CompressedMean
from syncline.optim.ldadam import LowRankAdam, ldadam
from syncline.optim.lion import LionRule, lion
from syncline.optim.lion_cub import LionCubMethod
from syncline.optim.matrices import MatrixSplit, Orthogonalised, Signed
from syncline.optim.method import MeanGradient, Method
from syncline.optim.momenta import aggmo, qhadam, qhadopt, qhm
from syncline.optim.mt_dao import multi_momentum_rule
from syncline.optim.muon import muon
from syncline.optim.nesterov import NesterovAdam
from syncline.optim.one_bit import OneBitMean
from syncline.optim.one_bit_adam import OneBitAdamMethod
from syncline.optim.outer import FedAdam, Nesterov
from syncline.optim.participation import PartialParticipation
from syncline.optim.power_sgd import FactorMean
from syncline.optim.quantised_vote import QuantisedVote
from syncline.optim.quantisers import (
    log_quantise,
    log_restore,
    power_mean,
    qsgd,
    quantise_lp,
    quantise_max,
    sign_agreement,
    ternary_sign,
    without_zeros,
)
from syncline.optim.rotated import RotatedAdam
from syncline.optim.rotation import basis_rotation, eshampoo, full_rotation, galore, soap
from syncline.optim.rules import MomentumRule, ada_sgd, adam, adopt, sgdm
from syncline.optim.scalings import AdamScaling, AdoptScaling, Unscaled
from syncline.optim.schedules import warmup_stable_decay, wsd_factor
from syncline.optim.scion import scion
from syncline.optim.selsync import SelSyncMethod
from syncline.optim.staleness import DelayCompensation, discount, discounted, look_ahead
from syncline.optim.streaming import Streaming
from syncline.optim.sync import EveryStep, Periodic, Random
from syncline.optim.triggers import RMMC, Every, GradientChange
from syncline.optim.votes import DirectVote, OneBitVote, ServerVote, Vote
from syncline.optim.zero_one_adam import ZeroOneAdamMethod, ZeroOneSchedule

__all__ = [
    "QSGD",
    "RMMC",
    "AdEMAMix",
    "AdamScaling",
    "AdoptScaling",
    "BlockTopK",
    "Buffers",
    "CoefficientMean",
    "CompressedAverages",
    "CompressedMean",
    "Compressor",
    "DelayCompensation",
    "DionMethod",
    "DionRule",
    "DirectVote",
    "Every",
    "EveryStep",
    "FactorMean",
    "FedAdam",
    "GradientChange",
    "LionCubMethod",
    "LionRule",
    "LowRankAdam",
    "LpMean",
    "MatrixSplit",
    "MeanGradient",
    "Method",
    "MomentumRule",
    "Nesterov",
    "NesterovAdam",
    "OneBit",
    "OneBitAdamMethod",
    "OneBitMean",
    "OneBitVote",
    "Orthogonalised",
    "OuterOptimizer",
    "PartialParticipation",
    "Periodic",
    "QuantisedVote",
    "Random",
    "Reducer",
    "RotatedAdam",
    "SelSyncMethod",
    "ServerVote",
    "Signed",
    "Streaming",
    "SyncPolicy",
    "TopK",
    "Unscaled",
    "UpdateRule",
    "Vote",
    "ZeroOneAdamMethod",
    "ZeroOneSchedule",
    "ada_sgd",
    "adam",
    "adopt",
    "aggmo",
    "basis_rotation",
    "demo_rule",
    "discount",
    "discounted",
    "eshampoo",
    "full_rotation",
    "galore",
    "ldadam",
    "lion",
    "log_quantise",
    "log_restore",
    "look_ahead",
    "mean_buffers",
    "multi_momentum_rule",
    "muon",
    "power_mean",
    "qhadam",
    "qhadopt",
    "qhm",
    "qsgd",
    "quantise_lp",
    "quantise_max",
    "scion",
    "sgdm",
    "sign_agreement",
    "soap",
    "ternary_sign",
    "warmup_stable_decay",
    "without_zeros",
    "wsd_factor",
]
