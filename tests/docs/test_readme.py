"""The README tells the truth: its table is generated, its commands and examples run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import main
from rdpfl_sim.scenario.component_list import list_components, markdown_table
from tests.registries import temporary_components
from tests.support import small_scenario

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = sorted((ROOT / "docs").rglob("*.md"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [
    line.partition("#")[0].strip()
    for block in blocks("sh")
    for line in block.splitlines()
    if line.startswith("rdpfl-sim ")
]


def test_table_of_what_is_built_in_is_the_output_of_list() -> None:
    assert markdown_table(list_components()) in README


def test_there_are_commands_to_try() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)[1:]
    if words[0] == "sweep":
        words += ["--output", str(tmp_path), "--set", "clients.count=4", "--workers", "2"]
    elif words[0] == "breakdown":
        words += ["--output", str(tmp_path), "--set", "rounds=2", "--seeds", "1,", "--workers", "2"]
    elif words[0] in ("compare", "report"):
        monkeypatch.chdir(tmp_path)
        for rounds, folder in enumerate(words[1:], start=1):
            simulate(small_scenario(rounds=rounds), folder)
    elif words[0] == "plot":
        monkeypatch.chdir(tmp_path)
        for value in (0.1, 1.0):
            method = {"name": "rdpfl", "lambda": value}
            simulate(small_scenario(rounds=1, method=method), words[1])
    elif words[0] == "new":
        monkeypatch.chdir(tmp_path)
    elif any(word.endswith(".toml") for word in words) and words[0] != "validate":
        words += ["--output", str(tmp_path), "--set", "rounds=2"]
    assert main(words) == 0


def test_scenario_of_the_readme_is_valid(tmp_path: Path) -> None:
    [text] = blocks("toml")
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert main([str(path), "-q", "--output", str(tmp_path), "--set", "rounds=2"]) == 0


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_scenarios_and_links_of_the_docs_are_valid(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    for number, example in enumerate(re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)):
        path = tmp_path / "folder" / f"{number}.toml"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "scenarios" / "ring_30pct.toml", tmp_path)  # the base of a sweep
        path.write_text(example)
        assert main(["validate", str(path)]) == 0
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_python_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with temporary_components():
        for example in blocks("python"):
            exec(compile(example.replace("Scenario.load(", "quick("), "README.md", "exec"), {"quick": quick})


def quick(path: str, *arguments, **options):
    """Scenario.load, for two rounds."""
    from rdpfl_sim import Scenario

    overrides = [*(arguments[0] if arguments else options.pop("overrides", [])), "rounds=2"]
    return Scenario.load(path, overrides, *arguments[1:], **options)


def test_every_file_that_the_readme_names_exists() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
