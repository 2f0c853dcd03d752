from io import StringIO

from rich.console import Console

from rdpfl_sim.reports.text import problem_lines, warning_lines
from tests.reports.rendering import rendered


def test_warnings_are_yellow() -> None:
    console = Console(file=StringIO(), record=True, width=80, force_terminal=True, color_system="standard")
    console.print(warning_lines(["client 3 [bold]fell[/bold] silent"]))
    assert "\x1b[33mwarning: client 3 [bold]fell[/bold] silent\x1b[0m" in console.export_text(styles=True)


def test_each_problem_starts_a_line_and_wraps_under_itself() -> None:
    listed = ["clients: is required", "topology.degree: must be " + "less " * 20 + "(given: 12)"]
    lines = rendered(problem_lines(listed, "ring.toml"))
    assert lines[:2] == ["ring.toml cannot be run: 2 problems", "  - clients: is required"]
    assert lines[2].startswith("  - topology.degree: must be less")
    assert all(line.startswith("    ") for line in lines[3:])
    assert " ".join(line.strip(" -") for line in lines[2:]) == listed[1]
    assert rendered(problem_lines(["bad"], "ring.toml"))[0] == "ring.toml cannot be run: 1 problem"


def test_user_supplied_text_is_shown_literally() -> None:
    lines = rendered(problem_lines(["[red]a[/red]: b\x1b[31m\nc :smile:", "x" * 100], "[bold].toml"))
    assert lines[0] == "[bold].toml cannot be run: 2 problems"
    assert lines[1] == "  - [red]a[/red]: b\\x1b[31m\\nc :smile:"
    assert "".join(line.strip(" -") for line in lines[2:]) == "x" * 100
