import pytest

from rdpfl_sim.world.network.latency import LATENCIES


@pytest.mark.parametrize(
    ("name", "options", "u", "expected"),
    [
        ("constant", {"seconds": 0.3}, 0.9, 0.3),
        ("uniform", {"low_s": 1.0, "high_s": 3.0}, 0.25, 1.5),
        ("exponential", {"mean_s": 2.0, "minimum_s": 1.0}, 0.5, 1.0 + 2.0 * 0.6931471805599453),
        ("lognormal", {"median_s": 2.0, "sigma": 1.0}, 0.5, 2.0),
        ("lognormal", {"median_s": 1.0, "sigma": 1.0}, 0.8413447460685429, 2.718281828459045),
        ("pareto", {"minimum_s": 1.0, "shape": 2.0}, 0.75, 2.0),
    ],
)
def test_a_latency_is_its_quantile_function(name: str, options: dict, u: float, expected: float) -> None:
    assert LATENCIES[name](u, **options) == pytest.approx(expected)
