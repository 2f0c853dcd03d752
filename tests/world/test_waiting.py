import pytest

from rdpfl_sim.world.staleness import STALENESS
from rdpfl_sim.world.waiting import WAITS


@pytest.mark.parametrize(
    ("wait", "num_neighbours", "expected"),
    [
        (WAITS["all"](), 7, 7),
        (WAITS["deadline"](seconds=2.0), 3, 3),
        (WAITS["none"](), 5, 0),
        (WAITS["quorum"](fraction=0.5), 4, 2),
        (WAITS["quorum"](fraction=0.5), 5, 3),
        (WAITS["quorum"](fraction=0.3), 10, 3),
        (WAITS["quorum"](fraction=0.01), 4, 1),
        (WAITS["quorum"](fraction=0.5), 0, 0),
    ],
)
def test_a_fraction_of_the_neighbours_is_rounded_up(wait, num_neighbours: int, expected: int) -> None:
    assert wait.num_needed(num_neighbours) == expected


def test_only_deadlines_and_timeouts_end_a_wait() -> None:
    assert WAITS["all"]().timeout_s is None
    assert WAITS["all"](timeout_s=3.0).timeout_s == 3.0
    assert WAITS["deadline"](seconds=2.0).timeout_s == 2.0


def test_weights_of_stale_messages() -> None:
    decay = STALENESS["decay"](max_age=4, factor=0.5)
    assert [decay.weight(age) for age in (-2, 0, 1, 3)] == [1.0, 1.0, 0.5, 0.125]
    assert decay.max_age == 4
    assert STALENESS["keep"](max_age=3).weight(3) == 1.0
    assert STALENESS["drop"]().max_age == 0
