"""The report of a run or a sweep: its content, its size, and the escaping of text from files."""

import json
import re
import shutil
import tomllib
import warnings
from collections.abc import Collection, Sequence
from html.parser import HTMLParser
from itertools import chain, product
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import polars as pl
import pytest
import tomli_w

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.reports.html import tabs
from rdpfl_sim.reports.html.page import Card, HtmlTable, Page, Plot, Tab, compact, render
from rdpfl_sim.reports.html.run_page import run_page
from rdpfl_sim.reports.html.sweep_page import sweep_page
from rdpfl_sim.reports.html.tabs import clients, estimator, messages
from rdpfl_sim.reports.html.tabs.faults import fault_cards
from rdpfl_sim.reports.html.tabs.messages import age_card, delay_card, outcomes_card
from rdpfl_sim.reports.html.tabs.overview import accuracy_card
from rdpfl_sim.reports.html.tabs.scenario import TomlListing, scenario_card
from rdpfl_sim.reports.html.tabs.topology import topology_card
from rdpfl_sim.results import Run, Sweep
from tests.results.run_folders import EVENTS, SCENARIO, metrics_text, scores, write_run
from tests.results.test_charts import write_loss_sweep
from tests.results.test_run import FAULTY
from tests.results.test_sweep import write_sweep
from tests.support import small_scenario

LIBRARY = 5_500_000
"""Upper limit for the size of plotly.js, which is part of every page."""


def cards(page: Page) -> dict[str, Card]:
    return {card.title: card for tab in page.tabs for card in tab.cards}


def tiles(page: Page) -> dict[str, str]:
    return {tile.label: tile.value for tile in page.tiles}


def traces(card: Card) -> dict[str, dict[str, Any]]:
    figure = next(iter(card.views.values()))
    return {trace.get("name", ""): trace for trace in figure.traces}


def page_with(*cards: Card) -> Page:
    return Page("", "", "", [], [], [Tab("Tab", cards)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(small_scenario(**FAULTY, rounds=6), tmp_path_factory.mktemp("runs")).folder


def test_tiles_show_values_of_the_summary(folder: Path) -> None:
    run = Run(folder)
    page = run_page(run)
    summary, shown = run.summary, tiles(page)
    assert shown["honest accuracy"] == f"{summary['accuracy']['honest']['personal']['mean']:.3f}"
    assert shown["worst honest"] == f"{summary['accuracy']['honest']['personal']['worst']:.3f}"
    assert shown["messages"] == f"{summary['messages']['sent']:,}"
    assert shown["clipped"] == f"{summary['telemetry']['rounds']['all']['clipped']:.1%}"
    assert shown["faults"] == "2"
    assert page.status == "finished"
    assert list(page.warnings) == summary["warnings"]


def test_page_is_complete_self_contained_and_small(folder: Path) -> None:
    page = run_page(Run(folder))
    assert [tab.name for tab in page.tabs] == [
        *("Overview", "Clients", "Topology", "Messages", "Estimator", "Contamination", "Faults"),
        *("Scenario", "Provenance"),
    ]
    assert all(card.views or card.content or card.missing for tab in page.tabs for card in tab.cards)
    text = render(page)
    assert len(text) < LIBRARY + 1_000_000
    assert "connect-src" not in text.partition("</head>")[0]  # so that default-src 'none' applies to it
    assert "default-src 'none'" in text.partition("</head>")[0]
    assert not re.search(r'(src|href)="(?!data:)', text.partition("<script")[0])


def test_every_file_in_tabs_is_one_tab(tmp_path: Path) -> None:
    shown = {tab.slug for tab in run_page(Run(write_run(tmp_path))).tabs}
    assert shown == {module.name for module in iter_modules(tabs.__path__)}


def test_outcomes_are_counted_by_role_of_the_sender(tmp_path: Path) -> None:
    card = outcomes_card(Run(write_run(tmp_path)).messages.collect())
    honest, byzantine = card.views["outcomes"].traces
    assert dict(zip(honest["y"], honest["x"], strict=True)) == {
        "used": 1,
        "rejected": 1,
        "left over": 1,
        "lost": 0,
        "in flight": 1,
    }
    assert dict(zip(byzantine["y"], byzantine["x"], strict=True))["lost"] == 1
    assert "rejected: not finite" in card.views["reasons"].traces[0]["y"]


def test_ages_and_delays_match_the_records(tmp_path: Path) -> None:
    messages = Run(write_run(tmp_path)).messages.collect()
    ages = traces(age_card(messages))["from honest clients"]
    assert (ages["x"], ages["y"], ages["customdata"]) == ([0], [100], [1])
    delays = traces(delay_card(messages))["from honest clients"]
    assert sum(delays["y"]) == 2
    assert "Median 0.45 s" in delay_card(messages).text


def test_arrows_start_at_sender_and_sending_time_and_end_at_recipient_and_delivery_time(
    tmp_path: Path,
) -> None:
    run = Run(write_run(tmp_path))
    card = messages.spacetime_card(run, run.messages.collect(), run.rounds.collect())
    arrows = traces(card)
    assert (arrows["used"]["x"], arrows["used"]["y"]) == ([1.0, 1.5, None], [0, 1, None])
    assert (arrows["lost"]["x"], arrows["lost"]["y"]) == ([2.0, 2.5, None], [2, 1.4, None])
    assert "<b>2 (Byzantine) → 1</b>, round 9" in arrows["lost"]["hovertext"][1]
    assert (arrows["training"]["x"], arrows["training"]["y"]) == ([0.0, 3.0, None], [1, 1, None])


def test_many_messages_are_shown_in_windows_with_a_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGES", 30)
    monkeypatch.setattr(messages, "MAX_CLIENTS", 4)
    run = Run(folder)
    card = messages.spacetime_card(run, run.messages.collect(), run.rounds.collect())
    assert list(card.views) == ["start", "middle", "end"]
    assert card.note.startswith("4 of 6 clients and the messages among them are shown. 30 of ")


def test_links_count_their_messages(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    card = topology_card(run, run.latest, run.messages.collect())
    middles = next(trace for trace in card.views["messages lost"].traces if "customdata" in trace)
    columns = ("i", "j", "sent", "used", "lost", "stale", "rejected")
    assert [dict(zip(columns, row, strict=True)) for row in middles["customdata"]] == [
        {"i": 0, "j": 1, "sent": 3, "used": 1, "lost": 0, "stale": 0, "rejected": 1},
        {"i": 1, "j": 2, "sent": 2, "used": 0, "lost": 1, "stale": 0, "rejected": 0},
    ]


def test_faults_last_from_start_to_end(tmp_path: Path) -> None:
    events = [
        {
            "event": "fault",
            "time_s": 1.0,
            "fault": 0,
            "kind": "crash",
            "phase": "start",
            "clients": [0],
            "for_good": False,
        },
        {
            "event": "fault",
            "time_s": 2.0,
            "fault": 1,
            "kind": "crash",
            "phase": "start",
            "clients": [0],
            "for_good": False,
        },
        {"event": "fault", "time_s": 3.0, "fault": 0, "kind": "crash", "phase": "end", "clients": [0]},
        {"event": "fault", "time_s": 4.0, "fault": 1, "kind": "crash", "phase": "end", "clients": [0]},
        {"event": "fault", "time_s": 5.0, "fault": 2, "kind": "leave", "phase": "start", "clients": [1]},
        {
            "event": "fault",
            "time_s": 6.0,
            "fault": 3,
            "kind": "partition",
            "phase": "start",
            "sides": [[0], [1, 2]],
        },
        {
            "event": "fault",
            "time_s": 6.5,
            "fault": 3,
            "kind": "partition",
            "phase": "end",
            "sides": [[0], [1, 2]],
        },
    ]
    timeline = traces(fault_cards(Run(write_run(tmp_path, events)).faults, 10.0)[0])
    spans = {name: (bar["y"], bar["base"], bar["x"]) for name, bar in timeline.items()}
    assert spans == {
        "down": (["0"], [1.0], [3.0]),
        "departed": (["1"], [5.0], [5.0]),
        "partitioned": (["partition"], [6.0], [0.5]),
    }


def test_a_link_with_overlapping_outages_counts_once(tmp_path: Path) -> None:
    fault = {"event": "fault", "fault": 0, "kind": "link_outage", "links": [[0, 1]]}
    phases = [(1.0, "start"), (2.0, "start"), (3.0, "end"), (4.0, "end")]
    events = [{**fault, "time_s": time_s, "phase": phase} for time_s, phase in phases]
    [trace] = traces(fault_cards(Run(write_run(tmp_path, events)).faults, 10.0)[0]).values()
    assert [*zip(trace["x"], trace["y"], strict=True)] == [(0, 0), (1, 1), (4, 0), (10, 0)]


def test_clipping_is_shown_per_client_and_round() -> None:
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
        (3, 1, False, 1.0, 2, 1.0, 0.5, False, True),
        (3, 2, False, 2.0, 0, 1.0, None, None, True),
    ]
    rounds = pl.DataFrame(rows, schema=list(columns), orient="row")
    threshold, limits = estimator.estimator_cards(rounds, last_round=2)[:2]
    assert list(threshold.views) == ["linear", "logarithmic"]
    assert "clipped to τ, in 33.3% of the rounds of honest clients" in threshold.text
    assert "bounded, in 50.0% of them" in threshold.text
    bars = {trace["name"]: trace["y"] for trace in threshold.views["linear"].traces if trace["type"] == "bar"}
    assert bars == {"clipped": [33.3, 33.3], "bounded": [66.7, 33.3]}
    [trace] = limits.views["rounds"].traces
    assert (trace["y"], trace["x"]) == (["0", "1", "3"], [1, 2])
    assert trace["text"] == [
        ["within both limits", "clipped"],
        ["clipped and bounded", "no messages"],
        ["bounded by G_d", "bounded by G_d"],
    ]
    assert len(estimator.STATES) == len(estimator.SHADES) == len(set(estimator.SHADES))


def test_threshold_is_shown_also_without_a_deviation() -> None:
    row = {"client": 0, "is_byzantine": False, "finished_s": 1.0, "num_used": 1, "tau": 1.5, "num_clipped": 1}
    cards = estimator.estimator_cards(pl.DataFrame([{**row, "round": r} for r in range(3)]), last_round=2)
    assert [card.title for card in cards] == ["τ, threshold of the clip", "Messages that were clipped"]


def test_a_few_huge_deviations_are_shown_on_a_logarithmic_axis_first() -> None:
    row = {"client": 0, "is_byzantine": False, "finished_s": 1.0, "num_used": 1, "tau": 1.0}
    rows = [
        {**row, "round": r, "delta_norm": 1e30 if r < 3 else 1.0, "clipped": r < 3, "bounded": False}
        for r in range(20)
    ]
    assert list(estimator.estimator_cards(pl.DataFrame(rows), 19)[0].views) == ["logarithmic", "linear"]


@pytest.mark.parametrize(("factor", "scale"), [(10.0, "log"), (3.0, "linear")])
def test_diagnostic_that_spans_decades_is_shown_on_a_logarithmic_axis(factor: float, scale: str) -> None:
    row = {"client": 0, "is_byzantine": False, "finished_s": 1.0, "num_used": 1}
    rows = [{**row, "round": r, "u_norm": factor**r} for r in range(3)]
    [card] = estimator.estimator_cards(pl.DataFrame(rows), 2)
    layout: Any = card.views["u_norm"].layout
    assert layout["yaxis"]["type"] == scale


def test_all_charts_by_round_have_the_round_range_of_the_run(folder: Path) -> None:
    page = run_page(Run(folder))
    axes: list[Any] = [
        plot.layout["xaxis"] for card in cards(page).values() for plot in card.views.values() if plot.layout
    ]
    ranges = [found["range"] for found in axes if found.get("title", {}).get("text") == "round"]
    assert len(ranges) > 5
    assert {tuple(found) for found in ranges} == {(-0.5, 6.5)}


def test_round_range_of_an_unfinished_run_is_that_of_its_records(folder: Path, tmp_path: Path) -> None:
    complete = Run(folder).round_range
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copied / "summary.json").unlink()
    assert Run(copied).round_range == complete
    assert tiles(run_page(Run(copied)))["rounds"] == complete.done


def test_of_many_clients_the_worst_and_the_best_are_shown() -> None:
    last = pl.DataFrame(
        {
            "client": range(100),
            "is_byzantine": [client >= 80 for client in range(100)],
            "personal_accuracy": [client / 100 for client in range(100)],
        }
    )
    sample = clients.sample_clients(last, 10)
    assert len(sample) == 10
    assert {0, 79, 80, 99} <= set(sample)
    assert clients.sample_clients(last.head(10), 10) == list(range(10))


WITHOUT_FILE = {
    "summary.json": ("unfinished: running or killed", "Accuracy"),
    "metrics.csv": ("finished", "Accuracy"),
    "events.jsonl": ("finished", "Messages"),
    "topology.json": ("finished", "Topology"),
    "provenance.json": ("finished", "Provenance"),
}


@pytest.mark.parametrize("name", WITHOUT_FILE)
def test_a_run_without_one_of_its_files_has_a_report(folder: Path, tmp_path: Path, name: str) -> None:
    for file in folder.iterdir():
        if file.is_file() and file.name != name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    page = run_page(Run(tmp_path))
    status, title = WITHOUT_FILE[name]
    assert page.status == status
    assert title in cards(page)
    render(page)
    if name in ("metrics.csv", "events.jsonl", "provenance.json"):
        assert "missing" in cards(page)[title].missing


@pytest.mark.parametrize(
    ("changes", "title", "sentence"),
    [
        (
            {"method": "local", "timing": {"wait": "none"}},
            "Messages",
            "With method local, clients send no messages.",
        ),
        ({"output": {"events": False}}, "Messages", "Events were not recorded: output.events is false."),
        (
            {"output": {"message_events": 0.0}},
            "Messages",
            "Messages were not recorded: output.message_events is 0.",
        ),
        (
            {"method": "local", "clients": {"count": 1}, "timing": {"wait": "none"}},
            "Contamination",
            "no attack can spread",
        ),
        ({}, "Faults", "No fault occurred."),
    ],
)
def test_missing_content_is_explained(
    tmp_path: Path, changes: dict[str, Any], title: str, sentence: str
) -> None:
    page = run_page(Run(simulate(small_scenario(**changes), tmp_path).folder))
    assert sentence in cards(page)[title].missing
    render(page)


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_the_first_warning_states_that_a_run_is_incomplete(tmp_path: Path, status: str) -> None:
    page = run_page(Run(write_run(tmp_path, summary={"status": status, "error": "no space left"})))
    assert page.status == status
    assert {"interrupted": "rdpfl-sim resume", "failed": "no space left"}[status] in page.warnings[0]


def test_values_that_are_not_finite_are_omitted_without_warnings(tmp_path: Path) -> None:
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
    assert "Distance that neighbours moved the model" in cards(page)
    events = [{**event, "strange": 3.5} if event["event"] == "estimate" else event for event in EVENTS]
    assert "strange" in cards(run_page(Run(write_run(tmp_path, events))))


EVIL = "<script>x</script><b onclick='x'>\"&"


def poisoned(value: Any, spared: Collection[str] = ()) -> Any:
    """Replace every text, except under spared keys, and add a key that is hostile itself."""
    if isinstance(value, dict):
        replaced = {key: each if key in spared else poisoned(each, spared) for key, each in value.items()}
        return {**replaced, EVIL: EVIL}
    if isinstance(value, list):
        return [poisoned(each, spared) for each in value]
    return EVIL if isinstance(value, str) else value


def assert_no_injection(text: str) -> None:
    """Assert that hostile text created no element and no attribute, in the page or in its figures."""
    scripts: list[dict[str, str | None]] = []
    unexpected: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "script":
                scripts.append(dict(attrs))
            if tag in ("b", "img", "a", "iframe") or any(name.startswith("on") for name, _ in attrs):
                unexpected.append(tag)

    Parser().feed(text)
    assert scripts == [{}, {"type": "application/json", "id": "figures"}, {}, {}]
    assert unexpected == []
    figures = json.loads(text.partition('id="figures">')[2].partition("</script>")[0])
    assert "<script" not in json.dumps([*figures.values()])
    assert "&lt;script&gt;x" in text


def test_script_elements_in_any_text_of_a_run_are_escaped(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes((folder / "metrics.csv").read_bytes())
    (tmp_path / "topology.json").write_bytes((folder / "topology.json").read_bytes())
    scenario = tomllib.loads((folder / "scenario.toml").read_text())
    (tmp_path / "scenario.toml").write_text(tomli_w.dumps(poisoned(scenario)))
    for name in ("summary.json", "provenance.json"):
        content = poisoned(json.loads((folder / name).read_text()), spared=["status"])
        (tmp_path / name).write_text(json.dumps(content))
    with (tmp_path / "events.jsonl").open("w") as file:
        for line in (folder / "events.jsonl").read_text().splitlines():
            record = {**json.loads(line), f"{EVIL}.number": 1.5}
            evil = poisoned(record, spared=["event", "kind", "phase"])
            file.write(json.dumps(evil, separators=(",", ":")) + "\n")
    page = run_page(Run(tmp_path))
    assert page.title == EVIL
    assert_no_injection(render(page))


def test_script_elements_in_any_text_of_a_sweep_are_escaped(tmp_path: Path) -> None:
    plan = json.loads((write_sweep(tmp_path) / "sweep.json").read_text())
    axes = {axis["name"]: f"{EVIL}{axis['name']}" for axis in plan["axes"]}
    plan["name"] = EVIL
    plan["axes"] = [
        {"name": axes[axis["name"]], "labels": [f"{EVIL}{label}" for label in axis["labels"]]}
        for axis in plan["axes"]
    ]
    for run in plan["runs"]:
        run["labels"] = {axes[name]: f"{EVIL}{label}" for name, label in run["labels"].items()}
    for table in plan["tables"]:
        table["title"] = EVIL
        [table["metrics"]] = [{EVIL: path} for path in table["metrics"].values()]
        for part in ("rows", "columns"):
            table[part] = [axes[name] for name in table[part]]
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    page = sweep_page(Sweep(tmp_path))
    assert EVIL in cards(page)
    assert_no_injection(render(page))


def test_scenario_is_shown_as_toml_with_arrays_on_one_line() -> None:
    scenario = {
        "a": ["], [", [], [1, {"key": ["["]}]],
        "b": "[",
        "table": {"c": [1, 2]},
        "list": [{"d": [3]}],
    }
    listing = scenario_card(scenario).content
    assert isinstance(listing, TomlListing)
    lines = [*chain(*listing.blocks)]
    assert tomllib.loads("\n".join(lines)) == scenario
    assert "c = [1, 2]" in lines


def test_data_of_figures_cannot_end_its_script_element() -> None:
    text = render(page_with(Card("a", views={"view": Plot([{"name": "</script><!--"}])})))
    data = text.partition('id="figures">')[2].partition("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["tab-0/view"]["data"] == [{"name": "</script><!--"}]


def test_numbers_are_short_and_finite() -> None:
    assert compact([1e30, -1e-7 / 3, float("inf"), 123456.7]) == [1e30, -3.333e-08, None, 123457]


@pytest.mark.parametrize(("num_clients", "low", "high"), [(11, 0, 1), (101, 0.1, 0.9)])
def test_area_is_the_full_range_of_a_small_group_and_the_middle_of_a_large_one(
    num_clients: int, low: float, high: float
) -> None:
    metrics = pl.DataFrame({"client": range(num_clients)}).with_columns(
        is_byzantine=False,
        time_s=0.0,
        round=0,
        personal_accuracy=pl.col("client") / (num_clients - 1),
        global_accuracy=None,
        validation_accuracy=None,
        personal_loss=None,
    )
    bottom, top, mean = accuracy_card(metrics, 0).views["by round"].traces
    assert (bottom["y"], top["y"], mean["y"]) == ([low], [high], [0.5])


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    table = HtmlTable(("client", "score"), [("a", "0.5"), ("<b>", "-")])
    text = render(page_with(Card("a", content=table)))
    assert '<th class="number">score</th>' in text
    assert "<td>&lt;b&gt;</td>" in text


def test_report_of_a_sweep_has_tables_and_paired_differences(tmp_path: Path) -> None:
    page = sweep_page(Sweep(write_sweep(tmp_path)))
    assert (page.title, page.status, tiles(page)["runs"]) == ("scores", "unfinished", "7")
    assert page.warnings[0] == "1 of 8 runs missing: not started, or failed."
    lines = traces(cards(page)["Scores"])
    assert (lines["none"]["x"], lines["none"]["y"]) == ([2, 3], [21.5, 31.5])
    assert (lines["noise"]["x"], lines["noise"]["y"]) == ([2, 3], [21.5, 30])
    values = cards(page)["Scores: values"].content
    assert isinstance(values, HtmlTable)
    assert any(cell.startswith("31.5000 ± ") for row in values.rows for cell in row)
    render(page)


def test_local_training_is_the_baseline_of_differences_if_there_is_one(tmp_path: Path) -> None:
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
    by_title = cards(sweep_page(Sweep(tmp_path)))
    [trace] = by_title["method: difference from LOCAL"].views["mean"].traces
    assert (trace["x"], trace["y"], trace["z"], trace["text"]) == (
        ["other"],
        ["a"],
        [[0.25]],
        [["<b>+0.250</b>"]],
    )


def write_categories(folder: Path, warnings: Sequence[Sequence[str]] = ((),) * 4) -> Sweep:
    """Write a sweep over two axes of categories, with one run per case."""
    runs = []
    for number, (attack, method) in enumerate(product(("none", "noise"), ("a", "b"))):
        summary = {"status": "finished", "score": number, "warnings": [*warnings[number]]}
        write_run(folder / f"{number}", (), summary, {**SCENARIO, "method": {"name": method}})
        runs.append({"folder": f"{number}", "labels": {"attack": attack, "method": method}})
    axes = [{"name": "attack", "labels": ["none", "noise"]}, {"name": "method", "labels": ["a", "b"]}]
    tables = [{"title": "Scores", "columns": ["method"], "metrics": {"S": "score", "T": "messages.bytes"}}]
    plan = {"name": "x", "axes": axes, "runs": runs, "tables": tables}
    (folder / "sweep.json").write_text(json.dumps(plan))
    return Sweep(folder)


def test_two_axes_of_categories_are_a_heat_map_per_metric_with_a_labelled_scale(tmp_path: Path) -> None:
    [heat_map] = cards(sweep_page(write_categories(tmp_path)))["Scores: S"].views["heat map"].traces
    assert (heat_map["x"], heat_map["y"], heat_map["z"]) == (["a", "b"], ["none", "noise"], [[0, 1], [2, 3]])
    scale: Any = heat_map["colorbar"]
    assert scale["title"]["text"] == "Score"


def test_numeric_axes_have_bands_and_words_and_no_heat_map(tmp_path: Path) -> None:
    page = sweep_page(Sweep(write_loss_sweep(tmp_path)))
    plots = [plot for card in cards(page).values() for plot in card.views.values()]
    assert plots
    assert all(trace["type"] != "heatmap" for plot in plots for trace in plot.traces)
    plot = cards(page)["Mean accuracy of honest clients"].views["attack: none"]
    layout: Any = plot.layout
    assert layout["xaxis"]["title"]["text"] == "Probability that a message is lost"
    assert layout["yaxis"]["title"]["text"] == "Mean personal accuracy of honest clients after local training"
    low, high, line = plot.traces[:3]
    assert (line["name"], line["y"]) == ("local", [1.2, 0.95, 0.7])
    assert high["fill"] == "tonexty"
    half_width = 4.302653 * 0.1 / 3**0.5
    assert [low["y"], high["y"]] == [
        pytest.approx([mean + sign * half_width for mean in (1.2, 0.95, 0.7)], rel=1e-3) for sign in (-1, 1)
    ]


def test_differences_over_a_numeric_axis_are_a_table(tmp_path: Path) -> None:
    card = cards(sweep_page(Sweep(write_loss_sweep(tmp_path))))["attack: difference from none"]
    assert isinstance(card.content, HtmlTable)
    assert card.content.head == ["Method", "attack", "network.loss.probability", "mean"]
    assert card.content.rows[0] == ["local", "noise", "0.5", "-1.0000 ± 0.0000"]
    assert len(card.content.rows) == 2 * 3


def test_warnings_of_runs_are_shown_in_the_report_of_the_sweep(tmp_path: Path) -> None:
    warned = [["2 idle"], ["5 idle"], ["slow"], []]
    assert sweep_page(write_categories(tmp_path, warned)).warnings == [
        "2 to 5 idle (in 2 of 4 runs)",
        "slow (in 1 of 4 runs)",
    ]


def test_sweep_without_complete_runs_has_a_report(tmp_path: Path) -> None:
    plan = {"name": "new", "axes": [{"name": "a", "labels": ["1", "2"]}], "runs": [], "tables": []}
    plan["runs"] = [{"folder": "missing", "labels": {"a": "1"}}]
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    page = sweep_page(Sweep(tmp_path))
    assert cards(page)["Tables"].missing == "No run is complete yet."
    render(page)


def test_runs_without_a_plan_have_a_report(tmp_path: Path) -> None:
    page = sweep_page(Sweep(write_sweep(tmp_path, with_plan=False)))
    assert "sweep.json is missing" in cards(page)["Plan"].text
    render(page)


def test_command_writes_the_page_and_prints_its_path(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert main(["report", str(folder), "--output", str(tmp_path / "mine.html")]) == 0
    assert (tmp_path / "mine.html").read_bytes() == (folder / "report.html").read_bytes()


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_command_rejects_a_folder_without_runs(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert "does not exist" in error or "neither a run folder nor a sweep folder" in error
    assert list(tmp_path.iterdir()) == []


def test_of_a_thousand_clients_a_sample_is_shown_with_a_note(tmp_path: Path) -> None:
    num = 1_000
    records: list[dict[str, Any]] = []
    for sender in range(num):
        for step in range(1, 5):
            message = {
                "message": len(records),
                "sender": sender,
                "recipient": (sender + step) % num,
                "round": 1,
            }
            records.append({"event": "message_sent", "time_s": sender / num, **message})
    rounds: list[dict[str, Any]] = [
        {"event": "training_started"},
        {"event": "round_finished", "num_used": 1},
        {"event": "estimate", "tau": 1.0, "delta_norm": 0.5, "clipped": False},
    ]
    records += [
        {**record, "time_s": 2.0, "client": client, "round": 1} for record in rounds for client in range(num)
    ]
    write_run(tmp_path, sorted(records, key=lambda record: record["time_s"]), byzantine=range(0, num, 10))
    edges = [(client, (client + step) % num) for client in range(num) for step in range(1, 5)]
    topology = json.loads((tmp_path / "topology.json").read_text()) | {"num_clients": num, "edges": edges}
    (tmp_path / "topology.json").write_text(json.dumps(topology))
    row = {"round": 1, "hops": 1, **scores(1.0, 0.5)}
    rows = [{**row, "client": client, "byzantine": int(client % 10 == 0)} for client in range(num)]
    (tmp_path / "metrics.csv").write_text(metrics_text(rows))
    page = run_page(Run(tmp_path))
    by_title = cards(page)
    assert by_title["Topology"].note == "One in 2 links is drawn."
    assert by_title["Clients"].note.startswith("60 of 1,000 clients are shown")
    assert by_title["Last evaluations"].note == "The first 300 of 1,000 clients are listed."
    assert by_title["Space and time"].note.startswith("30 of 1,000 clients and the messages among them")
    assert by_title["Clipping and bounding by round"].note.endswith("of 900 honest clients are shown.")
    assert len(render(page)) < LIBRARY + 1_500_000


@pytest.mark.parametrize("field", ["moved", "delay_s"])
def test_command_reports_damaged_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    write_run(tmp_path, summary={"status": "finished"})
    records = (tmp_path / "events.jsonl").read_text()
    (tmp_path / "events.jsonl").write_text(records.replace(f'"{field}":', f'"{field}"'))
    assert main(["report", str(tmp_path)]) == 1
    assert "damaged records" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
