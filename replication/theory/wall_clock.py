"""The wall-clock models of CurvaDion and MT-DAO, as printed, for comparison with ours. All arguments broadcast.

They are simpler than `syncline.costmodel.traffic.step_time`: CurvaDion measures the time of a synchronisation instead
of deriving it, and MT-DAO counts the latency once per all-reduce, where a ring has it 2 (P - 1) times.
"""

from __future__ import annotations

from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


def curvadion_step_s(
    compute_s: FloatOrArray,
    optimizer_s: FloatOrArray,
    flag_s: FloatOrArray,
    sync_s: FloatOrArray,
    sync_rate: FloatOrArray,
) -> FloatOrArray:
    """Return the mean seconds of a step that synchronises on a trigger: ``compute + optimizer + flag + rate * sync``.

    Args:
        compute_s: forward and backward, in seconds.
        optimizer_s: the update, in seconds.
        flag_s: the all-reduce of the trigger, paid every step, in seconds.
        sync_s: one full synchronisation, in seconds.
        sync_rate: the fraction of steps that synchronise.

    Source: CurvaDion, Appendix E.
    """
    return compute_s + optimizer_s + flag_s + sync_rate * sync_s


def curvadion_speedup(
    compute_s: FloatOrArray,
    optimizer_s: FloatOrArray,
    flag_s: FloatOrArray,
    sync_s: FloatOrArray,
    sync_rate: FloatOrArray,
) -> FloatOrArray:
    """Return the speedup over synchronising every step: ``(compute + optimizer + sync) / curvadion_step_s``.

    The baseline has no trigger and hence no flag. See `curvadion_step_s` for the arguments.

    Source: CurvaDion, Appendix E and Table 3 (a rate of 1% gives the table; the text's 1.203 and 4.396 use 0.76%).

    >>> [f"{curvadion_speedup(3.375, 0.039, 0.0005, sync_s, 0.01):.4f}" for sync_s in (0.07, 0.7, 12.0)]
    ['1.0201', '1.2024', '4.3610']
    """
    every_step_s = curvadion_step_s(compute_s, optimizer_s, 0.0, sync_s, 1.0)
    return every_step_s / curvadion_step_s(compute_s, optimizer_s, flag_s, sync_s, sync_rate)


def mt_dao_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of an all-reduce as MT-DAO counts them: ``(2 n / B) (1 - 1 / M) + l``.

    It is `ring_all_reduce_s` at its bandwidth, with the latency paid once.

    Args:
        workers: M.
        nbytes: n, in bytes.
        link: latency l and bandwidth B.

    Source: MT-DAO, Appendix E.1, the bracket of equations (5) and (6).
    """
    return 2 * nbytes / link.bandwidth_bytes_per_s * (1 - 1 / workers) + link.latency_s


def unified_total_s(
    compute_s: FloatOrArray,
    *,
    steps: FloatOrArray,
    period: FloatOrArray,
    state_bytes: FloatOrArray,
    workers: IntOrArray,
    link: Link,
) -> FloatOrArray:
    """Return the seconds of a training that averages three states in one all-reduce.

    They are ``t_compute + T / K [2 (3 d) / B (1 - 1 / M) + l]``.

    Args:
        compute_s: t_compute, computing seconds of the whole training.
        steps: T.
        period: K, steps between two synchronisations.
        state_bytes: d, bytes of one state (the parameters, the first or the second momentum).
        workers: M.
        link: latency l and bandwidth B.

    Source: MT-DAO, Appendix E.1, equation (5).
    """
    return compute_s + steps / period * mt_dao_all_reduce_s(workers, 3 * state_bytes, link)


def half_life_total_s(
    compute_s: FloatOrArray,
    *,
    steps: FloatOrArray,
    periods: tuple[FloatOrArray, FloatOrArray, FloatOrArray],
    state_bytes: FloatOrArray,
    workers: IntOrArray,
    link: Link,
) -> FloatOrArray:
    """Return the seconds of a training that averages three states in separate all-reduces.

    They are ``t_compute + sum_i T / K_i [2 d / B (1 - 1 / M) + l]``.

    Args:
        compute_s: t_compute, computing seconds of the whole training.
        steps: T.
        periods: K_x, K_u, K_v of the parameters, the first and the second momentum; each a number or an array.
        state_bytes: d, bytes of one state.
        workers: M.
        link: latency l and bandwidth B.

    Source: MT-DAO, Appendix E.1, equation (6).
    """
    k_x, k_u, k_v = periods
    syncs = steps / k_x + steps / k_u + steps / k_v
    return compute_s + syncs * mt_dao_all_reduce_s(workers, state_bytes, link)
