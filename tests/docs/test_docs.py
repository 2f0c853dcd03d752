"""The documentation is correct: the site builds without warnings, and the examples on the pages run."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.tools import build as site_builder
from docs.tools.reference import PAGES, components, records, scenario
from docs.tools.typography import typeset
from rdpfl_sim import Scenario
from rdpfl_sim.cli.main import main, parse
from rdpfl_sim.components.plugin_loading import forget_plugins
from rdpfl_sim.records.record_types import RECORDS
from rdpfl_sim.scenario.component_list import list_components
from rdpfl_sim.version import __version__
from tests.docs.test_readme import DOCS, ROOT, quick
from tests.registries import temporary_components
from tests.reports.browser import CHROMIUM, Browser

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?: {4})?(rdpfl-sim [^#|>\n]+)", flags=re.MULTILINE)
COMMANDS = sorted(
    {(page.stem, words.strip()) for page in DOCS for words in COMMAND.findall(page.read_text())}
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    site_builder.build(folder)
    return folder


@pytest.mark.slow
def test_site_has_every_page_and_none_fetches_anything(site: Path) -> None:
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert pages >= {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in DOCS}
    fetched = re.compile(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//')
    assert [page for page in pages if fetched.search((site / page).read_text())] == []


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_site_opens_from_its_folder_and_its_search_returns_results(site: Path) -> None:
    shadows = "[...document.querySelectorAll('*')].map(element => element.shadowRoot).filter(Boolean)"
    browser = Browser()
    try:
        browser.call("Page.navigate", url=(site / "index.html").as_uri())
        browser.wait_for(
            "document.readyState === 'complete' && !!document.querySelector('.md-search__button')"
        )
        browser.evaluate("document.querySelector('.md-search__button').click()")
        browser.wait_for(f"{shadows}.some(shadow => shadow.activeElement?.tagName === 'INPUT')")
        browser.call("Input.insertText", text="barzilai")
        browser.wait_for(f"{shadows}.some(shadow => shadow.textContent.includes('Barzilai'))")
        assert browser.errors == []
        assert browser.requests == []
    finally:
        browser.close()


def test_broken_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: trial\nnav: [index.md]\n")
    monkeypatch.setattr(site_builder, "ROOT", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        site_builder.build(tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_link_out_of_the_docs_leads_to_a_copy_and_link_to_a_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_builder, "ROOT", tmp_path)
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "a.toml").write_text("rounds = 1\n")
    (tmp_path / "docs" / "deep" / "page.md").write_text("[file](../../a.toml), [folder](../..)\n")
    site_builder.gather(tmp_path / "stage")
    assert (tmp_path / "stage/deep/page.md").read_text() == "[file](../files/a.toml.txt), folder\n"
    assert (tmp_path / "stage/files/a.toml.txt").read_text() == "rounds = 1\n"


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(leaves(navigation)) == sorted(str(page.relative_to(ROOT / "docs")) for page in DOCS)


def leaves(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    else:
        for branch in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(branch)


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
    rows = {line.split("`")[1]: line for line in records().splitlines() if line.startswith("| `")}
    assert rows.keys() == RECORDS.keys()
    for name, record in RECORDS.items():
        assert all(
            f"`{field}`" in rows[name] for field in record.__annotations__.keys() - {"event", "time_s"}
        )


def test_reference_has_every_component_with_every_option() -> None:
    text = "\n".join(components(page) for page in PAGES)
    parts = dict(re.findall(r"\{#(\w+-\w+)\}\n(.*?)(?=\n##|\Z)", text, flags=re.DOTALL))
    for kind, entries in list_components().items():
        for entry in entries:
            for option in entry.options:
                assert f"| `{option.partition(' = ')[0]}` |" in parts[f"{kind}-{entry.name}"]


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
def test_formulas_of_docstrings_are_typeset(plain: str, set_: str) -> None:
    assert typeset(plain) == set_


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_in_the_docs_are_valid(page: str, command: str) -> None:
    parse(shlex.split(command)[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", ["tutorial", "guides/data", "guides/topology", "guides/model", "guides/method"]
)
def test_commands_and_code_on_a_page_can_be_executed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(tmp_path)
    done = 0
    with temporary_components():
        for language, title, text in FENCE.findall((ROOT / "docs" / f"{page}.md").read_text()):
            if title:
                Path(title).parent.mkdir(exist_ok=True)
                Path(title).write_text(text)
            elif language == "sh":
                done += run_commands(text, monkeypatch)
            elif language == "python":
                exec(compile(text.replace("Scenario.load(", "quick("), page, "exec"), {"quick": quick})
                done += 1
    forget_plugins()
    assert done


def run_commands(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the commands of a block, scenarios for two rounds only; return the number of commands."""
    done = 0
    for line in text.splitlines():
        program, *words = shlex.split(line, comments=True)
        if line == "pip install ./drag":
            install(Path("drag"), monkeypatch)
        if program != "rdpfl-sim":
            continue
        words = [file for word in words for file in (map(str, Path().glob(word)) if "*" in word else [word])]
        if words[0].endswith(".toml"):
            words += ["--set", "rounds=2"]
        assert main(words) == 0, line
        done += 1
    return done


def install(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package without dependencies, as pip does: modules and entry points on the path."""
    project = tomllib.loads((package / "pyproject.toml").read_text())
    facts = package / f"{project['project']['name']}-{project['project']['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: {project['project']['name']}\nVersion: 0.1\n")
    groups = project["project"]["entry-points"].items()
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in names.items()) for group, names in groups]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    assert all((package / f"{module}.py").exists() for module in project["tool"]["setuptools"]["py-modules"])
    monkeypatch.syspath_prepend(str(package.absolute()))
    forget_plugins()


def test_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)  # what the format requires
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    [paper] = citation["references"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert ", ".join(author["family-names"] for author in paper["authors"]) in readme
    assert paper["title"] in readme
