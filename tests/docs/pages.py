"""Read the pages of the documentation, run their examples and compare numbers."""

from __future__ import annotations

import contextlib
import glob
import io
import re
import shlex
import signal
import subprocess
import tomllib
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rdpfl_sim.cli.main import main, parse
from rdpfl_sim.components.registry import forget_plugins
from rdpfl_sim.simulation.simulation import Simulation
from tests.pinned.cases import pins
from tests.registries import temporary_components

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))

IS_PINNED = pins() is not None
"""Whether the digests of this version of torch are known."""

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d{4}-\d\d-\d\d|(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?![\w])")
NAMES = ["three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WORDS = {name: str(number) for number, name in enumerate(NAMES, start=3)}


@dataclass(frozen=True)
class Block:
    """A block of code: its language, the name of the file it stands for, if any, and its text."""

    language: str
    title: str
    text: str


def blocks(text: str) -> list[Block]:
    """Return the blocks of code of a page."""
    return [Block(*found) for found in FENCE.findall(text)]


def prose(text: str) -> str:
    """Return the running text of a page: without code, tables, headings, comments and targets of links."""
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.DOTALL)
    text = re.sub(r"^\|.*$|^#.*$|^ {4}.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|`[^`]*`|<su[bp]>.*?</su[bp]>", "", text)
    return re.sub(r"\]\([^)]*\)|https?://\S+|arXiv:[\d.]+", "]", text)


def numbers(text: str) -> list[str]:
    """Return the numbers in a text, as they are written."""
    return [number.replace(",", "").replace("−", "-") for number in NUMBER.findall(text)]


def number_words(text: str) -> list[str]:
    """Return the numbers from three to twelve that are written as words."""
    return [WORDS[word] for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS]


def is_near(shown: str, printed: str) -> bool:
    """Whether a shown number is the printed one, rounded to the shown digits.

    Results of training depend on the version of torch. On one without pinned digests, numbers with a decimal
    point may differ by 0.02 or 5 %.
    """
    if "." not in shown:
        return shown == printed
    if IS_PINNED:
        return f"{float(printed):.{len(shown.partition('.')[2])}f}" == shown
    return abs(float(shown) - float(printed)) <= max(0.02, 0.05 * abs(float(printed)))


def missing_numbers(shown: Sequence[str], source: str) -> list[str]:
    """Return the numbers that do not occur in a source."""
    available = numbers(source)
    return [number for number in shown if not any(is_near(number, other) for other in available)]


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the shown lines that were not printed: words must be equal, and numbers near."""
    lines = printed.splitlines()
    return [
        line
        for line in shown.splitlines()
        if line.strip() not in ("", "...") and not any(_is_same_line(line, other) for other in lines)
    ]


def _is_same_line(shown: str, printed: str) -> bool:
    if shown.endswith("..."):
        return " ".join(printed.split()).startswith(" ".join(shown.removesuffix("...").split()))
    words = [NUMBER.sub("#", line).split() for line in (shown, printed)]
    pairs = list(zip(numbers(shown), numbers(printed), strict=False))
    return words[0] == words[1] and all(is_near(one, other) for one, other in pairs)


@dataclass
class Session:
    """Runs the examples of a page in a folder, in their order."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    quick: bool = True
    """Whether runs are shortened. Otherwise every command runs as it is written."""
    num_run: int = 0
    printed: list[str] = field(default_factory=list)
    """The output of every block of commands or of Python."""

    def start(self) -> None:
        """Enter the folder, which has the scenarios of the repository."""
        (self.folder / "scenarios").symlink_to(ROOT / "scenarios")
        self.monkeypatch.chdir(self.folder)
        self.monkeypatch.setattr(webbrowser, "open", lambda url: True)

    def run(self, page: Path) -> None:
        """Run all examples of a page; write blocks that have a title to files."""
        names: dict[str, object] = {"__name__": "__main__"}
        with temporary_components():
            for block in blocks(page.read_text()):
                if block.title:
                    path = Path(block.title)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.text)
                elif block.language == "sh":
                    self.run_lines(block.text)
                elif block.language == "python" and ">>>" not in block.text:
                    self._run_python(block.text, names)
                elif block.language == "toml":
                    self._validate(block.text)
                elif block.language == "text":
                    self._compare(block.text)
        forget_plugins()

    def _compare(self, shown: str) -> None:
        """Compare a shown output with what was printed so far."""
        lines = [line for line in shown.splitlines() if IS_PINNED or not line.startswith("digest")]
        assert missing_lines("\n".join(lines), "\n".join(self.printed)) == []

    def _run_python(self, code: str, names: dict[str, object]) -> None:
        if self.quick:
            code = re.sub(r'Scenario\.load\(\s*("[^"]+")\)', r"Scenario.load(\1, [])", code)
            code = re.sub(r'(Scenario\.load\(\s*"[^"]+",\s*\[)(?!"rounds)', r'\1"rounds=2", ', code)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, "page", "exec"), names)
        self.printed.append(out.getvalue())
        self.num_run += 1

    def _validate(self, text: str) -> None:
        """Validate a scenario or a sweep without a title."""
        folder = self.folder / "trial"
        folder.mkdir(exist_ok=True)
        (folder / "trial.toml").write_text(text.replace('"../', '"../scenarios/'))
        assert main(["validate", str(folder / "trial.toml")]) == 0, text
        self.num_run += 1

    def run_lines(self, text: str) -> None:
        """Run the lines of a block of commands."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    self._run_line(line, words)
        self.printed.append(out.getvalue())

    def _run_line(self, line: str, words: list[str]) -> None:
        program, *arguments = words
        if program == "rdpfl-sim":
            self._run_command(line, arguments)
        elif program == "make":
            self._make(arguments[0])
        elif words[:2] == ["pip", "install"] and arguments[1].startswith("./"):
            _install(Path(arguments[1]), self.monkeypatch)
        elif words[:2] == ["pip", "install"] and "[" in arguments[1]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert arguments[1] in {f"rdpfl-sim[{extra}]" for extra in extras}, line
        elif program == "python3" and arguments[0].endswith(".py"):
            assert (ROOT / arguments[0]).exists(), line
        elif program == "head":
            subprocess.run(line, shell=True, check=True, capture_output=True)
        else:
            assert program in ("source", "python3", "pip", "tensorboard", "git", "cd"), (
                f"cannot check: {line}"
            )

    def _make(self, target: str) -> None:
        """Check that a target exists. `make run` also runs its scenario."""
        makefile = (ROOT / "Makefile").read_text()
        assert target in re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE)
        if target == "run":
            recipe = re.search(r"^run:.*\n\t\S*rdpfl-sim (.*)$", makefile, flags=re.MULTILINE)
            assert recipe is not None
            self._run_command(recipe[0], shlex.split(recipe[1]))

    def _run_command(self, line: str, words: list[str]) -> None:
        for mark in (">", ">>", "|"):
            words = words[: words.index(mark)] if mark in words else words
        words = [file for word in words for file in (sorted(glob.glob(word)) if "*" in word else [word])]
        command = parse(words).command
        self.num_run += 1
        if "# needs " in line:  # a download, a cluster or an optional package
            return
        if self.quick:
            words += self._shorter(command, words)
        expected = re.search(r"exit code (\d+)", line)
        with _interruption() if "# press Ctrl-C" in line else contextlib.nullcontext():
            assert main(words) == (int(expected[1]) if expected else 0), line

    @staticmethod
    def _shorter(command: str, words: Sequence[str]) -> list[str]:
        if command == "run" and not any(word.startswith("rounds=") for word in words):
            return ["--set", "rounds=2"]
        if command == "sweep":
            few = [] if "--profile" in words else ["--set", "rounds=2"]
            return ["--set", "clients.count=4", *few, "--workers", "2"]
        return ["--set", "rounds=2", "--seeds", "1,", "--workers", "2"] if command == "breakdown" else []


@contextlib.contextmanager
def _interruption() -> Iterator[None]:
    """Press Ctrl-C when the fifth local training of a run ends."""
    on_training = Simulation._on_training

    def interrupt(simulation: Simulation) -> None:
        on_training(simulation)
        if simulation.num_trained == 5:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Simulation, "_on_training", interrupt)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)


def _install(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package without dependencies as pip does: modules on the path, entry points beside them."""
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
