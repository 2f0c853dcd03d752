import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest

from rdpfl_sim.cli import doctor
from rdpfl_sim.cli.main import main
from rdpfl_sim.learning.datasets.download import CLASSES
from tests.packages import Packages

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command without data sets; return its exit code and its lines."""
    monkeypatch.setenv("RDPFL_SIM_DATA", str(tmp_path))

    def run() -> tuple[int, list[str]]:
        code = main(["doctor"])
        return code, [line.strip() for line in capsys.readouterr().out.splitlines()]

    return run


def test_report_has_versions_devices_data_sets_and_extras(report, tmp_path: Path) -> None:
    code, lines = report()
    assert code == 0
    text = "\n".join(lines)
    assert f"torch {version('torch')}," in text
    assert "devices     cpu, portable arithmetic" in lines
    assert "data sets   digits, synthetic: part of the package" in lines
    for name in CLASSES:
        assert f"{name}: missing or damaged in {tmp_path}; download it with: rdpfl-sim data {name}" in lines
    assert any(line.startswith("extras      ray (runs and sweeps on a Ray cluster): ") for line in lines)


def test_downloaded_data_set_is_found(report, tmp_path: Path) -> None:
    images, labels = np.zeros((10, 28, 28, 1), dtype=np.uint8), np.arange(10)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "mnist.npz", **arrays)
    assert f"mnist: in {tmp_path}" in report()[1]


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*doctor.EXTRAS, *doctor.SOURCE_EXTRAS} == project["optional-dependencies"].keys()


@pytest.mark.parametrize(
    ("requirement", "sentence"),
    [
        ("surely-not-installed>=1.0", "surely-not-installed is missing"),
        ("numpy>=999.1", f"numpy {np.__version__} is too old; required: at least 999.1"),
    ],
)
def test_package_that_is_missing_or_too_old_is_named(requirement, sentence, report, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: [requirement, "rich>=13"])
    code, lines = report()
    assert code == 1
    assert f"packages    {sentence}" in lines
    assert not any(line.startswith("devices") for line in lines)
    assert "pip install --upgrade rdpfl-sim" in lines[-1]


def test_missing_extra_has_the_command_that_installs_it(report, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: ['surely-not-installed>=1.0; extra == "ray"'])
    code, lines = report()
    assert code == 0
    command = "surely-not-installed is missing; install it with: pip install 'rdpfl-sim[ray]'"
    assert f"extras      ray (runs and sweeps on a Ray cluster): {command}" in lines


def test_source_folder_is_not_reported_as_complete(report, monkeypatch) -> None:
    def requires(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", requires)
    code, lines = report()
    assert code == 0
    assert f"packages    {doctor.NOT_INSTALLED}" in lines
    assert f"extras      {doctor.NOT_INSTALLED}" in lines
    assert lines[-1].startswith("scenarios ")


def test_plugins_are_listed_and_broken_ones_explained(report, packages: Packages) -> None:
    packages.install("gone", "import missing_module", {"attack": ["lost"]})
    code, lines = report()
    assert code == 0
    [line] = [line for line in lines if line.startswith("plug-ins")]
    assert "broken: the attack 'lost' from the package gone 1.0 cannot be imported" in line
    assert line.endswith("; update or uninstall the package")
