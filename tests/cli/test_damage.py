"""Only an error of the reader means that the files of a run are damaged."""

from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.cli.common import report_damage
from rdpfl_sim.cli.main import main
from rdpfl_sim.errors import PluginError, RunError
from tests.support import small_scenario


@pytest.mark.parametrize("error", [TypeError, KeyError, IndexError, AttributeError, ValueError])
def test_our_own_bug_is_not_reported_as_damage(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(summary: object) -> None:
        raise error("a bug")

    run = simulate(small_scenario(rounds=1), tmp_path).folder
    monkeypatch.setattr("rdpfl_sim.reports.run_summary.summary_table", buggy)
    with pytest.raises(error, match="a bug"):
        main(["show", str(run)])


def test_error_of_the_reader_names_the_folder_and_verify() -> None:
    with pytest.raises(RunError) as caught, report_damage("runs/mine"):
        raise RunError("invalid record fault: it has no kind")
    reason = "invalid record fault: it has no kind"
    assert str(caught.value) == f"runs/mine: damaged files ({reason}); see rdpfl-sim verify for details"


def test_error_that_names_the_folder_is_unchanged() -> None:
    with pytest.raises(RunError, match=r"^runs/mine/summary\.json is damaged$"), report_damage("runs/mine"):
        raise RunError("runs/mine/summary.json is damaged")


def test_broken_plugin_is_not_reported_as_damage() -> None:
    with pytest.raises(PluginError, match=r"^loud has no options$"), report_damage("runs/mine"):
        raise PluginError("loud", "has no options")
