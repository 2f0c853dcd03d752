"""A live view of a run for terminals of any size: progress, messages, clients, faults."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rdpfl_sim.errors import RunError
from rdpfl_sim.records.files import METRICS_FILE
from rdpfl_sim.records.metrics import MOMENTS, parse_metrics
from rdpfl_sim.records.reader import Record, parse_record
from rdpfl_sim.records.record_types import MESSAGE_PREFIX
from rdpfl_sim.reports.text import duration, escape_control, fault_text, quantity, score, short_count
from rdpfl_sim.world.faults.timeline import FaultTimeline

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=*#"
SPEED_WINDOW_S = 10.0
HEAD_LINES = 4
MAX_FAULT_LINES = 6
MIN_WIDTH_FOR_CURVES, MIN_WIDTH_FOR_ACTIVITY = 32, 56


class Speed(NamedTuple):
    """Progress per second of wall-clock time."""

    rounds: float
    messages: float


class SpeedMeter:
    """Measures the speed of a run over the last seconds of wall-clock time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()

    def sample(self, now_s: float, rounds_done: int, num_sent: int) -> None:
        """Record the progress at this time. The first sample is the baseline."""
        self._samples.append((now_s, rounds_done, num_sent))
        while len(self._samples) > 2 and self._samples[1][0] < now_s - SPEED_WINDOW_S:
            self._samples.popleft()

    def speed(self) -> Speed | None:
        """Return the speed, or None if there are too few samples."""
        if len(self._samples) < 2 or self._samples[-1][0] <= self._samples[0][0]:
            return None
        start_s, first_round, first_sent = self._samples[0]
        now_s, rounds_done, num_sent = self._samples[-1]
        elapsed_s = now_s - start_s
        return Speed((rounds_done - first_round) / elapsed_s, (num_sent - first_sent) / elapsed_s)


class Dashboard:
    """A Rich renderable that shows as much of a run as fits on the terminal."""

    def __init__(
        self, title: str, stats: LiveStats, total_rounds: int, message_fraction: float = 1.0
    ) -> None:
        self.title = title
        self.stats = stats
        self.total_rounds = total_rounds
        self.message_fraction = message_fraction
        self.speed_meter = SpeedMeter()
        self.state = "running"

    def sample_speed(self) -> None:
        """Add a speed sample from the current statistics. Must be called after every update."""
        self.speed_meter.sample(monotonic(), self.stats.rounds_done, self.stats.messages["sent"])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        room = (options.height or console.size.height) - 1 - HEAD_LINES
        num_faults = min(len(self.stats.faults), MAX_FAULT_LINES, max(room // 3 - 1, 0))
        yield from self._head(width)
        yield from self._client_lines(width, room - (num_faults + 1 if num_faults else 0), _blocks(console))
        if num_faults:
            yield _line(f"faults: {quantity(self.stats.num_faults, 'change')}, latest:", "bold", width)
            for time_s, text in list(self.stats.faults)[-num_faults:]:
                yield _line(f"  {duration(time_s):>9}  {escape_control(text)}", "yellow", width)

    def _head(self, width: int) -> RenderResult:
        stats, speed = self.stats, self.speed_meter.speed() if self.state == "running" else None
        time_left = ""
        if speed is not None and speed.rounds > 0:
            time_left = f"{duration((self.total_rounds - stats.rounds_done) / speed.rounds)} left"
        yield _justified(f"{escape_control(self.title)}: {self.state}", time_left, width)
        bar = Table.grid(expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        rounds = f" {short_count(stats.rounds_done)}/{short_count(self.total_rounds)} rounds"
        bar.add_row(ProgressBar(self.total_rounds, stats.rounds_done), rounds)
        yield bar
        yield _facts_line([f"{duration(stats.time_s)} simulated", *self._message_facts(speed)], width)
        rates = {
            "accuracy": score(stats.honest_accuracy),
            "lost": _percent(stats.message_share("lost", "sent")),
            "late": _percent(stats.message_share("stale", "delivered")),
            "clipped": _percent(stats.clipped_share),
        }
        yield _facts_line([f"{label} {text}" for label, text in rates.items() if text != "-"], width)

    def _message_facts(self, speed: Speed | None) -> list[str]:
        """Return the number of messages and their rates, estimated if only a fraction is recorded."""
        if not self.stats.messages["sent"]:
            return []
        approximately = "~" if self.message_fraction < 1 else ""
        num_sent = self.stats.messages["sent"] / self.message_fraction
        facts = [f"{approximately}{short_count(round(num_sent))} messages"]
        if speed is not None:
            facts.append(f"{approximately}{short_count(round(speed.messages / self.message_fraction))}/s")
        if self.stats.time_s > 0:
            facts.append(f"{approximately}{num_sent / self.stats.time_s:.3g} per simulated s")
        return facts

    def _client_lines(self, width: int, room: int, blocks: str) -> RenderResult:
        """Yield one line per client, worst honest client first; if not all fit, only the worst and best."""
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
        activity = f"{'activity':10}" if width >= MIN_WIDTH_FOR_ACTIVITY else ""
        heading = f"{'':{digits}}  {'client':11}{activity}round   now"
        if width >= MIN_WIDTH_FOR_CURVES:
            scale = f"   accuracy {MOMENTS[self.stats.moment]}, {low:.2f} to {high:.2f}"
            heading += scale if len(heading + scale) <= width else "   accuracy"
        yield _line(heading, "dim", width)
        for client, stats in worst:
            yield _client_line(client, stats, digits, width, blocks, low, high)
        if num_hidden > 0:
            yield _line(f"{'':{digits}}  ... {num_hidden:,} more", "dim", width)
        for client, stats in best:
            yield _client_line(client, stats, digits, width, blocks, low, high)


def _client_line(
    client: int, stats: ClientStats, digits: int, width: int, blocks: str, low: float, high: float
) -> Text:
    kind = "Byzantine" if stats.is_byzantine else "honest"
    activity = f"{stats.activity:10}" if width >= MIN_WIDTH_FOR_ACTIVITY else ""
    now = score(stats.accuracy[-1] if stats.accuracy else None)
    text = Text(f"{client:{digits}}  {kind:11}{activity}{stats.round:5}  {now:>5}   ", no_wrap=True)
    if width >= MIN_WIDTH_FOR_CURVES:
        text.append(sparkline(stats.accuracy, width - len(text), low, high, blocks), "cyan")
    if stats.is_byzantine:
        text.stylize("red")
    text.truncate(width)
    return text


def sparkline(values: Sequence[float], width: int, low: float, high: float, blocks: str = BLOCKS) -> str:
    """Return a sparkline with one character per value, or per group of values if there are too many.

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
    client, stats = item
    return stats.is_byzantine, stats.accuracy[-1] if stats.accuracy else 0.0, client


def _blocks(console: Console) -> str:
    return BLOCKS if console.encoding.startswith("utf") else ASCII_BLOCKS


def _facts_line(facts: Sequence[str], width: int) -> Text:
    """Return a line with as many facts as fit, but at least one."""
    line = ""
    for fact in facts:
        longer = f"{line}, {fact}" if line else fact
        if line and len(longer) > width:
            break
        line = longer
    return _line(line, "", width)


def _justified(left: str, right: str, width: int) -> Text:
    """Return a line with text at both ends, or only the left text if both do not fit."""
    gap = width - len(left) - len(right)
    return Text(f"{left}{' ' * gap}{right}" if gap > 0 else left[:width], "bold", no_wrap=True)


def _line(text: str, style: str, width: int) -> Text:
    return Text(text[:width], style, no_wrap=True)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


MAX_FAULTS = 100


@dataclass
class ClientStats:
    """The accuracy of one client at every evaluation, its round and its current activity."""

    accuracy: list[float] = field(default_factory=list)
    round: int = 0
    activity: str = ""
    is_byzantine: bool = False

    def add_evaluation(self, round_: int, accuracy: float | None) -> None:
        """Add one evaluation; if its accuracy is missing, update only the round."""
        self.round = max(self.round, round_)
        if accuracy is not None:
            self.accuracy.append(accuracy)


class LiveStats:
    """Statistics of a run, updated with lines of events.jsonl, or of metrics.csv if there are no events."""

    def __init__(self, num_clients: int, moment: str = "trained") -> None:
        self.moment = moment
        self.clients = [ClientStats() for _ in range(num_clients)]
        self.time_s = 0.0
        self.messages: Counter[str] = Counter()
        """Number of message records by kind, such as sent, lost and used."""
        self.num_estimates = self.num_clipped = 0
        """Rounds of honest clients with an estimate, and rounds in which the estimate was clipped."""
        self.faults: deque[tuple[float, str]] = deque(maxlen=MAX_FAULTS)
        """Times and descriptions of the latest faults."""
        self.status: str | None = None
        self._timeline = FaultTimeline()

    @property
    def num_faults(self) -> int:
        """Number of fault records."""
        return self._timeline.num_records

    @property
    def rounds_done(self) -> int:
        """Total number of rounds of all clients."""
        return sum(client.round for client in self.clients)

    @property
    def honest_accuracy(self) -> float | None:
        """Mean latest accuracy of the honest clients that were evaluated."""
        latest = [
            client.accuracy[-1] for client in self.clients if client.accuracy and not client.is_byzantine
        ]
        return sum(latest) / len(latest) if latest else None

    @property
    def clipped_share(self) -> float | None:
        """Share of honest rounds in which the estimate was clipped."""
        return self.num_clipped / self.num_estimates if self.num_estimates else None

    def message_share(self, kind: str, total: str) -> float | None:
        """Return the number of messages of one kind relative to another kind."""
        return self.messages[kind] / self.messages[total] if self.messages[total] else None

    def add_records(self, lines: Iterable[bytes]) -> None:
        """Add lines of events.jsonl; message records are only counted, because there are many."""
        start = len(MESSAGE_PREFIX)
        for line in lines:
            if line.startswith(MESSAGE_PREFIX):
                self.messages[line[start:].partition(b'"')[0].decode(errors="replace")] += 1
            else:
                self._add(parse_record(line, len(self.clients)))

    def add_metrics(self, lines: Iterable[bytes]) -> None:
        """Add lines of metrics.csv, or raise `RunError` if they are damaged."""
        try:
            rows = list(parse_metrics(line.decode() for line in lines))
        except ValueError as error:
            raise RunError(f"{METRICS_FILE} is damaged: {error}") from error
        for row in rows:
            values: Mapping[str, Any] = row
            self.time_s = max(self.time_s, row["trained_time_s"] or 0.0, row["updated_time_s"] or 0.0)
            if row["client"] not in range(len(self.clients)):
                raise RunError(f"{METRICS_FILE} is damaged: there is no client {row['client']}")
            client = self.clients[row["client"]]
            client.is_byzantine = bool(row["byzantine"])
            client.add_evaluation(row["round"], values[f"{self.moment}_personal_accuracy"])

    def _add(self, record: Record) -> None:
        self.time_s = record["time_s"]
        match record["event"]:
            case "run_started":
                for client in record["byzantine"]:
                    self.clients[client].is_byzantine = True
            case "training_started":
                self.clients[record["client"]].activity = "training"
            case "training_finished":
                client = self.clients[record["client"]]
                client.activity, client.round = "waiting", max(client.round, record["round"])
            case "round_finished":
                self.clients[record["client"]].activity = "done"
            case "estimate":
                self._add_estimate(record)
            case "evaluated":
                client = self.clients[record["client"]]
                client.add_evaluation(record["round"], record[f"{self.moment}_personal_accuracy"])
            case "fault":
                self._add_fault(record)
            case "run_finished":
                self.status = record["status"]

    def _add_estimate(self, record: Record) -> None:
        if not self.clients[record["client"]].is_byzantine and "tau" in record:
            self.num_estimates += 1
            self.num_clipped += bool(record.get("clipped"))

    def _add_fault(self, record: Record) -> None:
        self.faults.append((record["time_s"], fault_text(record)))
        effect = self._timeline.apply(record)
        for client in effect.stopped:
            self.clients[client].activity = "down"
        for client in effect.resumed:
            self.clients[client].activity = ""
