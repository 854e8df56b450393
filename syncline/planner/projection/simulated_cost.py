"""Cost of a collective without a closed form: its simulation, which is imported when a projection first needs it."""

from __future__ import annotations

from syncline.registry import lazy_function

simulated_s = lazy_function("syncline.sim.clocks.simulated:simulated_s")
"""Return the seconds of a collective and the evaluator, see `syncline.sim.clocks.simulated.simulated_s`."""
