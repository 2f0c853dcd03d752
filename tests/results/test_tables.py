from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.console import Console

from rdpfl_sim.reports.sweep_figures import sweep_tables
from rdpfl_sim.results import Sweep
from rdpfl_sim.results.tables import Table, latex, latex_page, markdown, markdown_page
from rdpfl_sim.sweeps.plan import write_plan
from rdpfl_sim.sweeps.runner import folder_of
from rdpfl_sim.sweeps.spec import SweepSpec
from rdpfl_sim.sweeps.strategies.grid import plan_runs
from tests.results.run_folders import write_run

EXPLANATION = "± is the 95 % interval (Student's t) over seeds."

RAW = {
    "seeds": [1, 2],
    "base": {"rounds": 2},
    "grid": {"method.lambda": [0.1, 1.0]},
    "axis": [
        {
            "name": "attack_type",
            "cases": [{"label": "clean"}, {"label": "50 % noise", "set": {"training.momentum": 0.5}}],
        }
    ],
}
LAYOUT = {
    "title": "T",
    "rows": ["attack_type"],
    "columns": ["method.lambda"],
    "metrics": {"S": "score"},
    "digits": 2,
    "paper": {"clean": {"0.1": 0.5}},
}


def made(num_missing: int = 1, seeds: tuple[int, ...] = (1, 2), **layout: object) -> Table:
    """Return fake results: the score is lambda plus a tenth of the seed; the last runs are missing."""
    spec = SweepSpec.from_dict({**RAW, "seeds": [*seeds], "table": [{**LAYOUT, **layout}]})
    runs = plan_runs(spec)
    with TemporaryDirectory() as folder:
        output = Path(folder)
        write_plan(output, spec, "sweep", runs)
        for run in runs[: len(runs) - num_missing]:
            score = run.scenario.method.lambda_ + run.scenario.seed / 10
            write_run(folder_of(run, output), (), {"score": score, "half": score / 2}, run.scenario.to_dict())
        [table] = Sweep(output).tables()
    return table


def printed(width: int, *tables: Table) -> str:
    console = Console(width=width, file=StringIO())
    console.print(sweep_tables(tables, width))
    text: str = console.file.getvalue()
    return text


def test_cell_has_mean_interval_and_the_published_number() -> None:
    # Two values 0.1 apart: t(0.975, 1) = 12.706, times 0.0707 / sqrt(2)
    assert markdown(made()).splitlines() == [
        "| attack_type | 0.1 | 1.0 |",
        "| --- | --- | --- |",
        "| clean | 0.25 ± 0.64 (0.50) | 1.15 ± 0.64 |",
        "| 50 % noise | 0.25 ± 0.64 | 1.10 |",
    ]


def test_page_has_each_table_once_and_explains_once_that_intervals_follow_the_means() -> None:
    tables = [made(), made(title="U", paper={})]
    for page in (markdown_page(tables), latex_page(tables, {}), printed(80, *tables)):
        assert page.count(EXPLANATION) == 1
        assert "deviation" not in page
        assert page.count("columns: method.lambda; 1 to 2 seeds; published numbers in brackets") == 1
    assert markdown_page(tables).count("| attack_type |") == 2


def test_page_of_single_seeds_explains_no_interval() -> None:
    tables = [made(0, seeds=(1,), paper={})]
    for page in (markdown_page(tables), latex_page(tables, {}), printed(80, *tables)):
        assert "columns: method.lambda; one seed" in page
        assert "±" not in page


def test_latex_has_one_line_of_headings_per_axis_and_escapes_labels() -> None:
    lines = latex(made(metrics={"S": "score", "H": "half"}, paper={}), {}).splitlines()
    assert lines[0] == r"\begin{tabular}{lcccc}"
    assert lines[2] == r" & \multicolumn{2}{c}{0.1} & \multicolumn{2}{c}{1.0} \\"
    assert lines[3] == r"attack\_type & S & H & S & H \\"
    assert lines[5].startswith(r"clean & 0.25 $\pm$ 0.64 & 0.12 $\pm$ 0.32 & 1.15")
    assert lines[6].startswith(r"50 \% noise & ")


def test_latex_has_words_for_axes_and_symbols_for_greek_letters() -> None:
    words = {"attack_type": "Attack", "method.lambda": "Weight of neighbours λ"}
    lines = latex(made(rows=["attack_type", "method.lambda"], columns=[], paper={}), words).splitlines()
    assert lines[2] == r"Attack & Weight of neighbours $\lambda$ & S \\"


def test_rows_of_several_axes_are_grouped_by_the_first() -> None:
    table = made(rows=["attack_type", "method.lambda"], columns=[], paper={"clean": {"0.1": {"S": 0.5}}})
    assert table.rows == [("clean", "0.1"), ("clean", "1.0"), ("50 % noise", "0.1"), ("50 % noise", "1.0")]
    assert latex(table, {}).splitlines()[4:8] == [
        r"clean & 0.1 & 0.25 $\pm$ 0.64 (0.50) \\",
        r" & 1.0 & 1.15 $\pm$ 0.64 \\",
        r"\midrule",
        r"50 \% noise & 0.1 & 0.25 $\pm$ 0.64 \\",
    ]


def test_where_selects_cases() -> None:
    table = made(rows=["attack_type"], columns=[], where={"method.lambda": "1.0"}, paper={})
    assert [table.text(row, ("S",)) for row in table.rows] == ["1.15 ± 0.64", "1.10"]


def test_rows_are_by_default_all_axes_that_are_not_columns() -> None:
    assert made(rows=[], paper={}).corner == ("attack_type",)


@pytest.mark.parametrize("width", [40, 80])
def test_wide_table_is_cut_into_parts_that_fit_the_terminal(width: int) -> None:
    text = printed(width, made())
    assert max(map(len, text.splitlines())) <= width
    assert text.count("attack_type") == (2 if width == 40 else 1)
    assert "0.25 ± 0.64 (0.50)" in text


def test_table_without_a_complete_run_has_a_note() -> None:
    table = made(8)
    assert table.note == "no run is complete"
    assert table.rows == []
    printed(80, table)


def test_cells_are_not_broken_if_the_widest_fits() -> None:
    table = made()
    for width in range(34, 80):
        text = printed(width, table)
        assert all(table.text(row, column) in text for row in table.rows for column in table.columns), width
