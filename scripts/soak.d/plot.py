"""The plot of `scripts/soak`: memory, descriptors and latency over time, with a numbered band for each fault."""

from math import log10
from statistics import median

WIDTH, HEIGHT, LEFT, GAP, POINTS = 720, 120, 56, 46, 150
PANELS = [("resident memory, MiB", "rss_mib"), ("file descriptors", "descriptors"),
          ("p50 of a steady client, ms", "p50_ms"), ("p99 of a steady client, ms", "p99_ms")]
STYLE = """<style>text { fill: #24292f } .number { font-size: 9px } .grid { stroke: #d0d7de } .band { fill: #bf8700; opacity: .2 }
path { fill: none; stroke-width: 1.3 } path.a { stroke: #0969da } path.b { stroke: #8250df } path.c { stroke: #1f7a4d } path.d { stroke: #7d8590 }
text.a { fill: #0969da } text.b { fill: #8250df } text.c { fill: #1f7a4d } text.d { fill: #7d8590 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #30363d } path.a { stroke: #58a6ff } path.b { stroke: #bc8cff }
path.c { stroke: #3fb950 } text.a { fill: #58a6ff } text.b { fill: #bc8cff } text.c { fill: #3fb950 } }</style>"""


def svg(rows, windows, names):
    """The plot as text; a point is the median of the rows of its part of the time."""
    last = rows[-1]["seconds"]
    parts = {}
    for row in rows:
        parts.setdefault(int(row["seconds"] / last * POINTS), []).append(row)
    points = [{column: median(row[column] for row in part) for column in part[0]} for part in parts.values()]
    across = lambda seconds: LEFT + (WIDTH - LEFT - 8) * min(seconds / last, 1)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(PANELS) * (HEIGHT + GAP) + 44}" font-family="sans-serif" font-size="12">', STYLE]
    lines += [f'<text class="{kind}" x="{WIDTH - 370 + 85 * place}" y="14">{name}</text>' for place, (kind, name) in enumerate(zip("abcd", names))]
    for number, (title, what) in enumerate(PANELS):
        top = 34 + number * (HEIGHT + GAP)
        drawn = [(kind, f"{name} {what}") for kind, name in zip("abcd", names) if f"{name} {what}" in points[0]]
        height, ticks = scale([point[column] for point in points for _, column in drawn], what.endswith("_ms"))
        down = lambda value: top + HEIGHT * (1 - height(value))
        lines.append(f'<text x="8" y="{top - 12}" font-weight="bold">{title}</text>')
        for count, (begun, ended) in enumerate(windows, 1):
            left, width = across(begun), max(across(ended) - across(begun), 1)
            lines.append(f'<rect class="band" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}"/>'
                         f'<text class="number" x="{left + width / 2:.1f}" y="{top - 2}" text-anchor="middle">{count}</text>')
        for tick in ticks:
            lines.append(f'<path class="grid" d="M{LEFT} {down(tick):.1f}H{WIDTH - 8}"/><text x="{LEFT - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
        for kind, column in drawn:
            lines.append(f'<path class="{kind}" d="M' + "L".join(f"{across(point['seconds']):.0f} {down(point[column]):.1f}" for point in points) + '"/>')
        for minute in range(0, int(last / 60) + 1, max(1, round(last / 720))):
            lines.append(f'<text x="{across(minute * 60):.0f}" y="{top + HEIGHT + 14}" text-anchor="middle">{minute}</text>')
    lines.append(f'<text x="{WIDTH - 8}" y="{top + HEIGHT + 30}" text-anchor="end">minutes; bands are faults</text>')
    return "\n".join([*lines, "</svg>", ""])


def scale(values, is_log):
    """How high a value is drawn, from 0 to 1, and the values that have a line."""
    if is_log:
        low, high = 0.1, 10_000
        return lambda value: log10(min(max(value, low), high) / low) / log10(high / low), [0.1, 1, 10, 100, 1_000, 10_000]
    step = next(step for power in range(6) for step in (10**power, 2 * 10**power, 5 * 10**power) if max(values) / step <= 5)
    high = -(-max(values) // step) * step or 1
    return lambda value: value / high, [step * at for at in range(int(high / step) + 1)]
