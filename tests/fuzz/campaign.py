"""Run random scenarios that cover every pair of components, and check each: `make fuzz`.

A failing scenario is reduced to a minimal TOML file, which is printed with the command that repeats it.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import SystemRandom
from tempfile import mkdtemp
from time import monotonic

import tomli_w
from rich.console import Console
from rich.table import Table

from tests.fuzz.coverage import Chosen, Plan, components
from tests.fuzz.effects import has_effect
from tests.fuzz.execution import FailedScenarioError, execute
from tests.fuzz.scenarios import RandomScenario
from tests.fuzz.shrink import shrink

NUM_SCENARIOS = 500
NUM_PROCESSES = 2
MAX_EFFECT_RUNS = 25
"""Scenarios in which a component may have no effect before the campaign fails."""


@dataclass(frozen=True)
class Failure:
    """A scenario that fails, reduced."""

    rule: str
    text: str
    scenario: RandomScenario


def check(drawn: RandomScenario) -> Failure | int:
    """Run a scenario; return its flaw, or the number of clients that made progress after all faults."""
    try:
        return execute(drawn)
    except FailedScenarioError as failed:
        rule = failed.rule
    smallest = shrink(drawn, lambda smaller: _rule(smaller) == rule)
    try:
        execute(smallest)
    except FailedScenarioError as failed:
        return Failure(rule, str(failed), smallest)
    return Failure(rule, "not repeatable", drawn)


def _rule(drawn: RandomScenario) -> str | None:
    try:
        execute(drawn)
    except FailedScenarioError as failed:
        return failed.rule
    except Exception:
        return None  # not a valid scenario
    return None


def first_effect(candidates: tuple[Chosen, Sequence[RandomScenario]]) -> int | None:
    """Return the position of the first scenario in which a component has an effect."""
    chosen, scenarios = candidates
    return next((place for place, drawn in enumerate(scenarios) if has_effect(chosen, drawn)), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign, or repeat a failure; return 1 if anything fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--scenarios", type=int, default=NUM_SCENARIOS, help="least number of scenarios")
    parser.add_argument("--repeat", type=Path, metavar="FOLDER", help="check one scenario again")
    options = parser.parse_args(arguments)
    if options.repeat is not None:
        found = check_again(options.repeat)
        print(found if found is not None else "no flaw")
        return found is not None
    return campaign(options.seed, options.scenarios)


def campaign(seed: int, num_scenarios: int) -> int:
    """Run a campaign and print its coverage; return 1 if anything fails."""
    began_s = monotonic()
    plan = Plan(seed)
    plan.extend(num_scenarios)
    print(
        f"seed {seed}: {len(plan.scenarios)} scenarios, planned in {monotonic() - began_s:.0f} s", flush=True
    )
    with ProcessPoolExecutor(NUM_PROCESSES, mp_context=get_context("spawn")) as pool:
        failures, num_healed = [], 0
        for number, outcome in enumerate(pool.map(check, plan.scenarios, chunksize=4), start=1):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                report(outcome)
            else:
                num_healed += outcome
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{number} of {len(plan.scenarios)} scenarios")
        candidates = [(chosen, list(_with(plan, chosen))) for chosen in components()]
        effects = dict(
            zip((chosen for chosen, _ in candidates), pool.map(first_effect, candidates), strict=True)
        )
    print_coverage(plan, effects)
    without = [f"{kind} {name}" for (kind, name), place in effects.items() if place is None]
    print(f"{num_healed} times, a client was observed to make progress after all faults had ended")
    for pair, reason in sorted(plan.refused.items(), key=lambda item: sorted(item[0])):
        if "no option" not in reason:
            print(f"refused: {' with '.join(f'{kind} {name}' for kind, name in sorted(pair))} ({reason})")
    if without:
        print(f"FAILED: no effect was seen of {', '.join(without)}")
    if num_healed == 0:
        print("FAILED: progress after faults was never checked")
    print(f"{len(plan.scenarios) - len(failures)} passed, {len(failures)} failed")
    print(f"{monotonic() - began_s:.0f} s")
    return int(bool(failures or without or num_healed == 0))


def _with(plan: Plan, chosen: Chosen) -> Iterator[RandomScenario]:
    """Yield some scenarios with a component, those in which it is the only fault or attack first."""
    found = [drawn for drawn, members in zip(plan.scenarios, plan.members, strict=True) if chosen in members]
    yield from sorted(found, key=lambda drawn: len(drawn.scenario["faults"]))[:MAX_EFFECT_RUNS]


def print_coverage(plan: Plan, effects: dict[Chosen, int | None]) -> None:
    """Print one row per component: its scenarios, its pairs, and whether it had an effect."""
    table = Table("kind", "component", "scenarios", "pairs", "had an effect", title="Coverage")
    pairs: dict[Chosen, int] = defaultdict(int)
    for pair in plan.drawn:
        for chosen in pair:
            pairs[chosen] += 1
    for chosen in components():
        number = sum(chosen in members for members in plan.members)
        table.add_row(
            *chosen, str(number), str(pairs[chosen] or "-"), "no" if effects[chosen] is None else "yes"
        )
    Console(width=100).print(table)


def report(failure: Failure) -> None:
    """Print a failure with its scenario, and write the files that repeat it."""
    folder = Path(mkdtemp(prefix="rdpfl-fuzz-"))
    drawn = failure.scenario
    extra = {"odd_messages": [list(message) for message in drawn.odd_messages]}
    if drawn.heal_at_s is not None:
        extra["heal_at_s"] = drawn.heal_at_s
    for name, content in {**drawn.files, "scenario.toml": tomli_w.dumps(drawn.scenario)}.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "conditions.toml").write_text(tomli_w.dumps(extra))
    print(f"\nFAILED: {failure.text}\n--- scenario.toml\n{tomli_w.dumps(drawn.scenario)}--- conditions.toml")
    print(
        f"{tomli_w.dumps(extra)}--- repeat with: python -m tests.fuzz.campaign --repeat {folder}", flush=True
    )


def check_again(folder: Path) -> str | None:
    """Check a scenario that `report` has written; return the flaw."""
    conditions = tomllib.loads((folder / "conditions.toml").read_text())
    names = {"scenario.toml", "conditions.toml"}
    drawn = RandomScenario(
        tomllib.loads((folder / "scenario.toml").read_text()),
        {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in names},
        [tuple(message) for message in conditions["odd_messages"]],
        conditions.get("heal_at_s"),
    )
    try:
        execute(drawn)
    except FailedScenarioError as failed:
        return str(failed)
    return None


if __name__ == "__main__":
    raise SystemExit(main())
