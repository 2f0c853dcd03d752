"""Results are printed to stdout; progress, warnings and hints to stderr."""

import argparse
import re
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.main import COMMANDS, main, parse
from tests.support import small_scenario

SMALL = """
rounds = 3
clients = { count = 4 }
topology = "ring"
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40 }
partition = "iid"
model = "softmax"
adversary = { ids = [0], attack = "noise" }
output = { figures = false }
"""
WARNING = "warning: 2 of 3 honest clients are outside the paper's threat model: at least half of "


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SMALL)
    return path


def test_run_prints_its_table_digest_and_folder_to_stdout(scenario: Path, tmp_path: Path, capsys) -> None:
    assert main([str(scenario), "-o", str(tmp_path / "runs")]) == 0
    output, messages = capsys.readouterr()
    lines = output.splitlines()
    assert lines[0] == "tiny, seed 1: finished"
    assert re.fullmatch(r"digest +[0-9a-f]{16}", lines[-2])
    assert Path(lines[-1]).is_dir()
    assert "client rounds," not in output
    assert "warning" not in output
    assert messages.splitlines()[0].startswith(WARNING)
    assert messages.splitlines()[-2].startswith("100%  12 of 12 client rounds")
    assert messages.splitlines()[-1].endswith(f"rdpfl-sim report {lines[-1]} --open")


def test_quiet_run_prints_nothing_to_stderr(scenario: Path, tmp_path: Path, capsys) -> None:
    assert main([str(scenario), "-q", "-o", str(tmp_path / "runs")]) == 0
    output, messages = capsys.readouterr()
    assert Path(output.removesuffix("\n")).is_dir()
    assert messages == ""


def test_validate_prints_warnings_to_stderr(scenario: Path, capsys) -> None:
    assert main(["validate", str(scenario)]) == 0
    output, messages = capsys.readouterr()
    assert output == f"{scenario}: valid\n"
    assert messages.startswith(WARNING)


def test_new_prints_warnings_and_the_next_command_to_stderr(tmp_path: Path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert main(["new", str(path), "--topology", "ring", "--attack", "noise"]) == 0
    output, messages = capsys.readouterr()
    assert output == f"wrote {path}\n"
    *_, outside, aggregator, hint = messages.splitlines()
    assert "outside the paper's threat model" in outside
    assert "'median' of at most 2 messages is their mean" in aggregator
    assert hint == f"run it with: rdpfl-sim {path}"


def test_sweep_prints_its_tables_and_folder_to_stdout(scenario: Path, tmp_path: Path, capsys) -> None:
    sweep = tmp_path / "many.toml"
    sweep.write_text('base = "tiny.toml"\ngrid = { rounds = [1, 2] }\n')
    assert main(["sweep", str(sweep), "-o", str(tmp_path), "--workers", "1"]) == 0
    output, messages = capsys.readouterr()
    assert output.splitlines()[0] == "many"
    assert output.splitlines()[-1] == str(tmp_path / "many")
    assert "of 2 runs" not in output
    assert "2 of 2 runs" in messages.splitlines()


def test_breakdown_prints_its_result_and_folder_to_stdout(scenario: Path, tmp_path: Path, capsys) -> None:
    words = ["--vary", "rounds", "--from", "1", "--to", "2", "--seeds", "1", "--workers", "1"]
    assert main(["breakdown", str(scenario), *words, "-o", str(tmp_path)]) == 0
    output, messages = capsys.readouterr()
    assert output.splitlines()[0] == "tiny: rounds from 1 to 2 (2 values), seed 1"
    assert output.splitlines()[-1] == str(tmp_path / "tiny-rounds")
    assert " runs" not in output
    assert re.search(r"of \d+ runs", messages)


@pytest.mark.parametrize("command", ["resume", "watch", "trace", "report"])
def test_commands_on_a_run_print_only_results_to_stdout(command: str, tmp_path: Path, capsys) -> None:
    run = simulate(small_scenario(output={"figures": False}), tmp_path).folder
    assert run is not None
    assert main([command, str(run)]) == 0
    output = capsys.readouterr().out.splitlines()
    file = {"trace": run / "trace.json", "report": run / "report.html"}.get(command, run)
    assert output[-1] == str(file)
    assert output[:-1] == [] or (command == "watch" and "personal mean" in "".join(output))


WRITING = ["new", "run", "sweep", "breakdown", "report", "trace", "tensorboard", "data"]


@pytest.mark.parametrize("command", WRITING)
def test_every_command_that_writes_has_the_option_o(command: str) -> None:
    parser = argparse.ArgumentParser()
    COMMANDS[command].add_arguments(parser)
    assert "-o" in parser._option_string_actions


@pytest.mark.parametrize("words", [["data", "mnist", "-o", "x"], ["report", "run", "-o", "x"]])
def test_o_names_the_output(words: list[str]) -> None:
    options = parse(words)
    assert str(getattr(options, "folder" if words[0] == "data" else "output")) == "x"


def test_local_file_that_replaces_a_bundled_scenario_is_named(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(scenario.parent)
    scenario.rename("ring_30pct.toml")
    assert main(["validate", "ring_30pct"]) == 0
    note = "note: using ring_30pct.toml instead of the bundled scenario ring_30pct"
    assert note in capsys.readouterr().err.splitlines()
    assert main(["validate", "ring_30pct.toml"]) == 0
    assert "note" not in capsys.readouterr().err
