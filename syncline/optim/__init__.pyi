from . import groups as groups
from .momenta import AdEMAMix as AdEMAMix
from .base import (
    OuterOptimizer as OuterOptimizer,
    Reducer as Reducer,
    SyncPolicy as SyncPolicy,
    UpdateRule as UpdateRule,
)
from .sync import Buffers as Buffers, mean_buffers as mean_buffers
from .compressors import (
    QSGD as QSGD,
    BlockTopK as BlockTopK,
    Compressor as Compressor,
    LpMean as LpMean,
    OneBit as OneBit,
    TopK as TopK,
)
from .demo import CoefficientMean as CoefficientMean, demo_rule as demo_rule
from .dion import DionMethod as DionMethod, DionRule as DionRule
from .error_feedback import CompressedAverages as CompressedAverages, CompressedMean as CompressedMean
from .ldadam import LowRankAdam as LowRankAdam, ldadam as ldadam
from .lion import LionRule as LionRule, lion as lion
from .lion import LionCubMethod as LionCubMethod
from .matrices import MatrixSplit as MatrixSplit, Orthogonalised as Orthogonalised, Signed as Signed
from .method import MeanGradient as MeanGradient, Method as Method
from .momenta import aggmo as aggmo, qhadam as qhadam, qhadopt as qhadopt, qhm as qhm
from .momenta import multi_momentum_rule as multi_momentum_rule
from .muon import muon as muon
from .momenta import NesterovAdam as NesterovAdam
from .one_bit_adam import OneBitMean as OneBitMean
from .one_bit_adam import OneBitAdamMethod as OneBitAdamMethod
from .diloco import FedAdam as FedAdam, Nesterov as Nesterov
from .participation import PartialParticipation as PartialParticipation
from .power_sgd import FactorMean as FactorMean
from .votes import QuantisedVote as QuantisedVote
from .quantisers import (
    log_quantise as log_quantise,
    log_restore as log_restore,
    power_mean as power_mean,
    qsgd as qsgd,
    quantise_lp as quantise_lp,
    quantise_max as quantise_max,
    sign_agreement as sign_agreement,
    ternary_sign as ternary_sign,
    without_zeros as without_zeros,
)
from .rotation import RotatedAdam as RotatedAdam
from .rotation import (
    basis_rotation as basis_rotation,
    eshampoo as eshampoo,
    full_rotation as full_rotation,
    galore as galore,
    soap as soap,
)
from .rules import MomentumRule as MomentumRule, ada_sgd as ada_sgd, adam as adam, adopt as adopt, sgdm as sgdm
from .scalings import AdamScaling as AdamScaling, AdoptScaling as AdoptScaling, Unscaled as Unscaled
from .schedules import warmup_stable_decay as warmup_stable_decay, wsd_factor as wsd_factor
from .muon import scion as scion
from .triggers import SelSyncMethod as SelSyncMethod
from .asynchronous import (
    DelayCompensation as DelayCompensation,
    discount as discount,
    discounted as discounted,
    look_ahead as look_ahead,
)
from .diloco import Streaming as Streaming
from .sync import EveryStep as EveryStep, Periodic as Periodic, Random as Random
from .torch_rule import TorchRule as TorchRule
from .triggers import (
    RMMC as RMMC,
    AtSteps as AtSteps,
    Every as Every,
    GradientChange as GradientChange,
    Trigger as Trigger,
)
from .votes import DirectVote as DirectVote, OneBitVote as OneBitVote, ServerVote as ServerVote, Vote as Vote
from .zero_one_adam import (
    CodeSchedule as CodeSchedule,
    ZeroOneAdamMethod as ZeroOneAdamMethod,
    ZeroOneSchedule as ZeroOneSchedule,
)
