"""Formatting of numbers, lists, faults and untrusted text, shared by all reports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from typing import TYPE_CHECKING

import rich.box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdpfl_sim.world.adversary.threat_model import ATTACKS_WITHOUT_EFFECT
from rdpfl_sim.world.faults.fault import END
from rdpfl_sim.world.faults.topology_change import TopologyChange

if TYPE_CHECKING:
    from rdpfl_sim.files import JsonObject
    from rdpfl_sim.records.reader import Record

MAX_ITEMS = 10


def quantity(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in singular or plural.

    >>> quantity(1, "link"), quantity(1200, "link"), quantity(2, "loss", "losses")
    ('1 link', '1,200 links', '2 losses')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def first_items(items: Collection[object], limit: int = MAX_ITEMS) -> str:
    """Return the first items as text, and the number of the others.

    >>> first_items([3, 5]), first_items(range(14), limit=2)
    ('3, 5', '0, 1 and 12 more')
    """
    more = f" and {len(items) - limit:,} more" if len(items) > limit else ""
    return ", ".join(map(str, islice(items, limit))) + more


def named_items(noun: str, items: Collection[object], limit: int = MAX_ITEMS) -> str:
    """Return a noun in singular or plural, followed by the first items.

    >>> named_items("client", [3]), named_items("client", range(14), limit=2)
    ('client 3', 'clients 0, 1 and 12 more')
    """
    return f"{noun}{'' if len(items) == 1 else 's'} {first_items(items, limit)}"


def score(value: float | None) -> str:
    """Return an accuracy with three digits, or a dash if it is missing or not finite."""
    return "-" if value is None or not isfinite(value) else f"{value:.3f}"


def multiple(ratio: float) -> str:
    """Return a ratio with two significant digits, or as a whole number.

    >>> multiple(0.00123), multiple(0.31), multiple(4.2), multiple(1234.5)
    ('0.0012', '0.31', '4.2', '1,234')
    """
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"


def number(value: float | None, unit: str = "") -> str:
    """Return a number with as many digits as its unit needs, or a dash if it is missing.

    >>> number(0.25, "fraction"), number(0.31, "ratio"), number(2.0, "messages"), number(3, "links")
    ('0.250', '0.31', '2.00', '3')
    """
    if value is None or isinstance(value, int):
        return "-" if value is None else str(value)
    if unit == "ratio":
        return multiple(value)
    digits = 3 if unit in ("fraction", "nats") else 2
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.2g}"


def short_count(number: int) -> str:
    """Return a count in at most six characters, if it is below 10^9.

    >>> short_count(99_999), short_count(123_456), short_count(12_345_678)
    ('99,999', '123k', '12.3M')
    """
    if number < 100_000:
        return f"{number:,}"
    return f"{number / 1e3:.0f}k" if number < 1_000_000 else f"{number / 1e6:.1f}M"


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes, hours or days.

    >>> duration(90), duration(600), duration(7_200), duration(172_800)
    ('90.0 s', '10.0 min', '2.0 h', '2.0 days')
    """
    for unit, size_s, limit_s in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit_s:
            return f"{seconds / size_s:.1f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def escape_control(text: str) -> str:
    r"""Return text with line breaks and control characters written as escape sequences.

    >>> print(escape_control("two\nlines"))
    two\nlines
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count_range(low: int, high: int) -> str:
    """Return the range of a count.

    >>> count_range(12, 12), count_range(12, 4000)
    ('12', '12 to 4,000')
    """
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def seed_list(seeds: Collection[int]) -> str:
    """Return seeds as text, or only their number and range if there are many.

    >>> seed_list([3]), seed_list([2, 1]), seed_list(range(20))
    ('seed 3', 'seeds 2, 1', '20 seeds from 0 to 19')
    """
    if len(seeds) > MAX_ITEMS:
        return f"{len(seeds):,} seeds from {min(seeds)} to {max(seeds)}"
    return named_items("seed", seeds)


def sweep_warnings(summaries: Collection[JsonObject], shown: Collection[str] = ()) -> list[str]:
    """Return each warning in the summaries of several runs once, except the warnings `shown` before.

    Local training sends no messages, so attacks have no effect on it. This is a warning only if they have
    no effect on any run: otherwise local training is the baseline.
    """
    warnings = [[*map(str, summary.get("warnings", []))] for summary in summaries]
    attacked = [own for own, summary in zip(warnings, summaries, strict=True) if summary.get("byzantine")]
    omitted = {*shown}
    if any(ATTACKS_WITHOUT_EFFECT not in own for own in attacked):
        omitted.add(ATTACKS_WITHOUT_EFFECT)
    return similar_warnings([[text for text in own if text not in omitted] for own in warnings])


def similar_warnings(warnings: Collection[Collection[str]]) -> list[str]:
    """Return each warning of several runs once, with the number of runs; `warnings` has one entry per run.

    Warnings that differ only in numbers are merged.

    >>> similar_warnings([["2 clients are idle (1, 2)"], ["1 client is idle (5)", "slow"], ["slow"]])
    ['1 to 2 clients are idle (in 2 of 3 runs)', 'slow (in 2 of 3 runs)']
    """
    found: dict[str, list[str]] = {}
    for texts in warnings:
        for kind, text in {_kind(text): text for text in texts}.items():
            found.setdefault(kind, []).append(text)
    runs = quantity(len(warnings), "run")
    lines = []
    for same in found.values():
        text, is_exact = _merged(same)
        in_runs = f"in all {runs}" if len(same) == len(warnings) else f"in {len(same):,} of {runs}"
        lines.append(f"{text} ({'' if is_exact else 'similar '}{in_runs})")
    return lines


_NUMBERS = re.compile(r"(?<![\w.,\[-])\d+(?:[.,]\d+)*(?:, \d+)*(?: and [\d,]+ more)?(?![\w\]])")
"""A number, or a list of ids as written by `first_items`; indices in brackets are not matched."""


def _kind(warning: str) -> str:
    """Return a warning without its numbers, in the singular."""
    text = _NUMBERS.sub("#", warning)
    for plural, singular in (("are", "is"), ("have", "has"), ("their", "its")):
        text = re.sub(rf"\b{plural}\b", singular, text)
    return re.sub(r"s\b", "", text)


def _merged(warnings: Sequence[str]) -> tuple[str, bool]:
    """Return a warning for all of one kind, and whether it is exact.

    Different numbers become a range. Different lists of ids are omitted if they are in brackets; otherwise
    the text has one of them and is not exact.
    """
    rows = [_NUMBERS.findall(text) for text in warnings]
    plural = max(range(len(rows)), key=lambda place: [_number(text) for text in rows[place]])
    merged, *rest = _NUMBERS.split(warnings[plural])
    is_exact = True
    for own, following, *texts in zip(rows[plural], rest, *rows, strict=True):
        low, high = min(texts, key=_number), max(texts, key=_number)
        if len(set(texts)) == 1:
            merged += own + following
        elif merged.endswith(" (") and following.startswith(")"):
            merged = merged.removesuffix(" (") + following.removeprefix(")")
        elif _number(high) < inf:
            merged += f"{low} to {high}{following}"
        else:
            merged, is_exact = merged + own + following, False
    return merged, is_exact


def _number(text: str) -> float:
    """Return a number that may have thousands separators; infinity for lists and versions."""
    try:
        return float(re.sub(r",(?=\d{3})", "", text))
    except ValueError:
        return inf


def fault_text(record: Record) -> str:
    """Describe a fault record and the affected clients or links.

    >>> fault_text({"kind": "link_outage", "phase": "end", "links": [[0, 1], [1, 0]]})
    'link outage ends: 2 links: 0 to 1, 1 to 0'
    """
    return f"{change_text(record)}: {affected_text(record)}"


def change_text(record: Record) -> str:
    """Describe the start or end in a fault record.

    >>> change_text({"kind": "slow_down", "phase": "start"}), change_text({"kind": "crash", "phase": "end"})
    ('slow down', 'crash ends')
    """
    kind: str = record["kind"].replace("_", " ")
    return f"{kind} ends" if record["phase"] == END else kind


def affected_text(record: Record) -> str:
    """Return the clients or links affected by a fault record; missing fields may be None.

    >>> affected_text({"kind": "slow_down", "clients": [3], "factor": 4.0})
    'client 3, 4 times as slow'
    >>> affected_text({"kind": "partition", "sides": [[0, 1], [2]]})
    '0, 1 | 2'
    """
    clients, sides, links = (record.get(key) for key in ("clients", "sides", "links"))
    if clients is not None:
        factor = "" if record.get("factor") is None else f", {record['factor']:g} times as slow"
        permanent = ", permanently" if record.get("for_good") else ""
        return f"{named_items('client', clients)}{factor}{permanent}"
    if sides is not None:
        return " | ".join(map(first_items, sides))
    between = "-" if record["kind"] == TopologyChange.KIND else " to "
    pairs = [f"{i}{between}{j}" for i, j in links or []]
    return f"{quantity(len(pairs), 'link')}: {first_items(pairs)}"


STYLES = {"ok": "green", "violated": "bold red", "not checked": "yellow"}


def warning_lines(warnings: Sequence[str]) -> RenderableType:
    """Return one line per warning."""
    return Group(*(Text(f"warning: {escape_control(warning)}", style="yellow") for warning in warnings))


def problem_lines(problems: Sequence[str], file: str) -> RenderableType:
    """Return the number of problems in the scenario `file`, then one paragraph per problem."""
    count = quantity(len(problems), "problem")
    title = Text.assemble((escape_control(file), "bold"), f" cannot be run: {count}", style="red")
    lines = Table.grid(padding=(0, 1))
    for problem in problems:
        path, colon, rest = escape_control(problem).partition(": ")
        lines.add_row("  -", Text.assemble((path, "bold" if colon else ""), colon, rest, overflow="fold"))
    return Group(title, lines)


@dataclass(frozen=True)
class HangingIndent:
    """A paragraph whose first line is indented by `indent`; further lines are indented a little more."""

    text: Text
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        deeper = self.indent + 2
        lines = self.text.wrap(console, max(options.max_width - deeper, 1))
        for index, line in enumerate(lines):
            line.rstrip()
            yield Padding(line, (0, 0, 0, self.indent if index == 0 else deeper), expand=False)


def fact_grid(facts: Iterable[tuple[str, str]]) -> Table:
    """Return a grid with one label and text per row."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(Text(label, style="dim"), Text(escape_control(text)))
    return grid


def verification_table(run: str, checks: Sequence[Record]) -> RenderableType:
    """Return one row per check, then details of checks that failed or were not possible.

    The table has at most 100 columns, also in a pipe.
    """
    table = Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column("invariant", max_width=66)
    table.add_column("items", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for check in checks:
        outcome = Text(check["outcome"], style=STYLES[check["outcome"]])
        table.add_row(check["check"], check["sentence"], f"{check['items']:,}", outcome)
    details = [_detail(check) for check in checks if check["outcome"] != "ok"]
    return Group(Text(escape_control(run), style="bold"), table, *details, _totals(checks))


def _detail(check: Record) -> RenderableType:
    outcome = check["outcome"]
    if outcome == "violated":
        place = "" if check["line"] is None else f" at line {check['line']:,} of events.jsonl"
        times = "once" if check["violations"] == 1 else f"{check['violations']:,} times, first"
        outcome = f"violated {times}{place}"
    lines = [escape_control(line) for line in str(check["what"]).split("\n")]
    return Text(f"{check['check']}: {outcome}: " + "\n".join(lines), style=STYLES[check["outcome"]])


def _totals(checks: Sequence[Record]) -> Text:
    counts = {outcome: sum(check["outcome"] == outcome for check in checks) for outcome in STYLES}
    totals = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    return Text(f"{len(checks)} checks: {', '.join(totals)}\n", style="bold")
