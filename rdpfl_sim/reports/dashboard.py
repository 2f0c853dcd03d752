"""A run while it happens, on a terminal of any size: progress, messages, clients, faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rdpfl_sim.reports.live_stats import ClientStats, LiveStats
from rdpfl_sim.reports.text import duration, escape_control, score, short_count

BLOCKS, CRUDE_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=*#"
WINDOW_S = 10.0
HEAD_LINES = 4
MAX_FAULT_LINES = 6
MIN_WIDTH_FOR_CURVES, MIN_WIDTH_FOR_DOING = 32, 56


class Speed:
    """How fast a run goes on the wall clock, from what was seen of it lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def note(self, now_s: float, rounds_done: int, num_sent: int) -> None:
        """So many rounds and messages there are now; what happened before the first time does not count."""
        self._seen.append((now_s, rounds_done, num_sent))
        while len(self._seen) > 2 and self._seen[1][0] < now_s - WINDOW_S:
            self._seen.popleft()

    def per_second(self) -> tuple[float, float] | None:
        """Rounds and messages a second, if that is known."""
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        (start_s, first_round, first_sent), (now_s, rounds_done, num_sent) = self._seen[0], self._seen[-1]
        return (rounds_done - first_round) / (now_s - start_s), (num_sent - first_sent) / (now_s - start_s)


class Dashboard:
    """What `Live` draws: as much as there is room for."""

    def __init__(
        self, title: str, stats: LiveStats, total_rounds: int, message_fraction: float = 1.0
    ) -> None:
        self.title = title
        self.stats = stats
        self.total_rounds = total_rounds
        self.message_fraction = message_fraction
        self.speed = Speed()
        self.state = "running"

    def note(self) -> None:
        """The pulse has changed."""
        self.speed.note(monotonic(), self.stats.rounds_done, self.stats.messages["sent"])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        room = (options.height or console.size.height) - 1 - HEAD_LINES
        num_faults = min(len(self.stats.faults), MAX_FAULT_LINES, max(room // 3 - 1, 0))
        yield from self._head(width)
        yield from self._clients(width, room - (num_faults + 1 if num_faults else 0), _blocks(console))
        if num_faults:
            yield _line(f"faults: {self.stats.num_faults:,} changes, the last:", "bold", width)
            for time_s, text in list(self.stats.faults)[-num_faults:]:
                yield _line(f"  {duration(time_s):>9}  {escape_control(text)}", "yellow", width)

    def _head(self, width: int) -> RenderResult:
        stats, speed = self.stats, self.speed.per_second()
        left = ""
        if speed is not None and speed[0] > 0 and self.state == "running":
            left = f"{duration((self.total_rounds - stats.rounds_done) / speed[0])} left"
        yield _ends(f"{escape_control(self.title)}: {self.state}", left, width)
        done = f" {short_count(stats.rounds_done)}/{short_count(self.total_rounds)} rounds"
        bar = Table.grid(expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(ProgressBar(self.total_rounds, stats.rounds_done), done)
        yield bar
        yield _line(_facts([duration(stats.time_s) + " simulated", *self._messages(speed)], width), "", width)
        shares = {
            "accuracy": score(stats.honest_accuracy),
            "lost": _percent(stats.share("lost", "sent")),
            "late": _percent(stats.share("stale", "delivered")),
            "clipped": _percent(stats.clipped_share),
        }
        told = [f"{label} {text}" for label, text in shares.items() if text != "-"]
        yield _line(_facts(told, width), "", width)

    def _messages(self, speed: tuple[float, float] | None) -> list[str]:
        """How many messages, and how many a second on either clock; estimated if not all are recorded."""
        if not self.stats.messages["sent"]:
            return []
        about = "~" if self.message_fraction < 1 else ""
        num = self.stats.messages["sent"] / self.message_fraction
        told = [f"{about}{short_count(round(num))} messages"]
        if speed is not None and self.state == "running":
            told.append(f"{about}{short_count(round(speed[1] / self.message_fraction))}/s")
        if self.stats.time_s > 0:
            told.append(f"{about}{num / self.stats.time_s:.3g} per simulated s")
        return told

    def _clients(self, width: int, room: int, blocks: str) -> RenderResult:
        """A line each, the worst honest client first; if there is no room for all, the worst and the best."""
        if room < 2:
            return
        ranked = sorted(enumerate(self.stats.clients), key=_rank)
        worst, best = ranked, ranked[:0]
        num_hidden = len(ranked) - (room - 1)
        if num_hidden > 0:
            honest = [item for item in ranked if not item[1].is_byzantine] or ranked
            num_lines = min(room - 2, len(honest))
            worst, best = honest[: -(-num_lines // 2)], honest[len(honest) - num_lines // 2 :]
            num_hidden = len(ranked) - len(worst) - len(best)
        scores = [value for client in self.stats.clients for value in client.accuracy]
        low, high = (min(scores), max(scores)) if scores else (0.0, 1.0)
        digits = len(str(len(ranked) - 1))
        heading = (
            f"{'':{digits}}  client     {'doing     ' if width >= MIN_WIDTH_FOR_DOING else ''}round   now"
        )
        if width >= MIN_WIDTH_FOR_CURVES:
            scale = f"   accuracy, {low:.2f} to {high:.2f}"
            heading += scale if len(heading + scale) <= width else "   accuracy"
        yield _line(heading, "dim", width)
        for item in worst:
            yield self._client(*item, digits, width, blocks, low, high)
        if num_hidden > 0:
            yield _line(f"{'':{digits}}  ... {num_hidden:,} more", "dim", width)
        for item in best:
            yield self._client(*item, digits, width, blocks, low, high)

    def _client(
        self, number: int, client: ClientStats, digits: int, width: int, blocks: str, low: float, high: float
    ) -> Text:
        kind = "Byzantine" if client.is_byzantine else "honest"
        doing = f"{client.doing:10}" if width >= MIN_WIDTH_FOR_DOING else ""
        now = score(client.accuracy[-1] if client.accuracy else None)
        text = Text(f"{number:{digits}}  {kind:11}{doing}{client.round:5}  {now:>5}   ", no_wrap=True)
        if width >= MIN_WIDTH_FOR_CURVES:
            text.append(sparkline(client.accuracy, width - len(text), low, high, blocks), "cyan")
        if client.is_byzantine:
            text.stylize("red")
        text.truncate(width)
        return text


def sparkline(values: Sequence[float], width: int, low: float, high: float, blocks: str = BLOCKS) -> str:
    """A character a value from `low` to `high`; if there are more than fit, each stands for the last of some.

    >>> sparkline([0, 0.5, 1], 10, 0, 1)
    '▁▅█'
    """
    if width <= 0:
        return ""
    num = min(width, len(values))
    shown = [values[(place + 1) * len(values) // num - 1] for place in range(num)]
    steps, span = len(blocks), high - low
    return "".join(
        blocks[min(int((value - low) / span * steps), steps - 1) if span > 0 else 0] for value in shown
    )


def _rank(item: tuple[int, ClientStats]) -> tuple[bool, float, int]:
    number, client = item
    return client.is_byzantine, client.accuracy[-1] if client.accuracy else 0.0, number


def _blocks(console: Console) -> str:
    return BLOCKS if console.encoding.startswith("utf") else CRUDE_BLOCKS


def _facts(facts: Sequence[str], width: int) -> str:
    """As many of the facts as fit on a line, but at least one."""
    line = ""
    for fact in facts:
        longer = f"{line}, {fact}" if line else fact
        if line and len(longer) > width:
            break
        line = longer
    return line


def _ends(left: str, right: str, width: int) -> Text:
    """A line with something at either end, if there is room for both."""
    gap = width - len(left) - len(right)
    return Text(f"{left}{' ' * gap}{right}" if gap > 0 else left[:width], "bold", no_wrap=True)


def _line(text: str, style: str, width: int) -> Text:
    return Text(text[:width], style, no_wrap=True)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
