"""Changed records of rounds: messages used, waiting, estimates, weights and evaluations."""

import shutil
from pathlib import Path

import pytest

from rdpfl_sim import simulate
from rdpfl_sim.verification.verify import verify
from tests.support import small_scenario
from tests.verification.changed_runs import Records, index, read, violated, write


def test_use_of_an_older_message_than_the_preferred_one_is_reported(run: Path) -> None:
    records = read(run)
    place = index(records, "message_stale", reason="newer message chosen")
    dropped = records[place]
    pair = {key: dropped[key] for key in ("sender", "recipient")}
    later = place + index(records[place:], "message_used", **pair)
    chosen = records[later]
    age = chosen["age"] + chosen["round"] - dropped["round"]
    records[later] = {**chosen, "message": dropped["message"], "round": dropped["round"], "age": age}
    del records[place]
    write(run, records)
    assert str(violated(run)["use"].first).endswith(f"instead of {chosen['round']}")


def test_round_that_ends_before_enough_messages_arrived_is_reported(patient: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(patient, tmp_path / "run"))
    records = read(run)
    place = index(records, "round_finished", round=2)
    number = records[place + 1]["message"]
    records[place]["num_used"] -= 1
    arrived = index(records, "message_delivered", message=number)
    removed = arrived, place + 1, index(records, "message_stats", message=number)
    write(run, [record for i, record in enumerate(records) if i not in removed])
    found = violated(run)
    assert found["waiting"].line == place
    assert "use" not in found


def test_round_that_ends_after_the_timeout_is_reported(run: Path) -> None:
    path = run / "scenario.toml"
    path.write_text(path.read_text().replace("timeout_s = 0.5", "timeout_s = 0.01"))
    assert {"waiting", "scenario"} <= violated(run).keys()


def test_changed_metrics_are_reported(run: Path) -> None:
    path = run / "metrics.csv"
    head, *rows = path.read_text().splitlines(keepends=True)
    for wrong in ([*rows[:4], *rows[5:]], [*rows, rows[-1]], rows[:-1], [rows[1], rows[0], *rows[2:]]):
        path.write_text("".join([head, *wrong]))
        assert "evaluations" in violated(run)


def test_evaluation_of_an_unfinished_round_is_reported(run: Path) -> None:
    records = read(run)
    records[index(records, "evaluated", round=2)]["round"] = 3
    write(run, records)
    path = run / "metrics.csv"
    head, *rows = path.read_text().splitlines()
    column = head.split(",").index("round")
    place = [row.split(",")[column] for row in rows].index("2")
    rows[place] = ",".join("3" if i == column else cell for i, cell in enumerate(rows[place].split(",")))
    path.write_text("\n".join([head, *rows]) + "\n")
    assert "the last finished round of client 5 is 2" in str(violated(run)["evaluations"].first)


def test_changed_means_in_the_metrics_are_reported(run: Path) -> None:
    path = run / "metrics.csv"
    head, *rows = path.read_text().splitlines()
    cells = rows[-1].split(",")
    for column in ("used_per_round", "mean_age", "clipped", "bounded", "neighbour_share"):
        changed = list(cells)
        changed[head.split(",").index(column)] = "0.123"
        path.write_text("\n".join([head, *rows[:-1], ",".join(changed)]) + "\n")
        assert f"metrics.csv: {column} is 0.123, should be " in str(violated(run)["evaluations"].first)


def test_lemma_3_is_checked_for_methods_that_declare_a_bound(tmp_path: Path) -> None:
    run = simulate(small_scenario(method="local"), tmp_path).folder
    assert run is not None
    checks = {check.name: check for check in verify(run)}
    assert checks["lemma 3"].unchecked == "the method local has no bound on |d|"
    assert checks["waiting"].outcome == "ok"


def test_estimates_may_be_written_when_their_round_ends(run: Path) -> None:
    records = read(run)
    groups: dict[tuple[int, int], Records] = {}
    for record in records:
        if record["event"] == "estimate":
            of_round = groups[record["client"], record["round"]] = [record]
        elif record["event"] == "message_stats":
            of_round.append(record)
    moved: Records = []
    for position, record in enumerate(records):
        if record["event"] in ("estimate", "message_stats"):
            continue
        moved.append(record)
        if record["event"] in ("round_finished", "message_used"):
            if record["event"] == "round_finished":
                finished = record
            if records[position + 1]["event"] != "message_used":
                group = groups.get((finished["client"], finished["round"]), [])
                moved += [{**one, "time_s": finished["time_s"]} for one in group]
    assert len(moved) == len(records)
    write(run, moved)
    assert list(violated(run)) == ["digest"]


@pytest.mark.parametrize("event", ["training_finished", "evaluated"])
def test_estimate_after_a_record_that_needs_the_model_is_reported(run: Path, event: str) -> None:
    records = read(run)
    place = index(records, "estimate", round=2, client=2)
    estimate = records.pop(place)
    later = place + index(records[place:], event, client=2)
    records.insert(later + 1, {**estimate, "time_s": records[later]["time_s"]})
    write(run, records)
    found = violated(run)
    assert found["lemma 3"].first == "round 2 of client 2 has no estimate"
    assert (
        found["estimates"].first
        == "the estimate of round 2 of client 2 does not follow its end, or is too late"
    )


def test_message_stats_without_a_used_message_are_reported(run: Path) -> None:
    records = read(run)
    number = records.pop(index(records, "message_used"))["message"]
    write(run, records)
    assert f"message {number}" in str(violated(run)["weights"].first)


def test_method_without_diagnostics_needs_no_estimates(tmp_path: Path) -> None:
    run = simulate(small_scenario(method="local"), tmp_path).folder
    assert run is not None
    assert all(record["event"] != "estimate" for record in read(run))
    assert violated(run) == {}
