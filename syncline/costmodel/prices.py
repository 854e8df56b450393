"""The cost of a training in money, energy and carbon, by a list of prices.

No price is a default. Each list in `PRICES` has a source and a date; board powers are those of vendors.
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
    """A list of prices; a price that is None does not count.

    Args:
        accelerator_hour: price of an on-demand accelerator per hour.
        reserved_hour: price of a reserved accelerator per hour.
        reserved: number of reserved accelerators; a training uses them first, then on-demand ones.
        egress_gb: price of 10^9 bytes that leave a site.
        energy_kwh: price of a kWh of electricity, for owned accelerators.
        power_w: watts of a computing accelerator with its share of the machine; None means the board's power.
        idle_power_w: power of a waiting accelerator, in watts; None if unknown.
        pue: power usage effectiveness, the power of the site over that of its machines; at least 1.
        carbon_kg_per_kwh: carbon intensity of the electricity, in kg of CO2 equivalent.
        currency: currency of the prices.
        name: display name.
        source: origin of the prices, with their date.
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
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 <= value < float("inf"):
                raise SpecError(f"prices.{field.name}", value, "a number that is not negative")
        if not self.pue >= 1:
            raise SpecError("prices.pue", self.pue, "at least 1, which is the power of the machines alone")
        if self.reserved and self.reserved_hour is None:
            raise SpecError("prices.reserved", self.reserved, "none, unless reserved_hour says what they cost")
        if self.power_w is not None and (self.idle_power_w or 0.0) > self.power_w:
            raise SpecError("prices.idle_power_w", self.idle_power_w, f"at most power_w, {self.power_w:g}")

    def busy_power_w(self, board_power_w: float | None) -> float | None:
        """Return the watts of an accelerator that computes: ``power_w``, or else the power of its data sheet."""
        return board_power_w if self.power_w is None else self.power_w


class Usage(NamedTuple):
    """The resources that a training uses and pays for.

    Attributes:
        seconds: time for which the training occupies the accelerators.
        busy_s: part of that time in which each of them computes.
        egress_bytes: bytes that leave all sites; None if unknown.
    """

    accelerators: float
    seconds: float
    busy_s: float
    egress_bytes: float | None = 0.0


def energy_j(prices: Prices, usage: Usage, power_w: float, idle_power_w: float) -> float:
    """Return the joules that a training's site draws from its meter while accelerators compute and while they wait.

    >>> energy_j(Prices(pue=1.5), Usage(2, 10.0, 6.0), 400.0, 100.0)
    8400.0
    """
    busy_s = min(usage.busy_s, usage.seconds)
    accelerator_j = power_w * busy_s + idle_power_w * (usage.seconds - busy_s)
    return prices.pue * usage.accelerators * accelerator_j


def carbon_kg(prices: Prices, joules: float) -> float | None:
    """Return the kg of CO2 equivalent of an energy, or None without a carbon intensity."""
    return None if prices.carbon_kg_per_kwh is None else prices.carbon_kg_per_kwh * joules / KWH_J


def cost(prices: Prices, usage: Usage, joules: float | None = None) -> float | None:
    """Return the cost of a training: accelerators by the hour, bytes that leave sites, and electricity.

    Args:
        joules: energy at the site's meter; None if unknown.

    Returns:
        The price in the currency of the list. None if the list has no price, or a price for an unknown quantity, or no
        price for the on-demand accelerators beyond the reserved ones.

    >>> prices = Prices(accelerator_hour=4.0, reserved_hour=2.0, reserved=8, egress_gb=0.05)
    >>> cost(prices, Usage(10, 7200.0, 3600.0, 100e9))
    53.0
    """
    reserved = min(usage.accelerators, prices.reserved)
    on_demand = usage.accelerators - reserved
    if on_demand and prices.reserved and prices.accelerator_hour is None:  # not all accelerators have a price
        return None
    prices_and_quantities = (
        (prices.reserved_hour, reserved * usage.seconds / HOUR_S),
        (prices.accelerator_hour, on_demand * usage.seconds / HOUR_S),
        (prices.egress_gb, None if usage.egress_bytes is None else usage.egress_bytes / GB),
        (prices.energy_kwh, None if joules is None else joules / KWH_J),
    )
    known_prices = [(price, quantity) for price, quantity in prices_and_quantities if price is not None]
    costs = [price * quantity for price, quantity in known_prices if quantity is not None]
    return sum(costs) if known_prices and len(costs) == len(known_prices) else None


BOARD_POWER_W: Mapping[str, tuple[float, str]] = {
    "h200": (700.0, "NVIDIA H200 SXM data sheet: up to 700 W"),
    "h100": (700.0, "NVIDIA H100 SXM data sheet: up to 700 W"),
    "a100": (400.0, "NVIDIA A100 SXM data sheet: 400 W"),
    "a100-40gb": (400.0, "NVIDIA A100 SXM data sheet: 400 W"),
    "v100": (300.0, "NVIDIA V100 SXM2 data sheet: 300 W"),
    "v100-32gb": (300.0, "NVIDIA V100 SXM2 data sheet: 300 W"),
}
"""Largest power of a board in watts with its source, by hardware; the rest of the machine is not included."""

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
"""Price lists with their sources and dates. Prices change, so check yours."""
