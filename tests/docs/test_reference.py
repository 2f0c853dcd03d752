"""The reference pages are current and complete: every key, component, record, column and command."""

import re
from pathlib import Path

import pytest

from docs.tools.build import GENERATED, reference_page
from docs.tools.reference import PAGES, columns, commands, components, records, scenario
from docs.tools.typography import typeset
from rdpfl_sim import Run, Scenario, simulate
from rdpfl_sim.cli.main import COMMANDS
from rdpfl_sim.methods import METHODS
from rdpfl_sim.records.field import fields_of
from rdpfl_sim.records.metrics import METRICS
from rdpfl_sim.records.record_types import OTHER_DIAGNOSTICS, RECORDS, EstimateRecord
from rdpfl_sim.records.summary import SUMMARY_FIELDS
from rdpfl_sim.results.run import flatten
from rdpfl_sim.scenario.component_list import list_components
from rdpfl_sim.world import mailbox
from rdpfl_sim.world.network import obstacles, transport
from rdpfl_sim.world.network.network import LOSS
from tests.docs.pages import ROOT
from tests.support import small_scenario


@pytest.mark.parametrize("name", GENERATED)
def test_committed_page_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == reference_page(name), "make docs writes the reference pages"


def test_reference_has_every_section_and_key_of_a_scenario() -> None:
    text = scenario()
    sections = dict(re.findall(r"^## `\[+([\w.]+)\]+`.*?\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S))
    raw = Scenario.from_dict({"adversary": {"fraction": 0.1}}).to_dict()
    for name, table in raw.items():
        if name in sections:
            for key in table:
                assert f"| `{key}` |" in sections[name] or f"{name}.{key}" in sections, f"{name}.{key}"
        else:
            assert f"| `{name}` |" in text.partition("\n## `")[0], name
    assert {"clients", "training", "network", "network.links", "execution"} <= set(sections)


def test_reference_has_every_record_with_every_field() -> None:
    parts = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", records(), flags=re.M | re.S))
    assert parts.keys() == RECORDS.keys()
    for name, record in RECORDS.items():
        assert [
            f for f in fields_of(record) if f not in ("event", "time_s") and f"`{f}`" not in parts[name]
        ] == []


def test_every_record_has_its_own_description_and_every_reason_is_listed() -> None:
    parts = dict(re.findall(r"^## `(\w+)`\n\n(.*?)\n\|", records(), flags=re.M | re.S))
    texts = {name: " ".join(text.replace("\\_", "_").split()) for name, text in parts.items()}
    assert len(set(texts.values())) == len(texts)
    blocked = [obstacles.LINK_IS_DOWN, obstacles.PARTITION, obstacles.RECIPIENT_DOWN]
    replaced = [mailbox.NEWER_CHOSEN, mailbox.NEWER_USED, mailbox.FORMER_NEIGHBOUR, mailbox.RESTARTED]
    invalid = [mailbox.UNKNOWN_SENDER, mailbox.NO_SUCH_ROUND, mailbox.WRONG_FORM, mailbox.NOT_FINITE]
    for name, reasons in {
        "message_lost": [LOSS, *blocked, transport.SENDER_DOWN, transport.ALL_FAILED],
        "message_stale": [mailbox.TOO_OLD, mailbox.MAILBOX_FULL, *replaced],
        "message_duplicate": [mailbox.SAME_ROUND],
        "message_rejected": invalid,
    }.items():
        assert [reason for reason in reasons if f"`{reason}`" not in texts[name]] == []


def test_every_key_of_a_scenario_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", scenario(), flags=re.MULTILINE)
    assert len(rows) > 50
    assert [key for key, cells in rows if not cells.rpartition("|")[2].strip()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_option_of_a_component_has_a_meaning(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", components(page), flags=re.MULTILINE)
    assert [key for key, cells in rows if cells.count("|") < 2 or not cells.rpartition("|")[2].strip()] == []


def test_reference_has_every_command() -> None:
    assert re.findall(r"^## `([\w-]+)`$", commands(), flags=re.MULTILINE) == list(COMMANDS)


def test_reference_has_every_component_with_every_option() -> None:
    text = "\n".join(components(page) for page in PAGES)
    parts = dict(re.findall(r"\{#(\w+-\w+)\}\n(.*?)(?=\n##|\Z)", text, flags=re.DOTALL))
    for kind, entries in list_components().items():
        for entry in entries:
            for option in entry.options:
                assert f"| `{option.partition(' = ')[0]}` |" in parts[f"{kind}-{entry.name}"]


def test_every_column_of_a_run_is_described(tmp_path: Path) -> None:
    overrides = {
        "evaluation": {"every": 1, "theory": True, "validation_fraction": 0.2, "consensus": True},
        "adversary": {"fraction": 0.3, "attack": "noise"},
    }
    result = simulate(small_scenario(rounds=2, **overrides), tmp_path)
    assert result.folder is not None
    run, text = Run(result.folder), columns()
    patterns = {re.sub(r"<\w+>", "[^.]+(?:[.][0-9]+)?", re.escape(key)) for key in SUMMARY_FIELDS}
    found = flatten(run.summary)
    assert [key for key in found if not any(re.fullmatch(pattern, key) for pattern in patterns)] == []
    assert [p for p in patterns if p != "error" and not any(re.fullmatch(p, key) for key in found)] == []
    names = [*METRICS, *run.messages.collect_schema(), *run.faults.columns, *SUMMARY_FIELDS]
    assert [name for name in names if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("method", METHODS)
def test_every_diagnostic_of_a_method_is_described(method: str, tmp_path: Path) -> None:
    result = simulate(small_scenario(rounds=2, method=method, model={"name": "mlp", "hidden": [4]}), tmp_path)
    assert result.folder is not None
    found = Run(result.folder).events("estimate").collect_schema().names()
    assert [name for name in found if name not in {*fields_of(EstimateRecord), *OTHER_DIAGNOSTICS}] == []


@pytest.mark.parametrize(
    ("plain", "set_"),
    [
        ("mu - z sigma", "μ − z σ"),
        ("-scale u: the `mean_s` of u_i", "−scale u: the `mean_s` of u<sub>i</sub>"),
        ("sum_j W_ij |x_j|^2 <= d_hat", "Σ<sub>j</sub> W<sub>ij</sub> |x<sub>j</sub>|<sup>2</sup> ≤ d̂"),
        ("<z, g_i> of local_steps and mean_s", r"⟨z, g<sub>i</sub>⟩ of local\_steps and mean\_s"),
        ("Delta^{t-1}, a < b", "Δ<sup>t-1</sup>, a &lt; b"),
    ],
)
def test_formulas_of_docstrings_are_set(plain: str, set_: str) -> None:
    assert typeset(plain) == set_
