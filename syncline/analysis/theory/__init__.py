"""Closed forms of the papers' theory, to be drawn beside what a training measured: a module per paper.

All broadcast over NumPy arrays. Momenta here are numbers or norms in the units of a gradient; periods and half-lives
are in steps. Where a paper's formula is wrong as printed, a ``form`` offers it printed and mended.
"""

from syncline.analysis.theory.curvadion import rmmc_bias_over_curvature, rmmc_exact, rmmc_leading_order
from syncline.analysis.theory.demo import top_k_error_bound
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
from syncline.analysis.theory.random_averages import RandomAverages, random_averages

__all__ = [
    "QuantiserError",
    "RandomAverages",
    "VoteShares",
    "beta_omega",
    "covariance_information_nats",
    "drift_factor",
    "flat_drift",
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
    "speedup_limit",
    "top_k_error_bound",
    "vote_against_sum",
    "vote_shares",
]
