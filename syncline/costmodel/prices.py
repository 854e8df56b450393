"""What a training costs, in money, energy and carbon: by a list of prices that the user gives.

No price is assumed. Those of `PRICES` were found, each on its date; board powers are vendors'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from syncline.errors import SpecError

HOUR_S = 3600.0
KWH_J = 3.6e6
GB = 1e9


@dataclass(frozen=True)
class Prices:
    """A list of prices; what is not given is not told.

    Args:
        accelerator_hour: of an accelerator and hour, on demand.
        reserved_hour: likewise of those that are reserved.
        reserved: how many are: they are used first, the others on demand.
        egress_gb: of 10^9 bytes that leave a site.
        energy_kwh: of electricity, where accelerators are one's own.
        power_w: of an accelerator that computes, with its part of the machine; None: the hardware's board power.
        idle_power_w: of one that waits; None: nobody knows, and waiting is between nothing and computing.
        pue: power usage effectiveness: what the site draws over what its machines do; at least 1.
        carbon_kg_per_kwh: carbon intensity of the electricity, in kg of CO2 equivalent.
        currency: of the prices.
        name: for people.
        source: where the prices are from, and of when.

    Raises:
        SpecError: a negative price or power, more idle than busy power, or reserved accelerators without a price.
    """

    accelerator_hour: float | None = None
    reserved_hour: float | None = None
    reserved: int = 0
    egress_gb: float | None = None
    energy_kwh: float | None = None
    power_w: float | None = None
    idle_power_w: float | None = None
    pue: float = 1.0
    carbon_kg_per_kwh: float | None = None
    currency: str = "USD"
    name: str = "prices"
    source: str = ""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and not 0 <= value < float("inf"):
                raise SpecError(f"prices.{one.name}", value, "a number that is not negative")
        if not self.pue >= 1:
            raise SpecError("prices.pue", self.pue, "at least 1, what the machines alone draw")
        if self.reserved and self.reserved_hour is None:
            raise SpecError("prices.reserved", self.reserved, "none, unless reserved_hour says what they cost")
        if self.power_w is not None and (self.idle_power_w or 0.0) > self.power_w:
            raise SpecError("prices.idle_power_w", self.idle_power_w, f"at most power_w, {self.power_w:g}")

    def powered(self, board_power_w: float | None) -> tuple[float | None, float | None]:
        """Power of computing and of waiting, with a board power where the list has none."""
        power = board_power_w if self.power_w is None else self.power_w
        return power, self.idle_power_w


class Usage(NamedTuple):
    """What is used up.

    Attributes:
        accelerators: how many.
        seconds: they are held.
        busy_s: of these each of them computes.
        egress_bytes: that leave sites, all together; None if nobody knows.
    """

    accelerators: float
    seconds: float
    busy_s: float
    egress_bytes: float | None = 0.0


def energy_j(prices: Prices, usage: Usage, power_w: float, idle_power_w: float) -> float:
    """Energy at the site's meter: ``pue P (power busy + idle (time - busy))``.

    >>> energy_j(Prices(pue=1.5), Usage(2, 10.0, 6.0), 400.0, 100.0)
    8400.0
    """
    busy_s = min(usage.busy_s, usage.seconds)
    watts = power_w * busy_s + idle_power_w * (usage.seconds - busy_s)
    return prices.pue * usage.accelerators * watts


def carbon_kg(prices: Prices, joules: float) -> float | None:
    """Of so much energy; None without an intensity."""
    return None if prices.carbon_kg_per_kwh is None else prices.carbon_kg_per_kwh * joules / KWH_J


def cost(prices: Prices, usage: Usage, joules: float | None = None) -> float | None:
    """Money: accelerators by the hour, reserved ones first; bytes that leave sites; electricity.

    Args:
        prices: the list.
        usage: what is used up.
        joules: at the site's meter; None if nobody knows.

    Returns:
        None where the list has a price of what nobody knows, or no price at all.

    >>> prices = Prices(accelerator_hour=4.0, reserved_hour=2.0, reserved=8, egress_gb=0.05)
    >>> cost(prices, Usage(10, 7200.0, 3600.0, 100e9))
    53.0
    """
    reserved = min(usage.accelerators, prices.reserved)
    rest = usage.accelerators - reserved
    parts = [
        (prices.reserved_hour, reserved * usage.seconds / HOUR_S),
        (prices.accelerator_hour, rest * usage.seconds / HOUR_S),
        (prices.egress_gb, None if usage.egress_bytes is None else usage.egress_bytes / GB),
        (prices.energy_kwh, None if joules is None else joules / KWH_J),
    ]
    if rest and prices.reserved and prices.accelerator_hour is None:
        return None
    priced = [(price, used) for price, used in parts if price is not None]
    if not priced or any(used is None for _, used in priced):
        return None
    return sum(price * used for price, used in priced if used is not None)


BOARD_POWER_W: Mapping[str, tuple[float, str]] = {
    "h200": (700.0, "NVIDIA H200 SXM data sheet: up to 700 W"),
    "h100": (700.0, "NVIDIA H100 SXM data sheet: up to 700 W"),
    "a100": (400.0, "NVIDIA A100 SXM data sheet: 400 W"),
    "a100-40gb": (400.0, "NVIDIA A100 SXM data sheet: 400 W"),
    "v100": (300.0, "NVIDIA V100 SXM2 data sheet: 300 W"),
    "v100-32gb": (300.0, "NVIDIA V100 SXM2 data sheet: 300 W"),
}
"""Most that a board draws, by hardware; the rest of the machine comes on top."""

_AWS = (
    "Amazon EC2 on demand, us-east-1, Linux, {} of 8 GPUs at {} USD an hour, as of 2026-11-09 "
    "(github.com/datareceipts/data-receipts, 109-gpu-pricing/hyperscalers.json, read from AWS's price list). Between "
    "AWS regions 0.02 USD per GB (wring.co, guide to AWS data transfer prices, 2026); to the internet it is more"
)

PRICES: Mapping[str, Prices] = {
    name: Prices(accelerator_hour=hour / 8, egress_gb=0.02, name=name, source=_AWS.format(instance, hour))
    for name, instance, hour in (
        ("aws-p5-2026-11", "p5.48xlarge (H100)", 55.04),
        ("aws-p4de-2026-11", "p4de.24xlarge (A100, 80 GB)", 27.44705),
        ("aws-p4d-2026-11", "p4d.24xlarge (A100, 40 GB)", 21.957642),
    )
}
"""Lists that were found, with their dates. Prices change: look at yours."""
