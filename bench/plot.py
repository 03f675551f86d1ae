"""Drawings for RESULTS.md, as SVG, without any library."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#555555", "#009e73", "#cc79a7")  # distinguishable with color blindness
UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"), (1, ""))


def size_text(size):
    """4, 64K, 256M"""
    unit, letter = next(u for u in UNITS if size >= u[0])
    return f"{size / unit:g}{letter}"


def number_text(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


class Axis:
    """Maps values to pixels on a logarithmic axis."""

    def __init__(self, low, high, from_px, to_px):
        self.low, self.span = math.log(low), math.log(high) - math.log(low) or 1
        self.from_px, self.to_px = from_px, to_px

    def __call__(self, value):
        part = (math.log(value) - self.low) / self.span
        return round(self.from_px + part * (self.to_px - self.from_px), 1)


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def line(x1, y1, x2, y2):
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'


def grid(x_axis, y_axis, xs, decades):
    parts = []
    for x in xs:
        parts += [line(x_axis(x), TOP, x_axis(x), HEIGHT - BOTTOM),
                  text(x_axis(x), HEIGHT - BOTTOM + 16, size_text(x))]
    for y in decades:
        parts += [line(LEFT, y_axis(y), WIDTH - RIGHT, y_axis(y)),
                  text(LEFT - 6, y_axis(y) + 4, number_text(y), "end")]
    return parts


def curve(points, colour, x_axis, y_axis):
    way = " ".join(f"{x_axis(x)},{y_axis(y)}" for x, y in points)
    dots = "".join(f'<circle cx="{x_axis(x)}" cy="{y_axis(y)}" r="2.5" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.8"/>{dots}'


def log_log(title, x_name, y_name, series):
    """A drawing of {name: [(x, y), ...]}, with all numbers positive, and both axes logarithmic."""
    points = [point for curve_points in series.values() for point in curve_points]
    xs = sorted({x for x, _ in points})
    low = math.floor(math.log10(min(y for _, y in points)))
    high = math.ceil(math.log10(max(y for _, y in points)))
    decades = [10.0 ** power for power in range(low, max(high, low + 1) + 1)]
    x_axis = Axis(xs[0], xs[-1], LEFT, WIDTH - RIGHT)
    y_axis = Axis(decades[0], decades[-1], HEIGHT - BOTTOM, TOP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text((LEFT + WIDTH - RIGHT) / 2, 22, title, more=' font-size="14"'),
             text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name),
             text(16, HEIGHT / 2, y_name, more=f' transform="rotate(-90 16 {HEIGHT / 2:g})"'),
             *grid(x_axis, y_axis, xs, decades)]
    for i, (name, curve_points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        parts += [curve(curve_points, colour, x_axis, y_axis),
                  text(WIDTH - RIGHT + 12, TOP + 20 * i + 12, name, "start", f' fill="{colour}"')]
    return "\n".join([*parts, "</svg>", ""])
