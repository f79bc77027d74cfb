"""The plot of `scripts/soak`: memory, descriptors and latency over time, with a band for each fault."""

from math import log10
from statistics import median

WIDTH, HEIGHT, LEFT, GAP = 720, 130, 56, 46
COLOURS = ["a", "b", "c"]
PANELS = [("resident memory, MiB", "rss_mib", False), ("file descriptors", "descriptors", False),
          ("p50 of a steady client, ms", "p50_ms", True), ("p99 of a steady client, ms", "p99_ms", True)]
STYLE = """<style>text { fill: #24292f } .grid { stroke: #d0d7de } .band { fill: #bf8700; opacity: .18 }
path { fill: none; stroke-width: 1.3 } .a { stroke: #0969da; fill: #0969da } .b { stroke: #8250df; fill: #8250df } .c { stroke: #1f7a4d; fill: #1f7a4d }
path.a, path.b, path.c { fill: none } text.a, text.b, text.c { stroke: none }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #30363d } .a { stroke: #58a6ff; fill: #58a6ff }
.b { stroke: #bc8cff; fill: #bc8cff } .c { stroke: #3fb950; fill: #3fb950 } }</style>"""


def svg(rows, windows, names):
    """The plot as text; a point is the median of all rows of its part of the time."""
    last = rows[-1]["seconds"]
    parts = {}
    for row in rows:
        parts.setdefault(int(row["seconds"] / last * 150), []).append(row)
    points = [{column: median(row[column] for row in part) for column in part[0]} for part in parts.values()]
    across = lambda seconds: LEFT + (WIDTH - LEFT - 8) * min(seconds / last, 1)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(PANELS) * (HEIGHT + GAP) + 34}" font-family="sans-serif" font-size="12">', STYLE]
    lines += [f'<text class="{colour}" x="{WIDTH - 240 + 90 * place}" y="16">{name}</text>' for place, (colour, name) in enumerate(zip(COLOURS, names))]
    for number, (title, what, is_log) in enumerate(PANELS):
        top = 24 + number * (HEIGHT + GAP)
        values = [point[f"{name} {what}"] for point in points for name in names]
        scale, ticks = scaled(values, top, is_log)
        lines.append(f'<text x="8" y="{top - 8}" font-weight="bold">{title}</text>')
        for _, begun, ended in windows:
            lines.append(f'<rect class="band" x="{across(begun):.1f}" y="{top}" width="{max(across(ended) - across(begun), 1):.1f}" height="{HEIGHT}"/>')
        for tick in ticks:
            lines.append(f'<path class="grid" d="M{LEFT} {scale(tick):.1f}H{WIDTH - 8}"/><text x="{LEFT - 6}" y="{scale(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
        for colour, name in zip(COLOURS, names):
            path = "L".join(f"{across(point['seconds']):.0f} {scale(point[f'{name} {what}']):.1f}" for point in points)
            lines.append(f'<path class="{colour}" d="M{path}"/>')
        for minute in range(0, int(last / 60) + 1, max(1, round(last / 360))):
            lines.append(f'<text x="{across(minute * 60):.0f}" y="{top + HEIGHT + 15}" text-anchor="middle">{minute}</text>')
    lines.append(f'<text x="{WIDTH - 8}" y="{top + HEIGHT + 32}" text-anchor="end">minutes; bands are faults</text>')
    return "\n".join([*lines, "</svg>", ""])


def scaled(values, top, is_log):
    """Where a value is drawn, and the values that have a line."""
    if is_log:
        low, high = 0.1, 1_000
        share = lambda value: log10(min(max(value, low), high) / low) / log10(high / low)
        return lambda value: top + HEIGHT * (1 - share(value)), [0.1, 1, 10, 100, 1_000]
    step = next(step for power in range(6) for step in (10**power, 2 * 10**power, 5 * 10**power) if max(values) / step <= 5)
    high = -(-max(values) // step) * step or 1
    return lambda value: top + HEIGHT * (1 - value / high), [step * at for at in range(int(high / step) + 1)]
