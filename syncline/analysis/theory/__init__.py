"""Closed forms of the papers' theory, to be drawn beside what a training measured: a module per paper.

All broadcast over NumPy arrays. Momenta here are numbers or norms in the units of a gradient; periods and half-lives
are in steps. Where a paper's formula is wrong as printed, a ``form`` offers it printed and mended.
"""

from syncline.analysis.theory.curvadion import (
    rmmc_bias_over_curvature,
    rmmc_exact,
    rmmc_leading_order,
)
from syncline.analysis.theory.demo import (
    SignumBound,
    coin_mean_bias,
    compaction_gain,
    dct_variances,
    equal_sizes_bias,
    gaussian_top_share,
    kept_momentum_bound,
    signum_bound,
    signum_step,
    sparse_mean_bias_bound,
    top_k_error_bound,
    top_k_error_bound_l1,
)
from syncline.analysis.theory.lion_cub import (
    QuantiserError,
    VoteShares,
    mean_size,
    packed_vote_s,
    packing_break_even,
    quantiser_error,
    speedup_limit,
    vote_against_sum,
    vote_shares,
)
from syncline.analysis.theory.mt_dao import (
    beta_omega,
    covariance_information_nats,
    drift_factor,
    flat_drift,
    momentum_information_nats,
    momentum_noise_variance,
    mt_dao_bound,
    mt_dao_rate,
    mt_dao_step_size,
    quasi_hyperbolic_contraction,
    quasi_hyperbolic_stability,
    shared_batch_variance,
)
from syncline.analysis.theory.random_averages import (
    RandomAverages,
    random_averages,
)

__all__ = [
    "QuantiserError",
    "RandomAverages",
    "SignumBound",
    "VoteShares",
    "beta_omega",
    "coin_mean_bias",
    "compaction_gain",
    "covariance_information_nats",
    "dct_variances",
    "drift_factor",
    "equal_sizes_bias",
    "flat_drift",
    "gaussian_top_share",
    "kept_momentum_bound",
    "mean_size",
    "momentum_information_nats",
    "momentum_noise_variance",
    "mt_dao_bound",
    "mt_dao_rate",
    "mt_dao_step_size",
    "packed_vote_s",
    "packing_break_even",
    "quantiser_error",
    "quasi_hyperbolic_contraction",
    "quasi_hyperbolic_stability",
    "random_averages",
    "rmmc_bias_over_curvature",
    "rmmc_exact",
    "rmmc_leading_order",
    "shared_batch_variance",
    "signum_bound",
    "signum_step",
    "sparse_mean_bias_bound",
    "speedup_limit",
    "top_k_error_bound",
    "top_k_error_bound_l1",
    "vote_against_sum",
    "vote_shares",
]
