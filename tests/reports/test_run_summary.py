from copy import deepcopy
from typing import Any

from rdpfl_sim.reports.run_summary import summary_table
from tests.reports.rendering import rendered

SUMMARY: dict[str, Any] = {
    "name": "ring_30pct",
    "status": "finished",
    "seed": 1,
    "rounds": 60,
    "num_clients": 10,
    "byzantine": [1, 4, 7],
    "method": "rdpfl",
    "attack": "sign_flip",
    "topology": "ring",
    "moment": "trained",
    "updated": {"accuracy": {"honest": {"personal": {"mean": 0.8123}}}},
    "accuracy": {
        "honest": {
            "personal": {"mean": 0.8321, "worst": 0.7714, "p10": 0.7801, "spread": 0.0413},
            "global": {"mean": 0.5123, "worst": 0.4, "p10": 0.41, "spread": 0.1},
        },
        "all": {"personal": {"mean": 0.79, "worst": 0.65, "p10": 0.7, "spread": 0.1}, "global": None},
    },
    "messages": {
        "sent": 1200,
        "delivered": 1100,
        "lost": 97,
        "in_flight": 3,
        "used": 1000,
        "stale": 80,
        "duplicate": 0,
        "rejected": 5,
        "left_over": 15,
    },
    "neighbourhood": {
        "byzantine_fraction": {"0": 0.5},
        "outside_threat_model": [0, 2],
        "isolated": [],
        "num_components": 1,
    },
    "telemetry": {
        "rounds": {"all": {"clipped": 0.12, "bounded": 0.0}},
        "messages_from": {"byzantine": {"relative_weight": 0.25, "ignored": 0.5}},
    },
    "num_faults": 4,
    "rounds_done": [60, 60],
    "simulated_s": 512.3,
    "wall": {"seconds": 8.41, "device": "cuda:0", "trained_on": "NVIDIA A100"},
    "digest": "0123456789abcdef0123456789abcdef",
}


def row(lines: list[str], label: str) -> list[str]:
    return next(line.split() for line in lines if line.split()[:1] == [label])


def test_table_compares_honest_clients_with_all() -> None:
    lines = rendered(summary_table(SUMMARY))
    assert row(lines, "honest") == ["honest", "(7)", "0.832", "0.771", "0.780", "0.041", "0.512"]
    assert row(lines, "all") == ["all", "(10)", "0.790", "0.650", "0.700", "0.100", "-"]


def test_facts_follow_the_table() -> None:
    lines = rendered(summary_table(SUMMARY))
    assert lines[:2] == [
        "ring_30pct, seed 1: finished",
        "rdpfl, attack sign_flip, topology ring, 10 clients, 3 Byzantine, 60 rounds",
    ]
    assert lines[-10:] == [
        "measured    after local training; after the exchange, the honest mean is 0.812",
        "messages    1,200 sent: 1,100 delivered, 97 lost, 3 in flight",
        "            1,100 delivered: 1,000 used, 80 stale, 5 rejected, 15 left over",
        "neighbours  at least half are Byzantine: honest clients 0, 2",
        "estimator   clipped in 12.0% of honest rounds, bounded by G_d in 0.0%",
        "influence   Byzantine messages have 0.25 times an equal share; 50% are ignored",
        "faults      4 changes to clients or the network",
        "time        8.5 min simulated, 8.4 s on the wall clock",
        "device      NVIDIA A100",
        "digest      0123456789abcdef",
    ]


def test_title_of_an_incomplete_run_has_its_number_of_rounds() -> None:
    summary = SUMMARY | {"status": "out of time", "rounds_done": [12, 40]}
    title = rendered(summary_table(summary))[0]
    assert title == "ring_30pct, seed 1: out of time (12 to 40 of 60 rounds done)"
    summary = SUMMARY | {"status": "interrupted", "rounds_done": [12, 12]}
    assert rendered(summary_table(summary))[0] == "ring_30pct, seed 1: interrupted (12 of 60 rounds done)"


def test_missing_values_are_dashes_and_have_no_line() -> None:
    summary = deepcopy(SUMMARY) | {"num_faults": 0, "wall": SUMMARY["wall"] | {"trained_on": "cpu"}}
    summary["telemetry"]["rounds"]["all"] = {"clipped": None, "bounded": None}
    summary["telemetry"]["messages_from"]["byzantine"] = {"relative_weight": None, "ignored": None}
    summary["accuracy"]["honest"] = {"personal": None, "global": None}
    summary["accuracy"]["all"]["personal"] = {"mean": float("nan"), "worst": None, "p10": 0.5, "spread": 0.0}
    summary["neighbourhood"] |= {"outside_threat_model": [], "isolated": list(range(12))}
    lines = rendered(summary_table(summary))
    assert row(lines, "honest") == ["honest", "(7)", "-", "-", "-", "-", "-"]
    assert row(lines, "all") == ["all", "(10)", "-", "-", "0.500", "0.000", "-"]
    labels = [line.split()[0] for line in lines[-6:]]
    assert labels == ["messages", "1,100", "isolated", "time", "device", "digest"]
    assert lines[-4].endswith("0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more")


def test_large_run_fits_eighty_columns_without_losing_a_digit() -> None:
    summary = deepcopy(SUMMARY) | {"num_clients": 5000, "byzantine": list(range(1500)), "name": "n" * 100}
    summary["messages"] = dict.fromkeys(SUMMARY["messages"], 1_234_567_890)
    lines = rendered(summary_table(summary))
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines).count("1,234,567,890") == len(SUMMARY["messages"]) + 1  # delivered is shown twice
    assert "\n".join(lines).count("n" * 20) >= 5
    assert row(lines, "honest")[:2] == ["honest", "(3,500)"]
