"""The page with the benchmarks marks the rows that miss their target."""

import operator

from tests.docs.pages import ROOT

BOUNDS = {">=": operator.ge, "<=": operator.le}


def test_rows_that_miss_their_target_are_marked() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "scale" / "speed.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith(("| work", "| ---"))
    ]
    judged = [row for row in rows if row[4]]
    assert len(judged) >= 20
    for row in judged:
        is_marked = row[0].startswith("**")
        value, target = row[3].strip("*").replace(",", ""), row[4].strip("*")
        comparison, bound = target.split()
        assert BOUNDS[comparison](float(value), float(bound)) is not is_marked, row
        assert row[5] == ("**NO**" if is_marked else "yes")
