"""Start, interrupt and continue sweeps from the command line."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdpfl_sim.cli.main import main

SWEEP = """
[base]
clients = { count = 4 }
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40 }
partition = "iid"
model = "softmax"

[[axis]]
name = "length"
cases = [{ label = "short", set = { rounds = 2 } }, { label = "endless", set = { rounds = 1000000 } }]
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SWEEP)
    return path


@contextmanager
def started(sweep: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a sweep in its own process group, as a terminal does; wait until the short run is complete."""
    words = [sys.executable, "-m", "rdpfl_sim", "sweep", sweep, "--workers", "2", "--output", sweep.parent]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    output = sweep.parent / sweep.stem
    before = set(output.glob(".running/*/*/*"))
    try:
        wait_until(
            lambda: set(output.glob(".running/*/*/*")) - before and list(output.glob("runs/*/summary.json"))
        )
        yield process
        process.wait(120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_complete_runs_and_prints_how_to_continue(sweep: Path, capfd) -> None:
    with started(sweep) as process:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    hint = "interrupted; 1 of 2 runs are missing; run the same command again to continue"
    assert hint in capfd.readouterr().err
    folder = Path(output.splitlines()[-1])
    assert len((folder / "results.csv").read_text().splitlines()) == 2
    assert [path.name for path in (folder / ".running").iterdir()] == ["lock"]
    wait_until(lambda: is_gone(process.pid))
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_workers_of_a_killed_sweep_end_and_the_next_sweep_removes_their_files(sweep: Path) -> None:
    with started(sweep) as process:
        process.kill()
    wait_until(lambda: is_gone(process.pid))
    running = sweep.parent / sweep.stem / ".running"
    [left] = [path for path in running.iterdir() if path.is_dir()]
    with started(sweep) as process:
        assert not left.exists()
        process.terminate()
    assert process.returncode == 130
    assert [path.name for path in running.iterdir()] == ["lock"]


def test_failures_are_printed_with_their_error_and_folder(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.write_text(SWEEP.replace("1000000", "2, topology = { name = 'file', path = 'nowhere.csv' }"))
    words = ["sweep", str(sweep), "--workers", "1", "--output", str(sweep.parent), "--quiet"]
    assert main(words) == 1
    output, error = capsys.readouterr()
    assert output == f"{sweep.parent / 'tiny'}\n"
    warning, error = error.split("\n", maxsplit=1)
    assert "is their mean" in warning
    assert error.startswith("failed: length = endless, seed 1: ScenarioError: topology.path: cannot be read")
    [log] = sweep.parent.glob("tiny/failed/*/log.txt")
    assert "results:" not in error
    assert error.endswith(f"; its files are in {log.parent}\n")


def test_run_whose_summary_is_deleted_or_damaged_is_repeated_with_a_message(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.write_text(SWEEP.replace("1000000", "3"))
    words = ["sweep", str(sweep), "--workers", "1", "--output", str(sweep.parent)]
    assert main(words) == 0
    folder = sweep.parent / "tiny"
    complete = (folder / "results.csv").read_text()
    deleted, damaged = sorted(folder.glob("runs/*/summary.json"))
    deleted.unlink()
    damaged.write_text(damaged.read_text()[:100])
    capsys.readouterr()
    assert main(words) == 0
    messages = capsys.readouterr().err
    for path in (deleted, damaged):
        assert f"{path.parent}: summary.json is missing or damaged; repeating the run" in messages
    again = (folder / "results.csv").read_text()
    assert [_without_wall_times(row) for row in (complete, again)] == [_without_wall_times(complete)] * 2
    assert main(words) == 0
    assert "repeating" not in capsys.readouterr().err


def _without_wall_times(results: str) -> list[dict[str, str]]:
    rows = csv.DictReader(results.splitlines())
    return [{key: value for key, value in row.items() if key != "result.wall.seconds"} for row in rows]


@pytest.mark.parametrize("command", ["sweep", "breakdown"])
def test_missing_data_set_is_reported_once_before_the_first_run(
    command: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = f"data = {{ name = 'mnist', folder = '{sweep.parent}' }}"
    sweep.write_text(
        SWEEP.replace('data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40 }', data)
    )
    words = ["sweep", str(sweep)]
    if command == "breakdown":
        sweep.write_text(f"{data}\n[network.loss]\nname = 'bernoulli'\n[timing]\nwait = 'none'")
        words = ["breakdown", str(sweep), "--vary", "network.loss.probability"]
    assert main([*words, "--output", str(sweep.parent / "output")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error.count("data.folder") == 1
    assert "mnist.npz is missing" in error
    assert f"run: rdpfl-sim data mnist --folder {sweep.parent}" in error
    assert not (sweep.parent / "output").exists()


@pytest.mark.parametrize("command", ["sweep", "validate"])
def test_unknown_metric_of_a_table_is_reported_before_the_first_run(
    command: str, sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sweep.parent)
    sweep.write_text(f"{SWEEP}\n[[table]]\n[[table]]\nmetrics = {{ A = 'accuracy.honest.mean' }}\n")
    assert main([command, str(sweep)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "table[1].metrics.A: summary.json has no number with this path; did you mean" in error
    assert "allowed: accuracy.honest.personal.mean, accuracy.honest.personal.worst," in error
    assert "(given: 'accuracy.honest.mean')" in error
    assert list(sweep.parent.iterdir()) == [sweep]


def test_warnings_of_runs_are_printed_once_with_the_number_of_runs(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = '{ label = "short", set = { rounds = 2 } }', "rounds = 1000000"
    text = SWEEP.replace(short, '{ label = "short", set = { rounds = 2, "timing.max_time_s" = 0.5 } }')
    sweep.write_text(text.replace(long, "rounds = 3"))
    assert main(["sweep", str(sweep), "--workers", "1", "--output", str(sweep.parent), "--quiet"]) == 0
    printed = capsys.readouterr()
    warning = "warning: honest clients that have not finished a single round: 4 (in 1 of 2 runs)"
    assert warning in " ".join(printed.err.split())
    assert printed.out == f"{sweep.parent / 'tiny'}\n"


def test_messages_name_the_files_with_the_results_and_all_columns_are_written_on_request(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.write_text(SWEEP.replace("1000000", "3"))
    words = ["sweep", str(sweep), "--workers", "1", "--output", str(sweep.parent)]
    assert main(words) == 0
    folder = sweep.parent / "tiny"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {".running", "runs"}
    num_columns = len((folder / "results.csv").read_text().splitlines()[0].split(","))
    messages = capsys.readouterr().err
    [line] = [line for line in messages.splitlines() if line.startswith("results: ")]
    found = re.fullmatch(
        r"results: tables.md, tables.tex, results.csv \((\d+) columns; (\d+) more with --all-columns\)", line
    )
    assert found is not None
    assert (int(found[1]), num_columns <= 60) == (num_columns, True)
    assert main([*words, "--all-columns"]) == 0
    assert len((folder / "results.csv").read_text().splitlines()[0].split(",")) == num_columns + int(found[2])
    assert "results: tables.md, tables.tex, results.csv\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["sweep", "validate"])
def test_sweep_without_seeds_warns_that_it_has_no_intervals(
    command: str, sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sweep.parent)
    text = SWEEP.replace("1000000", "3")
    warning = "warning: seeds is missing: every case runs once, with seed 1, and has no interval; "
    profiles = "[profiles.two]\nseeds = [1, 2]\n[profiles.quick]\n"
    words = [command, "tiny.toml", *(["--workers", "1"] if command == "sweep" else [])]
    for content, more, is_warned in (
        (text, [], True),
        (f"seeds = [1]\n{text}", [], False),
        (text + profiles, ["--profile", "quick"], True),
        (text + profiles, ["--profile", "two"], False),
    ):
        if command == "validate" and more:
            continue
        sweep.write_text(content)
        assert main([*words, *more]) == 0
        assert (warning in " ".join(capsys.readouterr().err.split())) == is_warned


def test_latex_table_has_words_instead_of_paths(sweep: Path) -> None:
    grid = '"network.loss.probability" = [0.0, 0.5]'
    text = SWEEP.replace("1000000", "3").replace("[[axis]]", f"[grid]\n{grid}\n[[axis]]")
    base = 'network = { loss = "bernoulli" }\ntiming = { wait = "none" }'
    sweep.write_text(text.replace('model = "softmax"', f'model = "softmax"\n{base}'))
    assert main(["sweep", str(sweep), "--workers", "1", "--output", str(sweep.parent)]) == 0
    table = (sweep.parent / "tiny" / "tables.tex").read_text()
    assert r"Length & Probability that a message is lost & accuracy \\" in table.splitlines()
    assert "network.loss" not in table


def test_runs_that_discard_many_messages_are_named_by_sweep_report_and_show(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = """
network = { latency = { name = "constant", seconds = 1.5 } }
timing = { wait = { name = "deadline", seconds = 1.0 }, staleness = "drop" }
"""
    text = SWEEP.replace("\n[[axis]]", f"{late}\n[[axis]]").replace("rounds = 2", "rounds = 9")
    sweep.write_text(text.replace("rounds = 1000000", "rounds = 12"))
    output = sweep.parent / "tiny"
    assert main(["sweep", str(sweep), "--workers", "1", "--output", str(sweep.parent), "--quiet"]) == 0
    warning = (
        "more than a fifth of the messages that honest clients delivered to honest clients were discarded: "
    )
    printed = " ".join(capsys.readouterr().err.split())
    assert f"warning: {warning}64 to 88 of 64 to 88 as too old (timing.staleness) (in all 2 runs)" in printed
    assert main(["report", str(output), "--output", str(sweep.parent / "sweep.html")]) == 0
    assert warning in (sweep.parent / "sweep.html").read_text()
    run = next(output.glob("runs/*/summary.json")).parent
    assert main(["report", str(run), "--output", str(sweep.parent / "run.html")]) == 0
    assert warning in (sweep.parent / "run.html").read_text()
    capsys.readouterr()
    assert main(["show", str(run)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"warning: {warning}" in printed


def test_address_needs_ray(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(sweep), "--address", "auto"]) == 2
    assert "--address: requires --engine ray (given: 'auto')" in capsys.readouterr().err
