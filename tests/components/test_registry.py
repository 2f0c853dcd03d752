from collections.abc import Callable
from typing import Annotated

import pytest
from pydantic import ValidationError

from rdpfl_sim.components.options import Count, Doc, Fraction
from rdpfl_sim.components.registry import Component, OneAfterOthers, OneOf, Strict
from tests.packages import Packages


def plain(x: float) -> float:
    """x itself."""
    return x


def scaled(x: float, *, factor: Annotated[Fraction, Doc("how much")] = 0.5, times: Count) -> float:
    """x scaled."""
    return x * factor * times


SHAPES: dict[str, Callable[..., float]] = {"plain": plain, "scaled": scaled}


class Section(Strict):
    shape: Annotated[Component, OneOf("shape", SHAPES)]


def test_component_is_bound_to_its_options() -> None:
    section = Section.model_validate({"shape": {"name": "scaled", "times": 4}})
    assert section.shape.bind()(10.0) == 20.0


def test_name_alone_is_enough_where_every_option_has_a_default() -> None:
    assert Section.model_validate({"shape": "plain"}).shape.bind()(3.0) == 3.0
    with pytest.raises(ValidationError, match="is required"):
        Section.model_validate({"shape": "scaled"})


def test_component_added_at_run_time_is_found() -> None:
    SHAPES["doubled"] = lambda x: 2 * x
    try:
        assert Section.model_validate({"shape": "doubled"}).shape.bind()(3.0) == 6.0
    finally:
        del SHAPES["doubled"]


HALVED = """
def halved(x: float) -> float:
    return x / 2
"""


def test_installed_packages_add_components_through_entry_points(packages: Packages) -> None:
    packages.install("halves", HALVED, {"shape": ["halved"]})
    assert Section.model_validate({"shape": "halved"}).shape.bind()(3.0) == 1.5


def test_broken_package_is_told_and_does_not_disturb_the_others(packages: Packages) -> None:
    packages.install("halves", HALVED, {"shape": ["halved"]})
    packages.install("gone", "import missing_module", {"shape": ["lost"]})
    packages.install("quits", "raise SystemExit(3)", {"shape": ["quitting"]})
    packages.install("number", "seven = 7", {"shape": ["seven"]})
    packages.install("shadow", "def plain(x): return 0", {"shape": ["plain"]})
    choice = OneOf("shape", SHAPES)
    assert sorted(choice.names()) == ["halved", "lost", "plain", "quitting", "scaled", "seven"]
    assert choice.usable_names() == ["plain", "scaled", "halved"]
    assert sorted(choice.broken()) == [
        "the shape 'lost' of the package gone 1.0 cannot be imported: "
        "ModuleNotFoundError: No module named 'missing_module' (gone.py, line 1)",
        "the shape 'plain' of the package shadow 1.0 is ignored: a built-in one has the same name",
        "the shape 'quitting' of the package quits 1.0 cannot be imported: SystemExit: 3 (quits.py, line 1)",
        "the shape 'seven' of the package number 1.0 must be a function or a class; number:seven is int",
    ]
    assert Section.model_validate({"shape": "plain"}).shape.bind()(3.0) == 3.0
    with pytest.raises(ValidationError, match=r"package gone 1\.0 cannot be imported: ModuleNotFoundError"):
        Section.model_validate({"shape": "lost"})
    assert "lost" not in str(Section.model_json_schema())
    assert "halved" in str(Section.model_json_schema())


def test_name_that_two_packages_offer_is_refused(packages: Packages) -> None:
    packages.install("one", HALVED, {"shape": ["halved"]})
    packages.install("two", HALVED, {"shape": ["halved"]})
    with pytest.raises(ValidationError, match=r"is also offered by package (one|two) 1.0: uninstall all but"):
        Section.model_validate({"shape": "halved"})


@pytest.mark.parametrize(
    ("option", "flaw"),
    [
        ("factor=2.0", "has an option 'factor' that needs a type annotation"),
        ("name: str = 'x'", "has an option 'name' that must have another name"),
        ("factor: float = object()", "has an option that cannot be used: PydanticJsonSchemaWarning"),
        ("factor: Unknown = 2.0", "has an option that cannot be used: NameError: name 'Unknown' is not"),
        ("_factor: float = 2.0", "has an option that cannot be used: PydanticUserError: Fields must not"),
    ],
)
def test_option_that_toml_cannot_hold_is_told(packages: Packages, option: str, flaw: str) -> None:
    source = f"from __future__ import annotations\ndef odd(x: float, *, {option}) -> float: return x"
    packages.install("odds", source, {"shape": ["odd"]})
    [sentence] = OneOf("shape", SHAPES).broken()
    assert sentence.startswith(f"the shape 'odd' of the package odds 1.0 {flaw}")


def test_option_without_a_type_is_named_and_does_not_disturb_the_others() -> None:
    def careless(x: float, *, strength=2.0) -> float:
        return x * strength

    SHAPES["careless"] = careless
    try:
        assert Section.model_validate({"shape": "plain"}).shape.name == "plain"
        sentence = (
            "the shape 'careless' of the module .* has an option 'strength' that needs a type annotation"
        )
        with pytest.raises(ValidationError, match=sentence):
            Section.model_validate({"shape": "careless"})
    finally:
        del SHAPES["careless"]


# Chains.


def rounded(x: float, *, digits: Count = 1) -> float:
    """x rounded."""
    return round(x, digits)


def combined(
    before: tuple[Callable[[float], float], ...], last: Callable[[float], float]
) -> Callable[..., float]:
    def run(x: float) -> float:
        for function in before:
            x = function(x)
        return last(x)

    return run


class Chained(Strict):
    shape: Annotated[
        Component,
        OneAfterOthers("shape", SHAPES, others=OneOf("filter", {"rounded": rounded}), combine=combined),
    ]


def problems(value: object) -> dict[tuple[object, ...], str]:
    with pytest.raises(ValidationError) as caught:
        Chained.model_validate({"shape": value})
    return {error["loc"]: error["msg"] for error in caught.value.errors()}


def test_list_is_bound_to_one_function_that_runs_them_in_order() -> None:
    table = {"name": "scaled", "factor": 1.0, "times": 3}
    section = Chained.model_validate({"shape": ["rounded", {"name": "rounded", "digits": 2}, table]})
    assert section.shape.bind()(0.26) == pytest.approx(0.9)
    assert section.shape.name == "rounded + rounded + scaled"


def test_name_or_table_or_list_of_one_is_that_component() -> None:
    for value in ("plain", {"name": "plain"}, ["plain"], [{"name": "plain"}]):
        assert Chained.model_validate({"shape": value}).shape.bind() is plain


def test_list_is_dumped_as_a_list_that_means_the_same() -> None:
    section = Chained.model_validate({"shape": ["rounded", {"name": "scaled", "times": 3}]})
    dumped = section.model_dump()
    assert dumped == {
        "shape": [{"name": "rounded", "digits": 1}, {"name": "scaled", "factor": 0.5, "times": 3}]
    }
    assert Chained.model_validate(dumped) == section


def test_what_stands_in_the_wrong_place_is_named() -> None:
    assert problems(["plain", "rounded"]) == {
        ("shape", 0): "no filter is called 'plain'; allowed: rounded",
        ("shape", 1): "no shape is called 'rounded'; allowed: plain, scaled",
    }
    assert problems(["rounded", {"name": "scaled", "times": 0}]) == {
        ("shape", 1, "times"): "input should be greater than or equal to 1"
    }
    assert problems([["rounded"], "plain"]) == {
        ("shape", 0): "must be a name or a table with a name; allowed: rounded"
    }
    for value in ([], 3):
        (text,) = problems(value).values()
        assert text == (
            "must be a name or a table with a name, or a list that ends in one, after any of rounded; "
            "allowed: plain, scaled"
        )


def test_schema_allows_a_list() -> None:
    choices = Chained.model_json_schema()["properties"]["shape"]["anyOf"]
    (array,) = (choice for choice in choices if choice.get("type") == "array")
    items = array["items"]["anyOf"]
    names = [name for item in items for name in item.get("enum", [item["const"]] if "const" in item else [])]
    assert sorted(names) == ["plain", "rounded", "scaled"]
    assert array["minItems"] == 1
