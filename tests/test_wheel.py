"""The wheel is complete: its commands work in an empty folder, without the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from rdpfl_sim.scenario.bundled import bundled_scenarios

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "rdpfl_sim", "scenarios")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the installed setuptools from a copy of the sources."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(folder))
    [built] = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare_program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel, installed without its dependencies."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    return environment / "bin" / "rdpfl-sim"


@pytest.fixture
def program(bare_program: Path) -> Iterator[Path]:
    """The command of the wheel, with the dependencies that are installed here."""
    environment = bare_program.parents[1]
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "shared.pth").write_text("\n".join(shared))  # .pth files in these folders have no effect
    yield bare_program
    (packages / "shared.pth").unlink()


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True, capture_output=True)


def run(program: Path, folder: Path, *words: str, code: int = 0) -> str:
    """Run a command of the installed wheel; return its output."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([program, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_wheel_has_every_scenario_and_data_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path.relative_to(ROOT / "scenarios") for path in (ROOT / "scenarios").rglob("*.*")]
    assert {f"rdpfl_sim/bundled_scenarios/{file.as_posix()}" for file in files} <= names
    assert {f"rdpfl_sim/learning/datasets/digits.{ending}" for ending in ("md", "npz")} <= names
    assert not any(name.startswith(("tests/", "scenarios/")) for name in names)


def test_installed_package_is_not_the_checkout(program: Path, tmp_path: Path) -> None:
    code = "import rdpfl_sim; print(rdpfl_sim.__file__)"
    location = run(program.with_name("python"), tmp_path, "-c", code)
    assert Path(location).is_relative_to(program.parents[1])


@pytest.mark.parametrize("words", [["ring_30pct"], ["run", "ring_30pct"], ["run", "stress/churn_trace"]])
def test_bundled_scenario_runs(words: list[str], program: Path, tmp_path: Path) -> None:
    folder = tmp_path / run(program, tmp_path, *words, "--set", "rounds=2", "--quiet").strip()
    assert (folder / "summary.json").exists()
    assert (folder / "curves.png").exists()


def test_bundled_sweep_runs_from_its_relative_base(program: Path, tmp_path: Path) -> None:
    words = ["sweep", "sweeps/lambda", "--set", "rounds=1", "--set", "output.figures=false"]
    assert "Personal accuracy of honest clients" in run(program, tmp_path, *words)


def test_examples_are_listed_copied_and_valid(program: Path, tmp_path: Path) -> None:
    assert "\npaper/lambda (sweep): Beyond the paper" in run(program, tmp_path, "list", "scenarios")
    run(program, tmp_path, "new", "--example", "ring_30pct")
    run(program, tmp_path, "new", "--example", "sweeps/lambda", "--force")
    assert run(program, tmp_path, "validate", "lambda.toml").endswith("lambda.toml: valid\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lambda.toml", "ring_30pct.toml"]


def test_doctor_reports_what_a_run_needs(program: Path, tmp_path: Path) -> None:
    report = run(program, tmp_path, "doctor")
    assert f"torch {version('torch')}" in report
    assert f"scenarios   {len(bundled_scenarios())} bundled" in report
    assert "Nothing that a run needs is missing" in report


def test_doctor_works_without_the_dependencies_and_names_them(bare_program: Path, tmp_path: Path) -> None:
    report = run(bare_program, tmp_path, "doctor", code=1)
    assert "torch is missing\n" in report
    assert "Install what is missing with: pip install --upgrade rdpfl-sim" in report
    assert "ray is missing; install it with: pip install 'rdpfl-sim[ray]'" in report
    assert "make docs" not in report  # only a copy of the repository can use this extra
