"""The dashboard and the statistics that it shows."""

from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from rdpfl_sim import Scenario, simulate
from rdpfl_sim.reports.dashboard import Dashboard, LiveStats, SpeedMeter, sparkline
from tests.records.lines import record_line
from tests.support import small_scenario

EVERYTHING = Path(__file__).parents[2] / "scenarios" / "stress" / "everything.toml"


def screen(dashboard: Dashboard, width: int, height: int, encoding: str = "utf-8") -> list[str]:
    stream = TextIOWrapper(BytesIO(), encoding)
    Console(file=stream, width=width, height=height).print(dashboard)
    stream.seek(0)
    return stream.read().splitlines()


def evaluated(accuracies: list[float], byzantine: list[int]) -> LiveStats:
    stats = LiveStats(len(accuracies))
    stats.add_records([record_line("run_started", byzantine=byzantine)])
    for client, value in enumerate(accuracies):
        stats.add_records([record_line("evaluated", client=client, round=5, trained_personal_accuracy=value)])
    return stats


def test_statistics_after_a_run_equal_its_summary(tmp_path: Path) -> None:
    result = simulate(Scenario.load(EVERYTHING, ["rounds=6"]), tmp_path)
    assert result.folder is not None
    stats = LiveStats(result.summary["num_clients"])
    stats.add_records((result.folder / "events.jsonl").read_bytes().splitlines())
    summary, messages = result.summary, result.summary["messages"]
    assert stats.status == summary["status"]
    assert stats.time_s == summary["simulated_s"]
    assert stats.num_faults == summary["num_faults"]
    assert stats.honest_accuracy == pytest.approx(summary["accuracy"]["honest"]["personal"]["mean"])
    assert stats.clipped_share == pytest.approx(summary["telemetry"]["rounds"]["all"]["clipped"])
    assert stats.messages["sent"] + stats.messages["copied"] == messages["sent"]
    for outcome in ("lost", "delivered", "used", "stale"):
        assert stats.messages[outcome] == messages[outcome]
    byzantine = [number for number, client in enumerate(stats.clients) if client.is_byzantine]
    assert byzantine == summary["byzantine"]


def test_metrics_and_records_give_the_same_accuracies(tmp_path: Path) -> None:
    folder = simulate(small_scenario(adversary={"attack": "noise", "fraction": 0.34}), tmp_path).folder
    assert folder is not None
    records, metrics = LiveStats(6), LiveStats(6)
    records.add_records((folder / "events.jsonl").read_bytes().splitlines())
    metrics.add_metrics((folder / "metrics.csv").read_bytes().splitlines())
    assert [(c.accuracy, c.round, c.is_byzantine) for c in metrics.clients] == [
        (c.accuracy, c.round, c.is_byzantine) for c in records.clients
    ]


def test_client_is_down_until_its_last_fault_ends() -> None:
    stats = LiveStats(2)
    activities = []
    for phase in ("start", "start", "end", "end"):
        stats.add_records([record_line("fault", kind="crash", phase=phase, clients=[1])])
        activities.append(stats.clients[1].activity)
    assert activities == ["down", "down", "down", ""]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "crash", "phase": "start", "clients": [3]}, "crash: client 3"),
        (
            {"kind": "absence", "phase": "end", "clients": list(range(10))},
            "absence ends: clients 0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        ),
        (
            {"kind": "slow_down", "phase": "start", "clients": [1, 2], "factor": 4.0},
            "slow down: clients 1, 2, 4 times as slow",
        ),
        ({"kind": "partition", "phase": "start", "sides": [[0, 1], [2]]}, "partition: 0, 1 | 2"),
        ({"kind": "link_outage", "phase": "start", "links": [[0, 1]]}, "link outage: 1 link: 0 to 1"),
        (
            {"kind": "topology_change", "phase": "start", "links": [[0, 1], [1, 2]]},
            "topology change: 2 links: 0-1, 1-2",
        ),
    ],
)
def test_faults_are_described_in_words(fields: dict, words: str) -> None:
    stats = LiveStats(10)
    stats.add_records([record_line("fault", 2.0, **fields)])
    assert list(stats.faults) == [(2.0, words)]


@pytest.mark.parametrize("width", [20, 31, 40, 60, 80, 200])
@pytest.mark.parametrize("height", [4, 6, 9, 15, 24, 60])
def test_dashboard_fits_every_terminal(width: int, height: int) -> None:
    stats = evaluated([place / 30 for place in range(30)], byzantine=[7, 8])
    for number in range(200):
        stats.add_records([record_line("fault", 1e4, kind="crash", phase="start", clients=[number % 30])])
        stats.add_records([record_line("evaluated", client=3, round=number, trained_personal_accuracy=0.5)])
    stats.add_records([record_line("message_sent")] * 50)
    lines = screen(Dashboard("a rather long name, seed 12345", stats, 3000), width, height)
    assert len(lines) < max(height, 5)
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("a rather long name"[:width])


def test_worst_and_best_clients_are_shown_if_not_all_fit() -> None:
    stats = evaluated([0.5, 0.1, 0.9, 0.3, 0.7, 0.0, 1.0], byzantine=[5])
    lines = screen(Dashboard("demo", stats, 100), 80, 11)
    assert [text.split()[0] for text in lines[5:]] == ["1", "3", "...", "2", "6"]
    assert "... 3 more" in lines[7]
    everyone = screen(Dashboard("demo", stats, 100), 80, 24)[5:]
    assert [text.split()[0] for text in everyone] == ["1", "3", "0", "4", "2", "6", "5"]


def test_terminal_without_unicode_gets_ascii() -> None:
    stats = evaluated([0.1, 0.9], byzantine=[])
    lines = screen(Dashboard("demo", stats, 10), 80, 24, encoding="ascii")
    assert all(text.isascii() for text in lines[2:])


def test_user_supplied_text_is_neither_markup_nor_a_control_sequence() -> None:
    lines = screen(Dashboard("[red]\x1b[2J", LiveStats(1), 10), 80, 24)
    assert lines[0].startswith("[red]\\x1b[2J: running")


def test_speed_is_that_of_the_last_seconds() -> None:
    meter = SpeedMeter()
    assert meter.speed() is None
    meter.sample(0.0, 1000, 5000)  # progress before the first sample
    assert meter.speed() is None
    for second in range(1, 101):
        meter.sample(float(second), 1000 + 2 * second, 5000 + 30 * second)
    assert meter.speed() == pytest.approx((2.0, 30.0))
    for second in range(101, 121):
        meter.sample(float(second), 1200, 8000)
    assert meter.speed() == (0.0, 0.0)


def test_messages_are_estimated_if_only_some_are_recorded() -> None:
    stats = LiveStats(1)
    stats.add_records(
        [record_line("training_started", 10.0, client=0, round=1), *[record_line("message_sent", 10.0)] * 20]
    )
    assert "~200 messages, ~20 per simulated s" in screen(Dashboard("demo", stats, 1, 0.1), 80, 24)[2]


def test_sparkline_ends_with_the_last_value_and_accepts_equal_values() -> None:
    assert sparkline([1.0] * 99 + [0.0], 10, 0.0, 1.0) == "█" * 9 + "▁"
    assert sparkline([0.5, 0.5], 10, 0.5, 0.5) == "▁▁"
    assert sparkline([], 10, 0.0, 1.0) == sparkline([1.0], 0, 0.0, 1.0) == ""


def test_line_of_a_client_has_its_activity_round_and_accuracy() -> None:
    stats = evaluated([0.25, 0.75], byzantine=[1])
    stats.add_records([record_line("training_started", client=0, round=6)])
    shown = screen(Dashboard("demo", stats, 10), 80, 24)
    assert Text(shown[5]).plain.split() == ["0", "honest", "training", "5", "0.250", "▁"]
    assert Text(shown[6]).plain.split() == ["1", "Byzantine", "5", "0.750", "█"]


def test_all_clients_are_done_after_a_small_run(tmp_path: Path) -> None:
    folder = simulate(small_scenario(), tmp_path).folder
    assert folder is not None
    stats = LiveStats(6)
    stats.add_records((folder / "events.jsonl").read_bytes().splitlines())
    assert {client.activity for client in stats.clients} == {"done"}
    assert stats.rounds_done == 24
