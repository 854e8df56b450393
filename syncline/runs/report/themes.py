"""The page's colours, light and dark; and the figures' colours of methods, with enough contrast to the background."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from typing import Any

from syncline.analysis.figures.style import method_styles
from syncline.planner import pages

LIGHT = pages.LIGHT | {
    "page": "#f6f8fa", "link": "#0550ae", "bad": "#a40e26", "band": "0.16", "compute": "#0072b2", "encode": "#7b2d61",
    "trigger": "#009e73", "optimizer": "#56748f", "inside": "#8a3300", "exposed": "#e69f00", "network": "#e69f00",
    "wait": "#7d8894", "forward": "#2f7ebd", "backward": "#3f8f4f", "weight": "#b07c10", "on": "#ffffff",
}  # fmt: skip
DARK = pages.DARK | {
    "page": "#0d1013", "link": "#6cb6ff", "bad": "#ff9d8a", "band": "0.26", "compute": "#3f9bd6", "encode": "#c983b4",
    "trigger": "#2fbf95", "optimizer": "#8fb0cc", "inside": "#c9713c", "exposed": "#e69f00", "network": "#e69f00",
    "wait": "#77828d", "forward": "#5fa8df", "backward": "#6cbf7c", "weight": "#d9a845", "on": "#0d1013",
}  # fmt: skip
"""Colours by the name of the CSS variable, for example ``--ink``."""

MIN_CONTRAST = 3.0
"""Smallest contrast of a graphic with its background, from WCAG 2.2 (1.4.11)."""


def contrast(color: str, other: str) -> float:
    """Return the contrast of two colours, ``(L1 + 0.05) / (L2 + 0.05)`` of their relative luminances (WCAG 2.2).

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    lighter, darker = sorted((_luminance(color), _luminance(other)), reverse=True)
    return round((lighter + 0.05) / (darker + 0.05), 9)


def legible(color: str, ground: str) -> str:
    """Return the colour, or one of its hue that is just as much lighter or darker as the background needs.

    On a dark background light and dark are swapped first, so that shades of a hue differ as much as they do on white.

    >>> legible("#0072B2", "#ffffff"), legible("#000000", "#14181c")
    ('#0072b2', '#ffffff')
    """
    hue, light, strength = colorsys.rgb_to_hls(*_parts(color))
    dark = _luminance(ground) < 0.2
    light = 1 - light if dark else light
    step = 0.01 if dark else -0.01
    while contrast(candidate := _hex(colorsys.hls_to_rgb(hue, light, strength)), ground) < MIN_CONTRAST:
        light += step
    return candidate


def styles_of(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each method, the same on the page as in figures: two colours, and the dashes in pixels."""
    return {
        label: {
            "light": legible(style.color, LIGHT["ground"]),
            "dark": legible(style.color, DARK["ground"]),
            "dash": ""
            if isinstance(style.linestyle, str)
            else " ".join(f"{2 * part:g}" for part in style.linestyle[1]),
        }
        for label, style in method_styles(methods).items()
    }


def sheet(styles: Iterable[dict[str, Any]]) -> str:
    """Return the variables of both themes as CSS; ``--m0``, ``--m1`` and so on are the methods' colours."""
    styles = list(styles)
    css = {
        name: "".join(f"--{key}:{value};" for key, value in theme.items())
        + "".join(f"--m{number}:{style[name]};" for number, style in enumerate(styles))
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
    return (
        f":root{{color-scheme:light;{css['light']}}}"
        f'@media screen{{:root[data-theme="dark"]{{color-scheme:dark;{css["dark"]}}}}}'
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme]){{color-scheme:dark;{css['dark']}}}}}"
    )


def _parts(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _hex(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * min(max(part, 0.0), 1.0)):02x}" for part in parts)


def _luminance(color: str) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _parts(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
