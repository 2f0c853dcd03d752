import pytest

from rdpfl_sim.randomness import Streams
from rdpfl_sim.world.compute_time import COMPUTE, ComputeTimes


@pytest.mark.parametrize(
    ("name", "options", "u", "client", "expected"),
    [
        ("constant", {"seconds": 2.0}, 0.9, 3, 2.0),
        ("uniform", {"low_s": 1.0, "high_s": 2.0}, 0.25, 3, 1.25),
        ("lognormal", {"median_s": 3.0, "sigma": 1.0}, 0.5, 3, 3.0),
        ("stragglers", {"seconds": 1.0, "slowdown": 8.0, "every": 5}, 0.5, 5, 8.0),
        ("stragglers", {"seconds": 1.0, "slowdown": 8.0, "every": 5}, 0.5, 4, 1.0),
        ("list", {"seconds": [1.0, 7.0]}, 0.5, 1, 7.0),
    ],
)
def test_compute_time_of_a_client(name: str, options: dict, u: float, client: int, expected: float) -> None:
    assert COMPUTE[name](u, client, **options) == pytest.approx(expected)


def test_base_time_is_the_time_per_unit_times_the_units_of_the_client() -> None:
    times = ComputeTimes(lambda u, client: 2.0 + client, [1, 10], jitter=0.0, streams=Streams(1))
    assert times.base_s == [2.0, 30.0]
    assert [times.duration_s(1, round_) for round_ in (1, 2)] == [30.0, 30.0]


def test_jitter_varies_the_rounds_of_a_client_around_its_base_time() -> None:
    times = ComputeTimes(lambda u, client: 4.0, [1, 1], jitter=0.2, streams=Streams(1))
    durations = [times.duration_s(0, round_) for round_ in range(1, 1000)]
    assert len(set(durations)) == len(durations)
    assert sorted(durations)[500] == pytest.approx(4.0, abs=0.1)
    assert times.duration_s(1, 1) != times.duration_s(0, 1), "clients do not share a stream"
