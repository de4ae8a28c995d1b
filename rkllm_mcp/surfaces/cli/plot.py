"""SVG plots: panels one above the other over a common logarithmic axis.

A panel has one unit, so its lines are comparable. The picture needs no other file: it has a background, common fonts,
and the lines' names at their ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, PANEL_HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _GAP, _BOTTOM = 64, 132, 64, 48, 56
_COLORS = ("#1b6ac9", "#c8500a")
_INK, _FAINT, _GRID = "#1f2328", "#656d76", "#e4e7eb"
_FONT = "font-family='Helvetica, Arial, sans-serif'"
# So many lines at most across a panel
_TICKS = 5
# Names at the ends of lines need this much room between them.
_LABEL_HEIGHT = 15


@dataclass(frozen=True)
class Series:
    """A line of a panel."""

    name: str  # label at the end of the line
    points: Sequence[tuple[float, float]]  # (x, y), ascending, x above 0 and y not below


@dataclass(frozen=True)
class Panel:
    """One diagram: its heading, with the unit, and one or two lines."""

    heading: str
    series: Sequence[Series]


def plot(title: str, subtitle: str, x_label: str, panels: Sequence[Panel]) -> str:
    """Return the panels as SVG, from top to bottom; panels without points are left out."""
    shown = [panel for panel in panels if any(series.points for series in panel.series)]
    xs = [x for panel in shown for series in panel.series for x, _ in series.points]
    axis = _Axis(min(xs, default=1.0), max(xs, default=2.0))
    height = _TOP + len(shown) * (PANEL_HEIGHT + _GAP) - (_GAP if shown else 0) + _BOTTOM
    size = f"viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} {_FONT} font-size='12' fill='{_INK}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
        _text(_LEFT, 26, title, "font-size='17' font-weight='bold'"),
        _text(_LEFT, 45, subtitle, f"fill='{_FAINT}'"),
    ]
    for number, panel in enumerate(shown):
        parts += _panel(panel, axis, _TOP + number * (PANEL_HEIGHT + _GAP))
    parts += _below(axis, height - _BOTTOM, x_label)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True)
class _Axis:
    """The common axis: a factor of two is everywhere as long."""

    low: float
    high: float

    def place(self, x: float) -> float:
        span = math.log(self.high / self.low) or 1.0
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * math.log(x / self.low) / span

    def ticks(self) -> Iterator[float]:
        """Return the powers of two in a range, or its ends if it contains none."""
        first, last = math.ceil(math.log2(self.low)), math.floor(math.log2(self.high))
        yield from (float(2**power) for power in range(first, last + 1))
        if first > last:
            yield from {self.low, self.high}


def _panel(panel: Panel, axis: _Axis, top: float) -> Iterator[str]:
    step, highest = _scale(max((y for series in panel.series for _, y in series.points), default=1.0))
    bottom = top + PANEL_HEIGHT

    def height(y: float) -> float:
        return bottom - (PANEL_HEIGHT - 24) * y / highest

    yield _text(_LEFT, top + 8, panel.heading, "font-weight='bold'")
    for count in range(round(highest / step) + 1):
        y = height(count * step)
        yield f"<line x1='{_LEFT}' y1='{y:.1f}' x2='{WIDTH - _RIGHT}' y2='{y:.1f}' stroke='{_GRID}'/>"
        yield _text(_LEFT - 8, y + 4, _number(count * step), f"text-anchor='end' fill='{_FAINT}'")
    for tick in axis.ticks():
        x = axis.place(tick)
        yield f"<line x1='{x:.1f}' y1='{bottom}' x2='{x:.1f}' y2='{bottom + 4}' stroke='{_FAINT}'/>"
    yield f"<line x1='{_LEFT}' y1='{bottom}' x2='{WIDTH - _RIGHT}' y2='{bottom}' stroke='{_FAINT}'/>"
    lines = [series for series in panel.series if series.points]
    labels = _apart([height(series.points[-1][1]) for series in lines])
    for series, color, label_y in zip(lines, _COLORS, labels, strict=False):
        places = [(axis.place(x), height(y)) for x, y in series.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2' stroke-linejoin='round'/>"
        for (x, y), (at, value) in zip(places, series.points, strict=True):
            hint = f"<title>{_number(at)}: {_number(value)}</title>"
            yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{color}' stroke='#ffffff'>{hint}</circle>"
        yield _text(places[-1][0] + 10, label_y + 4, series.name, f"fill='{color}' font-weight='bold'")


def _below(axis: _Axis, bottom: float, label: str) -> Iterator[str]:
    for tick in axis.ticks():
        yield _text(axis.place(tick), bottom + 18, _number(tick), f"text-anchor='middle' fill='{_FAINT}'")
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield _text(middle, bottom + 40, label, "text-anchor='middle'")


def _scale(most: float) -> tuple[float, float]:
    """The distance of the lines across, a round number, and the highest of them."""
    if most <= 0:
        return 1.0, 1.0
    rough = most / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return step, math.ceil(most / step - 1e-9) * step


def _apart(wanted: Sequence[float]) -> list[float]:
    """The heights of the names, moved apart where they would cover each other."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = list(wanted)
    for above, below in itertools.pairwise(order):
        placed[below] = max(placed[below], placed[above] + _LABEL_HEIGHT)
    return placed


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.3g}"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>"
