"""Turns the raw figures into the table of docs/performance.md, docs/performance.svg and the lines of the budgets."""

from statistics import median

BEGIN, END = "<!-- peers: written by `make peers` -->", "<!-- end of peers -->"
# The page has these; docs/performance.json has all.
COLUMNS = [("requests/s", "requests_per_second"), ("CPU µs", "cpu_micros"), ("p99 µs", "p99_micros")]
KEY, REDIS, WORK = "Tiergate, key", "Tiergate, key over Redis", "haproxy, our work"


def summary(rounds):
    """The median of each figure, and the rounds themselves."""
    values = {what: [each[what] for each in rounds] for what in rounds[0]}
    return {what: None if None in each else round(median(each), 2) for what, each in values.items()} | {"rounds": rounds}


def ratio(figures, one, other, what="cpu_micros"):
    """The median of the rounds' ratios of two subjects of a part; `None` where one was not measured."""
    if one not in figures or other not in figures:
        return None
    pairs = [(a.get(what), b.get(what)) for a, b in zip(figures[one]["rounds"], figures[other]["rounds"])]
    ratios = [a / b for a, b in pairs if a and b]
    return median(ratios) if ratios else None


def merged(parts):
    """The base part's subjects with what other parts measured of them."""
    rows = {name: dict(each) for name, each in parts.get("base", {}).items()}
    rows |= parts.get("signature", {}) | {name.removesuffix("; POST"): dict(each) for name, each in parts.get("verify", {}).items()}
    for part in ("memory", "instructions"):
        for name, each in parts.get(part, {}).items():
            for what in ("idle_connection_kib", "user_instructions"):
                if name in rows and each.get(what) is not None:
                    rows[name].setdefault(what, None)
                    rows[name][what] = rows[name][what] or each[what]
    return rows


def budgets(figures):
    """The promises beside other servers: text, measured, budget, whether more is better."""
    parts = figures["parts"]
    rows, base, verify = merged(parts), parts.get("base", {}), parts.get("verify", {})
    value = lambda name, what: rows.get(name, {}).get(what)
    difference = lambda a, b: None if a is None or b is None else a - b
    ours, post = "Tiergate, POST /verify; POST", "nginx, return 200; POST"
    many, some = (f"{KEY}; {count} connections" for count in ("1,000", "64"))
    one, two = f"{KEY}; one core", f"{KEY}; two cores"
    if figures["machine"]["cores"] >= 4:
        scaled, scaling = "requests/s, two cores to one", ratio(parts.get("cores", {}), two, one, "requests_per_second")
    else:
        # The load shares the cores, so that requests/s say nothing of the proxy; the CPU time of a request does.
        scaled, scaling = "two cores to one, by CPU per request", ratio(parts.get("cores", {}), one, two)
        scaling = scaling and 2 * scaling
    return [
        ("CPU of haproxy doing our work to ours", ratio(base, WORK, KEY), 1.5, True),
        ("CPU of nginx with auth_request to ours", ratio(base, "nginx, auth_request", KEY), 3, True),
        ("CPU of plain nginx to ours", ratio(base, "nginx", KEY), 0.9, True),
        ("CPU of haproxy doing our work to ours over Redis", ratio(base, WORK, REDIS), 1, True),
        ("CPU of POST /verify to nginx, return 200", ratio(verify, ours, post), 2, False),
        ("user instructions, key", value(KEY, "user_instructions"), 30_000, False),
        ("user instructions, public", value("Tiergate, public", "user_instructions"), 22_000, False),
        ("user instructions that Redis adds", difference(value(REDIS, "user_instructions"), value(KEY, "user_instructions")), 12_000, False),
        ("user instructions, POST /verify", value("Tiergate, POST /verify", "user_instructions"), 20_000, False),
        ("p99 over the upstream's own, µs", difference(value(KEY, "p99_micros"), value("no proxy", "p99_micros")), 300, False),
        ("KiB per idle connection", value(KEY, "idle_connection_kib"), 6, False),
        ("requests/s, 1,000 connections to 64", ratio(parts.get("connections", {}), many, some, "requests_per_second"), 0.95, True),
        (scaled, scaling, 1.85, True),
    ]


def number(value):
    """A figure as people read it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:,.2f}"


def table(heads, rows):
    """A table of Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines)


def budget_rows(figures):
    """The budgets as lines of text."""
    for text, measured, budget, is_least in budgets(figures):
        verdict = "not measured" if measured is None else "met" if (measured >= budget) == is_least or measured == budget else "not met"
        yield [text, number(measured), f"{'at least' if is_least else 'at most'} {number(budget)}", verdict]


def text_of(figures):
    """The text of docs/performance.md between the two marks."""
    of, parts = figures["machine"], figures["parts"]
    counted = ("counted by the processor" if of["counters"] else
               "counted by callgrind, those of the kernel not")
    missing = f"Could not be had: {', '.join(of['missing'])}. " if of.get("missing") else ""
    about = (f"{of['processor']}, {of['cores']} cores, Linux {of['kernel']}; {of['nginx'].split(': ')[-1]}; {' '.join(of['haproxy'].split()[:3])}; "
             f"Envoy {of['envoy']}. Medians of {figures['rounds']} interleaved rounds of {figures['seconds']} s. {missing}Instructions are {counted}.")
    subjects = merged(parts)
    lines = list(budget_rows(figures))
    missed = [line[:-1] for line in lines if line[-1] != "met"]
    columns = [(head, what) for head, what in COLUMNS if any(each.get(what) for each in subjects.values())]
    rows = [[name, *(number(each.get(what)) for _, what in columns)] for name, each in subjects.items()]
    return "\n\n".join([BEGIN, about,
                        table(["what", *(head for head, _ in columns)], rows), "![CPU per request](performance.svg)",
                        f"{len(lines) - len(missed)} of {len(lines)} budgets (`scripts/peers.d/report.py`) are met. These are not:",
                        table(["what", "measured", "budget"], missed), END])


def plot(parts):
    """Bars of the CPU time per request, readable on light and dark."""
    bars = [(name, each["cpu_micros"]) for name, each in merged(parts).items() if each.get("cpu_micros")]
    most = max((value for _, value in bars), default=1)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {24 * len(bars) + 40}" font-family="sans-serif" font-size="13">',
             "<style>text { fill: #24292f } .ours { fill: #1f7a4d } .theirs { fill: #7d8590 }",
             "@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #3fb950 } }</style>",
             '<text x="8" y="20" font-weight="bold">CPU per request, µs (less is better)</text>']
    for row, (name, value) in enumerate(bars):
        top, width = 34 + 24 * row, 420 * value / most
        lines += [f'<text x="8" y="{top + 14}">{name}</text>',
                  f'<rect class="{"ours" if name.startswith("Tiergate") else "theirs"}" x="210" y="{top}" width="{width:.1f}" height="18" rx="2"/>',
                  f'<text x="{216 + width:.1f}" y="{top + 14}">{value:.1f}</text>']
    return "\n".join([*lines, "</svg>", ""])


def write(root, figures):
    """Writes table and plot, and prints the budgets."""
    page = root / "docs/performance.md"
    before, rest = page.read_text().split(BEGIN, 1)
    page.write_text(before + text_of(figures) + rest.split(END, 1)[1])
    (root / "docs/performance.svg").write_text(plot(figures["parts"]))
    for text, measured, budget, verdict in budget_rows(figures):
        print(f"{text}: {measured or '?'} (budget: {budget}): {verdict}")
