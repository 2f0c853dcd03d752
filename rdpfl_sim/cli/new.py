"""rdpfl-sim new: a commented scenario to begin with."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rdpfl_sim.cli.common import BAD_INPUT, make_console
from rdpfl_sim.errors import Problem, ScenarioError

HELP = "write a commented scenario, from answers or options"
EXAMPLES = """\
examples:
  rdpfl-sim new                                   # asks, writes scenario.toml
  rdpfl-sim new mine.toml --clients 20 --topology small_world --attack min_max
  rdpfl-sim new mine.toml --loss bernoulli --method balance --yes --force
  rdpfl-sim new mine.toml --latency "{name = 'pareto', shape = 1.5}"
  rdpfl-sim new - --data synthetic                # only print it
"""


@dataclass(frozen=True)
class Prompt:
    """One choice: its flag, where it stands in a scenario, what to ask, and the kind if it is a component."""

    flag: str
    path: str
    text: str
    metavar: str = "NAME"
    kind: str | None = None


class Started(NamedTuple):
    """A scenario that follows from answers, what is wrong with it, and which keys an answer has reset."""

    raw: dict[str, Any]
    problems: list[Problem]
    notes: list[str]


QUESTIONS = (
    Prompt("clients", "clients.count", "How many clients", "NUMBER"),
    Prompt("topology", "topology", "How are they linked", kind="topology"),
    Prompt("data", "data", "Which data do they learn", kind="data"),
    Prompt("partition", "partition", "How is the data dealt among them", kind="partition"),
    Prompt("method", "method", "How do they learn", kind="method"),
    Prompt("attack", "adversary.attack", "What do attackers send", kind="attack"),
    Prompt("byzantine", "adversary.fraction", "Which fraction of the clients attacks", "FRACTION"),
    Prompt("latency", "network.latency", "How long do messages take", kind="latency"),
    Prompt("loss", "network.loss", "Which messages are lost", kind="loss"),
    Prompt("wait", "timing.wait", "How long does a client wait for its neighbours", kind="wait"),
    Prompt("rounds", "rounds", "How many rounds", "NUMBER"),
    Prompt("seed", "seed", "Which seed", "NUMBER"),
)
START: dict[str, Any] = {
    "rounds": 30,
    "seed": 1,
    "clients": {"count": 10},
    "topology": "ring",
    "data": {"name": "digits", "test_fraction": 0.75},
    "partition": {"name": "dirichlet", "alpha": 1.0, "min_samples": 5},
    "training": {"batch_size": 16, "learning_rate": 0.02},
    "method": {"name": "rdpfl", "lambda": 1.0},
    "network": {"latency": {"name": "exponential", "mean_s": 0.2}, "loss": "none"},
    "timing": {
        "compute": {"name": "lognormal", "sigma": 0.25},
        "wait": {"name": "deadline", "seconds": 1.0},
    },
}
"""What is not asked or answered: small, asynchronous, and of some use to its neighbours."""
ATTACK, FRACTION = "noise", 0.2
TIMEOUT_S = 3.0
"""For who waits until messages are there: they may be lost."""
MANY_CLIENTS = 40
FOR_MANY: dict[str, Any] = {
    "data": "digits",
    "partition": {"name": "dirichlet", "alpha": 1.0, "min_samples": 1},
}
"""For more than so many clients: more images to train on, and fewer for each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to, and what it should say."""
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=Path("scenario.toml"),
        metavar="FILE",
        help="where to; - prints it (default: scenario.toml)",
    )
    for question in QUESTIONS:
        hint = "" if question.kind is None else f" (rdpfl-sim list {question.kind})"
        text = question.text[0].lower() + question.text[1:]
        parser.add_argument(f"--{question.flag}", metavar=question.metavar, help=text + hint)
    parser.add_argument("--stdout", action="store_true", help="print it, write no file")
    parser.add_argument("--yes", "-y", action="store_true", help="ask nothing")
    parser.add_argument("--force", "-f", action="store_true", help="replace a file that is there")


def execute(options: argparse.Namespace) -> int:
    """Ask what is not given, if there is somebody to ask; check the answers; write the file."""
    prints = options.stdout or str(options.file) == "-"
    if not prints and options.file.exists() and not options.force:
        sys.stderr.write(f"rdpfl-sim new: {options.file} exists; --force replaces it\n")
        return BAD_INPUT
    asks = not options.yes and not prints and sys.stdin.isatty() and sys.stdout.isatty()
    console = make_console(stderr=True)
    with console.status("loading"):
        from rdpfl_sim.reports.terminal import warning_lines
        from rdpfl_sim.scenario.template import commented_scenario

    given = {question.flag: getattr(options, question.flag) for question in QUESTIONS}
    raw, problems, notes = started(given)
    if problems:
        raise ScenarioError([_as_flag(problem) for problem in problems])
    if asks:
        raw, _, notes = _asked(given)
    name = "scenario" if prints else options.file.stem
    text = commented_scenario(raw, f"{name}: {_described(raw)}")
    console.print(warning_lines(notes))
    if prints:
        print(text, end="")  # noqa: T201  # the command's output
        return 0
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text, encoding="utf-8")
    return _told(options.file)


def started(given: dict[str, str | None]) -> Started:
    """The scenario that follows from the answers given so far."""
    from copy import deepcopy

    from rdpfl_sim.scenario.overrides import Draft, parse_override
    from rdpfl_sim.scenario.paths import get_value, set_value
    from rdpfl_sim.scenario.scenario import Scenario

    raw = deepcopy(START)
    draft = Draft(Scenario, raw)
    for question in QUESTIONS:
        answer, present = given[question.flag], get_value(raw, question.path)
        if answer is not None and _name(present) != answer:
            path, value = parse_override(f"{question.path}={answer}")
            by_name = isinstance(value, str) and isinstance(present, dict)
            draft.set(f"{path}.name" if by_name else path, value)
    _complete_adversary(raw)
    if _is_name_alone(wait := get_value(raw, "timing.wait")) and _name(wait) in ("all", "quorum"):
        set_value(raw, "timing.wait.timeout_s", TIMEOUT_S)
    if isinstance(number := get_value(raw, "clients.count"), int) and number > MANY_CLIENTS:
        for section in ("data", "partition"):
            if raw[section] == START[section]:
                raw[section] = FOR_MANY[section]
    try:
        scenario = Scenario.from_dict(raw)
    except ScenarioError as error:
        return Started(raw, error.problems, [])
    return Started(raw, [], [*draft.reset_notes(scenario.to_dict())])


def _is_name_alone(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and value.keys() == {"name"})


def _complete_adversary(raw: dict[str, Any]) -> None:
    """Attackers need an attack, and an attack attackers."""
    adversary = raw.get("adversary", {"attack": "none"})
    if adversary == {"attack": "none"}:
        raw.pop("adversary", None)
        return
    adversary.setdefault("attack", ATTACK)
    adversary.setdefault("fraction", FRACTION)


def _as_flag(problem: Problem) -> Problem:
    """A problem of the option that was given, not of the scenario that there is not yet."""
    for question in QUESTIONS:
        if problem.path == question.path or problem.path.startswith(f"{question.path}."):
            return replace(problem, path=f"--{question.flag}{problem.path.removeprefix(question.path)}")
    return problem


def _name(value: Any) -> Any:
    return value.get("name") if isinstance(value, dict) else value


def _asked(given: dict[str, str | None]) -> Started:
    """The scenario after all questions were answered; a wrong answer is asked again."""
    from rdpfl_sim.scenario.paths import get_value

    console = make_console()
    console.print("Enter takes what stands in [brackets]; ? lists what there is.", markup=False)
    result = started(given)
    for question in QUESTIONS:
        if given[question.flag] is not None or (
            question.flag == "byzantine" and "adversary" not in result.raw
        ):
            continue
        value = _name(get_value(result.raw, question.path))
        default = "none" if question.flag == "attack" and value is None else value
        while True:
            try:
                answer = input(f"{question.text}? [{default}] ").strip() or str(default)
            except EOFError:  # Ctrl-D
                raise KeyboardInterrupt from None
            if answer == "?":
                _list(question)
                continue
            attempt = started({**given, question.flag: answer})
            if not attempt.problems:
                result = attempt
                given = {**given, question.flag: answer}
                break
            console.print(f"  {attempt.problems[0].message}", markup=False, highlight=False, soft_wrap=True)
    return result


def _list(question: Prompt) -> None:
    """What can be answered."""
    from rich.text import Text

    from rdpfl_sim.scenario.component_list import HangingIndent, list_components

    console = make_console()
    if question.kind is None:
        console.print("  a number")
        return
    for entry in list_components()[question.kind]:
        console.print(HangingIndent(Text.assemble((entry.name, "cyan"), f": {entry.summary}"), 2))


def _described(raw: dict[str, Any]) -> str:
    adversary = raw.get("adversary")
    attack = f", {adversary['fraction']:.0%} of them {_name(adversary['attack'])}" if adversary else ""
    return (
        f"{raw['clients']['count']} clients on a {_name(raw['topology'])}{attack}, {_name(raw['method'])}, "
        f"{raw['rounds']} rounds"
    )


def _told(file: Path) -> int:
    """Say what to do next, or what is still missing."""
    from rdpfl_sim.reports.terminal import warning_lines
    from rdpfl_sim.scenario.scenario import Scenario
    from rdpfl_sim.simulation.experiment import Experiment

    console = make_console()
    console.print(f"wrote {file}", markup=False, highlight=False)
    experiment = Experiment(Scenario.load(file))
    console.print(warning_lines(experiment.warnings))
    console.print(f"run it with: rdpfl-sim {shlex.quote(str(file))}", markup=False, highlight=False)
    return 0
