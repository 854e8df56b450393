from . import groups as groups
from .asynchronous import DelayCompensation as DelayCompensation, look_ahead as look_ahead
from .base import (
    OuterOptimizer as OuterOptimizer,
    Reducer as Reducer,
    SyncPolicy as SyncPolicy,
    UpdateRule as UpdateRule,
)
from .compressors import (
    QSGD as QSGD,
    BlockTopK as BlockTopK,
    Compressor as Compressor,
    LpMean as LpMean,
    OneBit as OneBit,
    TopK as TopK,
)
from .demo import CoefficientMean as CoefficientMean, demo_rule as demo_rule
from .diloco import FedAdam as FedAdam, Nesterov as Nesterov, Streaming as Streaming
from .dion import DionMethod as DionMethod, DionRule as DionRule
from .error_feedback import CompressedAverages as CompressedAverages, CompressedMean as CompressedMean
from .ldadam import LowRankAdam as LowRankAdam, ldadam as ldadam
from .lion import LionCubMethod as LionCubMethod, LionRule as LionRule, lion as lion
from .matrices import MatrixSplit as MatrixSplit, Orthogonalised as Orthogonalised, Signed as Signed
from .method import MeanGradient as MeanGradient, Method as Method
from .momenta import (
    AdEMAMix as AdEMAMix,
    NesterovAdam as NesterovAdam,
    aggmo as aggmo,
    multi_momentum_rule as multi_momentum_rule,
    qhadam as qhadam,
    qhadopt as qhadopt,
    qhm as qhm,
)
from .muon import muon as muon, scion as scion
from .one_bit_adam import OneBitAdamMethod as OneBitAdamMethod, OneBitMean as OneBitMean
from .participation import PartialParticipation as PartialParticipation
from .power_sgd import FactorMean as FactorMean
from .quantisers import (
    power_mean as power_mean,
    qsgd as qsgd,
    quantise_lp as quantise_lp,
    quantise_max as quantise_max,
    sign_agreement as sign_agreement,
)
from .rotation import (
    RotatedAdam as RotatedAdam,
    basis_rotation as basis_rotation,
    full_rotation as full_rotation,
)
from .rules import MomentumRule as MomentumRule, ada_sgd as ada_sgd, adam as adam, adopt as adopt, sgdm as sgdm
from .scalings import AdamScaling as AdamScaling, AdoptScaling as AdoptScaling, Unscaled as Unscaled
from .schedules import (
    discount as discount,
    discounted as discounted,
    warmup_stable_decay as warmup_stable_decay,
    wsd_factor as wsd_factor,
)
from .sync import (
    Buffers as Buffers,
    EveryStep as EveryStep,
    Periodic as Periodic,
    Random as Random,
    mean_buffers as mean_buffers,
)
from .torch_rule import TorchRule as TorchRule
from .triggers import (
    RMMC as RMMC,
    AtSteps as AtSteps,
    Every as Every,
    GradientChange as GradientChange,
    SelSyncMethod as SelSyncMethod,
    Trigger as Trigger,
)
from .votes import (
    DirectVote as DirectVote,
    OneBitVote as OneBitVote,
    QuantisedVote as QuantisedVote,
    ServerVote as ServerVote,
    Vote as Vote,
)
from .zero_one_adam import (
    CodeSchedule as CodeSchedule,
    ZeroOneAdamMethod as ZeroOneAdamMethod,
    ZeroOneSchedule as ZeroOneSchedule,
)
