import re
import tomllib
from pathlib import Path

import pytest

from rdpfl_sim import Scenario
from rdpfl_sim.cli.new import PROMPTS, build_scenario
from rdpfl_sim.scenario.component_list import SECTIONS, WIDTH, commented_scenario
from rdpfl_sim.scenario.sections import CHOICES

DEFAULTS = build_scenario({prompt.flag: None for prompt in PROMPTS}, Path()).raw
CHOSEN = {
    **DEFAULTS,
    "adversary": {"attack": {"name": "noise", "sigma": 3.0}, "fraction": 0.3},
    "faults": [],
}


def uncommented(text: str) -> str:
    """Return the text with all commented keys enabled."""
    return re.sub(r"^#(?=[a-z_]+ = )", "", text, flags=re.MULTILINE)


def test_template_sets_only_the_chosen_values() -> None:
    text = commented_scenario(CHOSEN, "a title")
    assert text.startswith("# a title\n")
    names = {
        "topology": "ring",
        "data": "digits",
        "partition": "dirichlet",
        "model": "mlp",
        "method": "rdpfl",
    }
    chosen = {section: {} for section in SECTIONS} | {kind: {"name": name} for kind, name in names.items()}
    chosen |= {key: value for key, value in CHOSEN.items() if key not in ("faults", "method")}
    chosen["method"]["lambda"] = 1.0
    assert tomllib.loads(text) == chosen


def test_enabling_all_commented_defaults_does_not_change_the_scenario() -> None:
    text = commented_scenario(CHOSEN, "a title")
    everything = tomllib.loads(uncommented(text))
    assert "epsilon" in everything["method"]
    assert Scenario.from_dict(everything).hash == Scenario.from_dict(CHOSEN).hash


@pytest.mark.parametrize("kind", ["topology", "data", "partition", "model", "method"])
def test_every_component_is_described_by_its_docstring(kind: str) -> None:
    for name in CHOICES[kind].names():
        text = commented_scenario({**CHOSEN, kind: name}, "a title")
        words = " ".join(re.sub(r"^# ", "", text, flags=re.MULTILINE).split())
        assert " ".join(f"{name}: {CHOICES[kind].table(name).__doc__}".split()) in words
        assert tomllib.loads(text)[kind] == {"name": name}
        assert all(other in text for other in CHOICES[kind].names())


def test_without_attackers_their_section_is_a_comment_that_can_be_uncommented() -> None:
    text = commented_scenario(DEFAULTS, "a title")
    assert "adversary" not in tomllib.loads(text)
    assert tomllib.loads(text.replace("#[adversary]", "[adversary]"))["adversary"] == {}


def test_lines_are_not_too_long() -> None:
    assert max(map(len, commented_scenario(CHOSEN, "a title").splitlines())) <= WIDTH
