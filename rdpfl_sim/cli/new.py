"""rdpfl-sim new: write a commented scenario as a starting point."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rdpfl_sim.cli.common import UsageError, make_console, print_plain
from rdpfl_sim.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from rdpfl_sim.toml import TomlTable

HELP = "create a scenario file interactively or from options"
EXAMPLES = """\
examples:
  rdpfl-sim new                                   # interactive questions
  rdpfl-sim new mine.toml --clients 20 --topology small_world --attack min_max
  rdpfl-sim new mine.toml --loss bernoulli --method balance --yes --force
  rdpfl-sim new mine.toml --latency "{name = 'pareto', shape = 1.5}"
  rdpfl-sim new - --data synthetic                # print the scenario only
  rdpfl-sim new mine.toml --example ring_30pct    # copy a bundled scenario
"""


@dataclass(frozen=True)
class Prompt:
    """A question: command-line flag, scenario path, prompt text, and component kind."""

    flag: str
    path: str
    text: str
    metavar: str = "NAME"
    kind: str | None = None


class NewScenario(NamedTuple):
    """The scenario built from the answers, and its problems, or its values with defaults and its warnings."""

    raw: TomlTable
    reasons: dict[str, str]
    """The reason for each value that differs from its default without being an answer, by path."""
    problems: list[Problem]
    resolved: TomlTable
    warnings: list[str]


PROMPTS = (  # the default topology depends on the number of clients and on the attack
    Prompt("clients", "clients.count", "number of clients", "NUMBER"),
    Prompt("data", "data", "data set", kind="data"),
    Prompt("partition", "partition", "partition of the data among clients", kind="partition"),
    Prompt("method", "method", "learning method", kind="method"),
    Prompt("attack", "adversary.attack", "attack used by Byzantine clients", kind="attack"),
    Prompt("byzantine", "adversary.fraction", "fraction of Byzantine clients", "FRACTION"),
    Prompt("topology", "topology", "network topology", kind="topology"),
    Prompt("latency", "network.latency", "message latency", kind="latency"),
    Prompt("loss", "network.loss", "message loss", kind="loss"),
    Prompt("wait", "timing.wait", "how clients wait for messages", kind="wait"),
    Prompt("rounds", "rounds", "number of rounds", "NUMBER"),
    Prompt("seed", "seed", "random seed", "NUMBER"),
)
DEVIATIONS: dict[str, tuple[object, str]] = {
    "method.lambda": (1.0, "With this value of the paper, neighbours have almost no influence here."),
    "network.latency": (
        {"name": "exponential", "mean_s": 0.2},
        "With random delays, messages arrive late and out of order.",
    ),
    "timing.compute": (
        {"name": "lognormal", "sigma": 0.25},
        "With random compute times, clients are not in step.",
    ),
    "timing.wait": (
        {"name": "deadline", "seconds": 1.0},
        "A client that waits for all messages cannot continue after a lost one.",
    ),
}
"""The values that differ from the defaults of a scenario, by path, with the reason."""
NOT_READ = (
    "note: input is not a terminal and is not read; keys without an option get their defaults (--yes omits "
    "this note)"
)
ATTACK, FRACTION = "noise", 0.2
TIMEOUT_S = 3.0
"""Default timeout for wait policies that would otherwise block on a lost message."""
MANY_CLIENTS = 40
HALF = "On a ring, one attacker is half of a client's neighbours: outside the threat model."
WITH_ATTACKERS: dict[str, tuple[object, str]] = {"topology": ("complete", HALF)}
MANY_WITH_ATTACKERS: dict[str, tuple[object, str]] = {"topology": ({"name": "k_regular", "k": 20}, HALF)}
MANY: dict[str, tuple[object, str]] = {
    "partition.min_samples": (1, "With many clients, each has few training examples.")
}
"""Further deviations for more than `MANY_CLIENTS` clients, whose complete graph has too many links."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the output file, the example and one option per question."""
    parser.add_argument(
        "target",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="output file, or - to print (default: scenario.toml, or the name of the example)",
    )
    parser.add_argument("--output", "-o", type=Path, metavar="FILE", help="another way to give FILE")
    parser.add_argument(
        "--example",
        metavar="NAME",
        help="copy a bundled scenario or sweep, with the files that it needs (see: rdpfl-sim list scenarios)",
    )
    for prompt in PROMPTS:
        hint = "" if prompt.kind is None else f" (see: rdpfl-sim list {prompt.kind})"
        parser.add_argument(f"--{prompt.flag}", metavar=prompt.metavar, help=prompt.text + hint)
    parser.add_argument("--stdout", action="store_true", help="print the scenario instead of writing a file")
    parser.add_argument(
        "--yes", "-y", action="store_true", help="do not prompt; use defaults for missing options"
    )
    parser.add_argument("--force", "-f", action="store_true", help="replace an existing file")


def execute(options: argparse.Namespace) -> int:
    """Prompt for missing options on a terminal, check that the scenario can run, and write the file."""
    target = _target(options)
    if options.example is not None:
        given = [f"--{prompt.flag}" for prompt in PROMPTS if getattr(options, prompt.flag) is not None]
        if given:
            raise UsageError(f"--example cannot be combined with {given[0]}: change the copy instead")
        return copy_example(options.example, target, options.force)
    if target is not None:
        reject_existing([target], options.force)
    console = make_console(stderr=True)
    interactive = not options.yes and target is not None and _is_terminal(sys.stdin) and sys.stdout.isatty()
    if not options.yes and not _is_terminal(sys.stdin):
        console.print(NOT_READ, markup=False, highlight=False, soft_wrap=True)
    with console.status("loading"):
        from rdpfl_sim.reports.text import warning_lines
        from rdpfl_sim.scenario.component_list import commented_scenario

    folder = Path() if target is None else target.parent
    answers = {prompt.flag: getattr(options, prompt.flag) for prompt in PROMPTS}
    result = build_scenario(answers, folder)
    if result.problems:
        raise ScenarioError([_with_option(problem) for problem in result.problems])
    if interactive:
        result = _ask(answers, folder)
    name = "scenario" if target is None else target.stem
    text = commented_scenario(result.raw, f"{name}: {_title(result.resolved)}", result.reasons)
    console.print(warning_lines(result.warnings))
    if target is None:
        print_plain(text, end="")
    else:
        write_scenario({target: text}, "rdpfl-sim")
    return 0


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; a closed stream is None."""
    return stream is not None and stream.isatty()


def _target(options: argparse.Namespace) -> Path | None:
    """Return the output file, or None for stdout."""
    if options.target is not None and options.output is not None:
        raise UsageError("give the output file once, as FILE or with --output")
    target: Path | None = options.target or options.output
    if options.stdout or str(target) == "-":
        return None
    name = "scenario" if options.example is None else Path(options.example).name
    return target or Path(f"{name}.toml")


def build_scenario(answers: dict[str, str | None], folder: Path) -> NewScenario:
    """Build the scenario of a file in `folder` from the answers so far; unanswered questions are None."""
    from copy import deepcopy

    from rdpfl_sim.scenario.overrides import Draft, parse_override
    from rdpfl_sim.scenario.scenario import Scenario, make_paths_absolute
    from rdpfl_sim.simulation.experiment import Experiment
    from rdpfl_sim.toml import get_value, set_value

    raw: TomlTable = {}
    for key, (default, _) in DEVIATIONS.items():
        set_value(raw, key, deepcopy(default))
    draft = Draft(Scenario, raw)
    for prompt in PROMPTS:
        answer, current = answers[prompt.flag], get_value(raw, prompt.path)
        if answer is not None and _component_name(current) != answer:
            path, value = parse_override(f"{prompt.path}={answer}")
            by_name = isinstance(value, str) and isinstance(current, dict)
            draft.set(f"{path}.name" if by_name else path, value)
    _complete_adversary(raw)
    if _has_no_options(wait := get_value(raw, "timing.wait")) and _component_name(wait) in ("all", "quorum"):
        set_value(raw, "timing.wait.timeout_s", TIMEOUT_S)
    are_many = isinstance(number := get_value(raw, "clients.count"), int) and number > MANY_CLIENTS
    further = MANY if are_many and answers["partition"] is None else {}
    if answers["topology"] is None and "adversary" in raw:
        further = further | (MANY_WITH_ATTACKERS if are_many else WITH_ATTACKERS)
    for key, (default, _) in further.items():
        set_value(raw, key, deepcopy(default))
    deviations = DEVIATIONS | further
    reasons = {path: why for path, (value, why) in deviations.items() if get_value(raw, path) == value}
    absolute = deepcopy(raw)
    make_paths_absolute(absolute, folder)
    try:
        scenario = Scenario.from_dict(absolute)
        resolved = scenario.to_dict()
        warnings = [*draft.reset_notes(resolved), *Experiment(scenario).warnings]
    except ScenarioError as error:
        return NewScenario(raw, reasons, error.problems, {}, [])
    return NewScenario(raw, reasons, [], resolved, warnings)


def _has_no_options(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and value.keys() == {"name"})


def _complete_adversary(raw: TomlTable) -> None:
    """Set the default attack if only the fraction is given, and vice versa."""
    adversary = raw.get("adversary", {"attack": "none"})
    if adversary == {"attack": "none"}:
        raw.pop("adversary", None)
        return
    adversary.setdefault("attack", ATTACK)
    adversary.setdefault("fraction", FRACTION)


def _with_option(problem: Problem) -> Problem:
    """Replace the scenario path with the command-line option, because no scenario file exists yet."""
    for prompt in PROMPTS:
        if problem.path == prompt.path or problem.path.startswith(f"{prompt.path}."):
            return replace(problem, path=f"--{prompt.flag}{problem.path.removeprefix(prompt.path)}")
    return problem


def _component_name(value: object) -> object:
    return value.get("name") if isinstance(value, dict) else value


def _ask(answers: dict[str, str | None], folder: Path) -> NewScenario:
    """Ask the unanswered questions and return the scenario; repeat a question after an invalid answer."""
    from rdpfl_sim.toml import get_value

    console = make_console()
    console.print("Press Enter for the default in [brackets], or type ? for a list of choices.", markup=False)
    result = build_scenario(answers, folder)
    for prompt in PROMPTS:
        if answers[prompt.flag] is not None or (prompt.flag == "byzantine" and "adversary" not in result.raw):
            continue
        value = _component_name(get_value(result.resolved, prompt.path))
        default = "none" if prompt.flag == "attack" and value is None else value
        question = f"{prompt.text[0].upper()}{prompt.text[1:]} [{default}]: "
        while True:
            try:
                answer = input(question).strip()
            except EOFError:  # Ctrl-D
                raise KeyboardInterrupt from None
            if not answer:
                break
            if answer == "?":
                _print_choices(prompt)
                continue
            attempt = build_scenario({**answers, prompt.flag: answer}, folder)
            if not attempt.problems:
                result = attempt
                answers = {**answers, prompt.flag: answer}
                break
            console.print(f"  {attempt.problems[0].message}", markup=False, highlight=False, soft_wrap=True)
    return result


def _print_choices(prompt: Prompt) -> None:
    from rich.text import Text

    from rdpfl_sim.reports.text import HangingIndent
    from rdpfl_sim.scenario.component_list import list_components

    console = make_console()
    if prompt.kind is None:
        console.print("  a number")
        return
    for entry in list_components()[prompt.kind]:
        console.print(HangingIndent(Text.assemble((entry.name, "cyan"), f": {entry.summary}"), 2))


def _title(raw: TomlTable) -> str:
    topology, method = _component_name(raw["topology"]), _component_name(raw["method"])
    attack = ""
    if adversary := raw.get("adversary"):
        attack = f", {adversary['fraction']:.0%} Byzantine ({_component_name(adversary['attack'])})"
    return f"{raw['clients']['count']} clients, topology {topology}{attack}, {method}, {raw['rounds']} rounds"


def reject_existing(files: Iterable[Path], force: bool) -> None:
    """Raise a `UsageError` if a file exists and must not be replaced."""
    for file in files:
        if file.is_dir():
            raise UsageError(f"{file} is a folder, not a file")
        if file.exists() and not force:
            raise UsageError(f"{file} already exists; use --force to replace it")


def write_scenario(files: Mapping[Path, str], command: str) -> None:
    """Write the files, then print the command that runs the first one."""
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print_plain(f"wrote {file}")
    hint = f"run it with: {command} {shlex.quote(str(next(iter(files))))}"
    make_console(stderr=True).print(hint, markup=False, highlight=False, soft_wrap=True)


def copy_example(name: str, target: Path | None, force: bool) -> int:
    """Copy a bundled scenario or sweep that can run here, and the files that it refers to.

    Print it if `target` is None.
    """
    from rdpfl_sim.components.schema import suggest
    from rdpfl_sim.scenario.bundled import bundled_scenarios, copies
    from rdpfl_sim.toml import is_sweep, read_toml

    bundled = bundled_scenarios()
    if name not in bundled:
        raise UsageError(f"no bundled scenario is called {name!r}{suggest(name, bundled)}")
    source = bundled[name]
    files = copies(source, target or Path(source.name))
    if target is not None:
        reject_existing(files, force)
    elif len(files) > 1:
        raise UsageError(f"{name} refers to other files and cannot be printed: give an output file")
    sweep = is_sweep(read_toml(source))
    _check(source, sweep)
    if target is None:
        print_plain(source.read_text(encoding="utf-8"), end="")
    else:
        write_scenario(files, "rdpfl-sim sweep" if sweep else "rdpfl-sim")
    return 0


def _check(source: Path, sweep: bool) -> None:
    """Raise a `ScenarioError` if the scenario cannot run here, for example without its data set."""
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.experiment import Experiment
    from rdpfl_sim.sweeps.plan import check_data
    from rdpfl_sim.sweeps.spec import SweepSpec
    from rdpfl_sim.sweeps.strategies.grid import plan_runs

    if sweep:
        check_data(plan_runs(SweepSpec.load(source)))
    else:
        Experiment(Scenario.load(source))
