"""The report of a run or a sweep: what is on it, what is left out, and that it stays small and safe."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.frames import Run, Sweep, events
from rdpfl_sim.reports.html import clients, estimator, spacetime
from rdpfl_sim.reports.html.faults import fault_cards
from rdpfl_sim.reports.html.messages import age_card, delay_card, fates_card
from rdpfl_sim.reports.html.page import Card, Page, Tab, as_json, render, table
from rdpfl_sim.reports.html.plot import compact, spread
from rdpfl_sim.reports.html.run_page import run_page
from rdpfl_sim.reports.html.sweep_page import sweep_page
from rdpfl_sim.reports.html.topology import topology_card
from tests.frames.run_folders import EVENTS, SCENARIO, write_run
from tests.frames.test_run import FAULTY
from tests.frames.test_sweep import write_sweep
from tests.support import small_scenario

LIBRARY = 5_500_000
"""About as large as the plotting library may be."""


def cards(page: Page) -> dict[str, Card]:
    return {card.title: card for tab in page.tabs for card in tab.cards}


def tiles(page: Page) -> dict[str, str]:
    return {tile.label: tile.value for tile in page.tiles}


def traces(card: Card) -> dict[str, dict[str, Any]]:
    figure = next(iter(card.views.values()))
    return {trace.get("name", ""): trace for trace in figure.traces}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(small_scenario(**FAULTY, rounds=6), tmp_path_factory.mktemp("runs")).folder


def test_tiles_tell_what_the_summary_tells(folder: Path) -> None:
    run = Run(folder)
    page = run_page(run)
    summary, found = run.summary, tiles(page)
    assert found["honest accuracy"] == f"{summary['accuracy']['honest']['personal']['mean']:.3f}"
    assert found["worst honest"] == f"{summary['accuracy']['honest']['personal']['worst']:.3f}"
    assert found["messages"] == f"{summary['messages']['sent']:,}"
    assert found["clipped"] == f"{summary['telemetry']['rounds']['all']['clipped']:.1%}"
    assert found["faults"] == "2"
    assert page.status == "finished"
    assert list(page.warnings) == summary["warnings"]


def test_page_holds_everything_and_stays_small(folder: Path) -> None:
    page = run_page(Run(folder))
    assert [tab.name for tab in page.tabs] == [
        *("Overview", "Clients", "Topology", "Messages", "Estimator", "Contamination", "Faults"),
        *("Scenario", "Provenance"),
    ]
    assert all(card.views or card.html for tab in page.tabs for card in tab.cards)
    text = render(page)
    assert len(text) < LIBRARY + 1_000_000
    assert "connect-src" not in text.partition("</head>")[0]  # so that default-src 'none' holds for it
    assert "default-src 'none'" in text.partition("</head>")[0]
    assert not re.search(r'(src|href)="(?!data:)', text.partition("<script")[0])


def test_fates_are_counted_by_who_sent(tmp_path: Path) -> None:
    card = fates_card(Run(write_run(tmp_path)).messages.collect())
    honest, byzantine = card.views["fates"].traces
    assert dict(zip(honest["y"], honest["x"], strict=True)) == {
        "used": 1,
        "rejected": 1,
        "left over": 1,
        "lost": 0,
        "in flight": 1,
    }
    assert dict(zip(byzantine["y"], byzantine["x"], strict=True))["lost"] == 1
    assert "rejected: not finite" in card.views["reasons"].traces[0]["y"]


def test_ages_and_delays_are_those_of_the_records(tmp_path: Path) -> None:
    messages = Run(write_run(tmp_path)).messages.collect()
    ages = traces(age_card(messages))["from honest clients"]
    assert (ages["x"], ages["y"], ages["customdata"]) == ([0], [100], [1])
    delays = traces(delay_card(messages))["from honest clients"]
    assert sum(delays["y"]) == 2
    assert "Median 0.45 s" in delay_card(messages).text


def test_arrows_go_from_sender_and_sending_to_recipient_and_arrival(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    card = spacetime.spacetime_card(run, run.messages.collect(), run.rounds.collect())
    arrows = traces(card)
    assert (arrows["used"]["x"], arrows["used"]["y"]) == ([1.0, 1.5, None], [0, 1, None])
    assert (arrows["lost"]["x"], arrows["lost"]["y"]) == ([2.0, 2.5, None], [2, 1.4, None])
    assert "<b>2 (Byzantine) → 1</b>, round 9" in arrows["lost"]["hovertext"][1]
    assert (arrows["training"]["x"], arrows["training"]["y"]) == ([0.0, 3.0, None], [1, 1, None])


def test_many_messages_are_shown_in_windows_and_the_page_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spacetime, "MAX_MESSAGES", 30)
    monkeypatch.setattr(spacetime, "MAX_CLIENTS", 4)
    run = Run(folder)
    card = spacetime.spacetime_card(run, run.messages.collect(), run.rounds.collect())
    assert list(card.views) == ["beginning", "middle", "end"]
    assert card.note.startswith("4 of 6 clients, near each other, and messages among them. 30 of ")


def test_links_know_their_messages(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    card = topology_card(run, run.latest, run.messages.collect())
    middles = next(trace for trace in card.views["messages lost"].traces if "customdata" in trace)
    columns = ("i", "j", "sent", "used", "lost", "stale", "rejected")
    assert [dict(zip(columns, row, strict=True)) for row in middles["customdata"]] == [
        {"i": 0, "j": 1, "sent": 3, "used": 1, "lost": 0, "stale": 0, "rejected": 1},
        {"i": 1, "j": 2, "sent": 2, "used": 0, "lost": 1, "stale": 0, "rejected": 0},
    ]


def test_faults_last_from_their_beginning_to_their_end(tmp_path: Path) -> None:
    events = [
        {"event": "fault", "time_s": 1.0, "fault": 0, "change": "crash", "clients": [0], "for_good": False},
        {"event": "fault", "time_s": 2.0, "fault": 1, "change": "crash", "clients": [0], "for_good": False},
        {"event": "fault", "time_s": 3.0, "fault": 0, "change": "recover", "clients": [0]},
        {"event": "fault", "time_s": 4.0, "fault": 1, "change": "recover", "clients": [0]},
        {"event": "fault", "time_s": 5.0, "fault": 2, "change": "leave", "clients": [1]},
        {"event": "fault", "time_s": 6.0, "fault": 3, "change": "cut", "sides": [[0], [1, 2]]},
        {"event": "fault", "time_s": 6.5, "fault": 3, "change": "heal", "sides": [[0], [1, 2]]},
    ]
    timeline = traces(fault_cards(Run(write_run(tmp_path, events)).faults, 10.0)[0])
    spans = {name: (bar["y"], bar["base"], bar["x"]) for name, bar in timeline.items()}
    assert spans == {
        "down": (["0"], [1.0], [3.0]),
        "gone": (["1"], [5.0], [5.0]),
        "cut off": (["partition"], [6.0], [0.5]),
    }


def test_clipping_is_shown_where_it_bound() -> None:
    columns = (
        "client",
        "round",
        "is_byzantine",
        "finished_s",
        "num_used",
        "tau",
        "delta_norm",
        "clipped",
        "bounded",
    )
    rows = [
        (0, 1, False, 1.0, 2, 1.0, 0.5, False, False),
        (0, 2, False, 2.0, 2, 1.0, 2.0, True, False),
        (1, 1, False, 1.0, 2, 1.0, 2.0, True, True),
        (1, 2, False, 2.0, 0, 1.0, None, None, False),
        (2, 1, True, 1.0, 2, 1.0, 9.0, True, False),
    ]
    rounds = pl.DataFrame(rows, schema=list(columns), orient="row")
    threshold, binding = estimator.estimator_cards(rounds)[:2]
    assert list(threshold.views) == ["linear", "logarithmic"]
    assert "It bound in 50.0% of the rounds of honest clients." in threshold.text
    [trace] = binding.views["rounds"].traces
    assert (trace["y"], trace["x"], trace["z"]) == (["0", "1"], [1, 2], [[1, 2], [3, 0]])


def test_threshold_is_shown_also_without_a_deviation() -> None:
    row = {"client": 0, "is_byzantine": False, "finished_s": 1.0, "num_used": 1, "tau": 1.5, "num_clipped": 1}
    cards = estimator.estimator_cards(pl.DataFrame([{**row, "round": round_} for round_ in range(3)]))
    assert [card.title for card in cards] == ["τ, the threshold", "messages held near the own update"]


def test_a_few_huge_deviations_are_shown_on_a_logarithmic_axis_first() -> None:
    row = {"client": 0, "is_byzantine": False, "finished_s": 1.0, "num_used": 1, "tau": 1.0}
    rows = [
        {**row, "round": r, "delta_norm": 1e30 if r < 3 else 1.0, "clipped": r < 3, "bounded": False}
        for r in range(20)
    ]
    assert list(estimator.estimator_cards(pl.DataFrame(rows))[0].views) == ["logarithmic", "linear"]


def test_of_many_clients_the_worst_and_the_best_are_shown() -> None:
    last = pl.DataFrame(
        {
            "client": range(100),
            "is_byzantine": [client >= 80 for client in range(100)],
            "personal_accuracy": [client / 100 for client in range(100)],
        }
    )
    chosen = clients.chosen(last, 10)
    assert len(chosen) == 10
    assert {0, 79, 80, 99} <= set(chosen)
    assert clients.chosen(last.head(10), 10) == list(range(10))


LEFT_OUT = {
    "summary.json": ("unfinished: still running, or killed", "Accuracy"),
    "metrics.csv": ("finished", "Accuracy"),
    "events.jsonl": ("finished", "Messages"),
    "topology.json": ("finished", "Topology"),
    "provenance.json": ("finished", "Provenance"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_run_without_one_of_its_files_has_a_report(folder: Path, tmp_path: Path, name: str) -> None:
    for file in folder.iterdir():
        if file.is_file() and file.name != name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    page = run_page(Run(tmp_path))
    status, title = LEFT_OUT[name]
    assert page.status == status
    assert title in cards(page)
    render(page)
    if name in ("metrics.csv", "events.jsonl", "provenance.json"):
        assert "missing" in cards(page)[title].html


@pytest.mark.parametrize(
    ("changes", "title", "sentence"),
    [
        ({"method": "local", "timing": {"wait": "none"}}, "Messages", "Clients trained alone (method local)"),
        ({"output": {"events": False}}, "Messages", "Events were not recorded: output.events is false."),
        ({"output": {"message_events": 0.0}}, "Messages", "Single messages were not recorded"),
        (
            {"method": "local", "clients": {"count": 1}, "timing": {"wait": "none"}},
            "Contamination",
            "nothing can spread",
        ),
        ({}, "Faults", "Nothing broke"),
    ],
)
def test_what_is_missing_is_told_in_a_sentence(
    tmp_path: Path, changes: dict[str, Any], title: str, sentence: str
) -> None:
    page = run_page(Run(simulate(small_scenario(**changes), tmp_path).folder))
    assert sentence in cards(page)[title].html
    render(page)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_did_not_end_well_says_so_first(tmp_path: Path, status: str) -> None:
    page = run_page(Run(write_run(tmp_path, summary={"status": status, "error": "no space left"})))
    assert page.status == status
    assert {"interrupted": "rdpfl-sim resume", "failed": "no space left"}[status] in page.warnings[0]


def test_numbers_that_are_none_leave_gaps_and_no_warnings(tmp_path: Path) -> None:
    write_run(tmp_path)
    metrics = (tmp_path / "metrics.csv").read_text()
    (tmp_path / "metrics.csv").write_text(metrics.replace("0.75", "nan").replace("0.25", "inf"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = run_page(Run(tmp_path))
        render(page)
    assert tiles(page)["honest accuracy"] == "-"


def test_diagnostics_of_any_method_are_shown(tmp_path: Path) -> None:
    page = run_page(Run(write_run(tmp_path)))
    assert "distance moved by mixing" in cards(page)
    events = [{**event, "strange": 3.5} if event["event"] == "round_finished" else event for event in EVENTS]
    assert "strange" in cards(run_page(Run(write_run(tmp_path, events))))


def test_text_of_files_is_escaped_everywhere(tmp_path: Path) -> None:
    evil = "<script>x</script>"
    scenario = {**SCENARIO, "name": evil, evil: {"key": evil}}
    events = [{**event, "reason": evil} if "reason" in event else event for event in EVENTS]
    summary = {"status": evil, "warnings": [evil], "method": evil, "error": evil}
    (tmp_path / "provenance.json").write_text(json.dumps({"sessions": [{"command": evil}]}))
    text = render(run_page(Run(write_run(tmp_path, events, summary, scenario))))
    body = text.partition("<body>")[2].partition('<script type="application/json"')
    assert evil not in body[0]
    assert "&lt;script&gt;x" in body[0]
    assert evil not in body[2].partition("</script>")[0]


def test_json_in_a_page_cannot_end_its_script_element() -> None:
    text = as_json({"a": "</script><!--"})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><!--"}


def test_numbers_are_short_and_finite() -> None:
    assert compact([1e30, -1e-7 / 3, float("inf"), 123456.7]) == [1e30, -3.333e-08, None, 123457]


def test_spread_of_few_lines_is_from_the_worst_to_the_best() -> None:
    low, high, mean = spread([0], np.array([[1.0], [2.0], [6.0]]), "honest", "@honest", few=True)
    assert (low["y"], high["y"], mean["y"]) == ([1], [6], [3])


def test_columns_of_numbers_stand_to_the_right() -> None:
    text = table(("who", "score"), [("a", "0.5"), ("<b>", "-")])
    assert '<th class="number">score</th>' in text
    assert '<td class="">&lt;b&gt;</td>' in text


def test_a_card_that_would_be_alone_in_its_row_fills_it() -> None:
    alone = Page(
        "", "", "", [], [], [Tab("Tab", [Card("a", html="x"), Card("b", html="x"), Card("c", html="x")])]
    )
    assert re.findall(r'<article class="([^"]+)">', render(alone)) == ["card", "card", "card wide"]


def test_report_of_a_sweep_has_tables_and_paired_differences(tmp_path: Path) -> None:
    page = sweep_page(Sweep(write_sweep(tmp_path)))
    assert (page.title, page.status, tiles(page)["runs"]) == ("scores", "unfinished", "7")
    assert page.warnings[0] == "1 of 8 runs are missing: still to be run, or failed."
    heat_map = next(iter(traces(cards(page)["Scores"]).values()))
    assert (heat_map["x"], heat_map["y"]) == (["2", "3"], ["none", "noise"])
    assert heat_map["z"] == [[21.5, 31.5], [21.5, 30]]
    assert "31.5000 ± " in cards(page)["Scores: numbers"].html
    render(page)


def test_differences_are_to_local_training_if_there_is_any(tmp_path: Path) -> None:
    scores = {("a", "LOCAL"): 0.5, ("a", "other"): 0.75}
    runs = []
    for (attack, method), score in scores.items():
        for seed in (1, 2):
            name = f"{attack}-{method}-{seed}"
            summary = {
                "status": "finished",
                "accuracy": {"honest": {"personal": {"mean": score, "worst": score}}},
            }
            write_run(tmp_path / name, (), summary, {**SCENARIO, "seed": seed})
            runs.append({"folder": name, "labels": {"attack": attack, "method": method}})
    axes = [{"name": "attack", "labels": ["a"]}, {"name": "method", "labels": ["other", "LOCAL"]}]
    plan = {"name": "x", "axes": axes, "runs": runs, "tables": []}
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    found = cards(sweep_page(Sweep(tmp_path)))
    [trace] = found["method: difference to LOCAL"].views["mean"].traces
    assert (trace["x"], trace["y"], trace["z"], trace["text"]) == (
        ["other"],
        ["a"],
        [[0.25]],
        [["<b>+0.250</b>"]],
    )


def test_report_of_a_sweep_that_has_just_begun(tmp_path: Path) -> None:
    plan = {"name": "new", "axes": [{"name": "a", "labels": ["1", "2"]}], "runs": [], "tables": []}
    plan["runs"] = [{"folder": "missing", "labels": {"a": "1"}}]
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    page = sweep_page(Sweep(tmp_path))
    assert "No run is complete yet." in cards(page)["Tables"].html
    render(page)


def test_report_of_runs_without_a_plan(tmp_path: Path) -> None:
    page = sweep_page(Sweep(write_sweep(tmp_path, with_plan=False)))
    assert "There is no sweep.json" in cards(page)["Plan"].text
    render(page)


def test_command_writes_the_page_and_prints_where(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert main(["report", str(folder), "--output", str(tmp_path / "mine.html")]) == 0
    assert (tmp_path / "mine.html").read_bytes() == (folder / "report.html").read_bytes()


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_command_tells_what_is_no_run(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert "does not exist" in error or "neither a run folder nor a sweep folder" in error
    assert list(tmp_path.iterdir()) == []


def test_a_thousand_clients_are_thinned_and_the_page_says_where(tmp_path: Path) -> None:
    num = 1_000
    records: list[dict[str, Any]] = []
    for sender in range(num):
        for step in range(1, 5):
            mail = {"message": len(records), "sender": sender, "recipient": (sender + step) % num, "round": 1}
            records.append({"event": "message_sent", "time_s": sender / num, **mail})
    rounds = {
        "event": "round_finished",
        "round": 1,
        "num_used": 1,
        "tau": 1.0,
        "delta_norm": 0.5,
        "clipped": False,
    }
    records += [{**rounds, "time_s": 2.0, "client": client} for client in range(num)]
    records += [
        {**rounds, "event": "training_started", "time_s": 2.0, "client": client} for client in range(num)
    ]
    write_run(tmp_path, sorted(records, key=lambda record: record["time_s"]), byzantine=range(0, num, 10))
    edges = [(client, (client + step) % num) for client in range(num) for step in range(1, 5)]
    topology = json.loads((tmp_path / "topology.json").read_text()) | {"num_clients": num, "edges": edges}
    (tmp_path / "topology.json").write_text(json.dumps(topology))
    head, *_ = (tmp_path / "metrics.csv").read_text().splitlines()
    lines = [f"1.0,{client},{int(client % 10 == 0)},1,1,0.5,,,,,,,," for client in range(num)]
    (tmp_path / "metrics.csv").write_text("\n".join([head, *lines]) + "\n")
    page = run_page(Run(tmp_path))
    found = cards(page)
    assert found["Topology"].note == "1 of 2 links is drawn."
    assert found["Every client"].note.startswith("60 of 1,000 clients are shown")
    assert found["Last evaluations"].note == "The first 300 of 1,000 clients are listed."
    assert found["Space and time"].note.startswith("30 of 1,000 clients, near each other")
    assert found["Where it bound"].note.endswith("of 900 honest clients are shown.")
    assert len(render(page)) < LIBRARY + 1_500_000


@pytest.mark.parametrize(("head", "told"), [(5_000, "is damaged at line 10"), (1, "the records are damaged")])
def test_command_tells_that_records_are_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, head: int, told: str
) -> None:
    monkeypatch.setattr(events, "NUM_INSPECTED", head)
    write_run(tmp_path, summary={"status": "finished"})
    records = (tmp_path / "events.jsonl").read_text()
    (tmp_path / "events.jsonl").write_text(records.replace('"message": 2', '"message" 2'))
    assert main(["report", str(tmp_path)]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
