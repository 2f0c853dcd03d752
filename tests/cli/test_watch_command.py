import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.live import RunMonitor
from rdpfl_sim.cli.main import main
from rdpfl_sim.simulation.run_folder import RunFolder
from tests.support import small_scenario

ENDLESS = """
rounds = 1000000
clients = { count = 4 }
data = { name = "synthetic", shape = [8], num_train = 200, num_test = 40 }
partition = "iid"
model = "softmax"
output = { figures = false }
"""


def run_of(tmp_path: Path, **changes) -> Path:
    folder = simulate(small_scenario(**changes), tmp_path / "runs").folder
    assert folder is not None
    return folder


def on_a_terminal(command: list[str]) -> tuple[subprocess.Popen, int]:
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    return process, controller


def read_until(controller: int, stop: bytes | None) -> bytes:
    output = b""
    while stop is None or stop not in output:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # the other side of the terminal is closed
            break
        output += chunk
    return output


@pytest.mark.parametrize("where", ["the run", "all runs"])
def test_finished_run_is_shown_immediately(where: str, tmp_path: Path, capsys) -> None:
    run = run_of(tmp_path)
    assert main(["watch", str(run if where == "the run" else run.parent)]) == 0
    output, progress = capsys.readouterr()
    assert progress.startswith("100%  24 of 24 client rounds")
    assert "personal mean" in output
    assert output.splitlines()[-1] == str(run)
    assert "\x1b" not in output


def test_killed_run_is_reported_with_the_command_that_resumes_it(tmp_path: Path, capsys) -> None:
    run = run_of(tmp_path)
    (run / "summary.json").unlink()
    assert main(["watch", str(run)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"the run was killed; resume with: rdpfl-sim resume {run}"


def test_folder_without_runs_is_rejected(tmp_path: Path, capsys) -> None:
    assert main(["watch", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_run_without_events_is_followed_through_its_metrics(tmp_path: Path) -> None:
    scenario = small_scenario(output={"events": False}, adversary={"ids": [2]})
    result = simulate(scenario, tmp_path)
    assert result.folder is not None
    monitor = RunMonitor(result.folder, scenario.to_dict())
    assert monitor.read_new()
    assert not monitor.read_new()
    mean = result.summary["accuracy"]["honest"]["personal"]["mean"]
    assert monitor.stats.honest_accuracy == pytest.approx(mean)
    assert monitor.stats.rounds_done == 24


def test_resumed_run_is_read_from_the_start(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    scenario = small_scenario().to_dict()
    monitor = RunMonitor(run, scenario)
    monitor.read_new()
    path = run / "events.jsonl"
    content = path.read_bytes()
    RunFolder(run).truncate((0, 0))
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:20]))
    monitor.read_new()
    fresh = RunMonitor(run, scenario)
    fresh.read_new()
    assert monitor.stats.rounds_done == fresh.stats.rounds_done < 24
    assert monitor.stats.messages == fresh.stats.messages


@pytest.mark.slow
def test_run_of_another_process_is_followed_until_it_is_killed(tmp_path: Path) -> None:
    scenario = tmp_path / "endless.toml"
    scenario.write_text(ENDLESS)
    python = [sys.executable, "-m", "rdpfl_sim"]
    with subprocess.Popen([*python, str(scenario), "-q", "--output", str(tmp_path / "runs")]) as run:
        try:
            while not list((tmp_path / "runs").glob("*/topology.json")):
                assert run.poll() is None
                time.sleep(0.05)
            watch, controller = on_a_terminal([*python, "watch", str(tmp_path / "runs")])
            screen = read_until(controller, b"messages")
        finally:
            run.send_signal(signal.SIGKILL)
    screen += read_until(controller, None)
    assert watch.wait() == 1
    os.close(controller)
    text = screen.decode()
    assert "endless, seed 1: running" in text
    assert "/4.0M rounds" in text
    assert "the run was killed" in text


@pytest.mark.slow
def test_dashboard_is_replaced_by_the_table_at_the_end(tmp_path: Path) -> None:
    scenario = tmp_path / "short.toml"
    scenario.write_text(ENDLESS.replace("1000000", "300"))
    command = [sys.executable, "-m", "rdpfl_sim", str(scenario), "--live", "--output", str(tmp_path / "runs")]
    process, controller = on_a_terminal(command)
    text = read_until(controller, None).decode()
    assert process.wait() == 0
    os.close(controller)
    enters, leaves = text.index("\x1b[?1049h"), text.index("\x1b[?1049l")
    assert enters < text.index("short, seed 1: running") < leaves < text.index("personal mean")


def test_live_in_a_pipe_is_plain(tmp_path: Path, capsys) -> None:
    scenario = tmp_path / "short.toml"
    scenario.write_text(ENDLESS.replace("1000000", "2"))
    assert main([str(scenario), "--live", "--output", str(tmp_path)]) == 0
    output, progress = capsys.readouterr()
    assert "100%  8 of 8 client rounds" in progress
    assert "\x1b" not in output + progress
