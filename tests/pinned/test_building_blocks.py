"""Every operation has the bits of other processors, so that a difference names its operation."""

import pytest

from tests.pinned.building_blocks import VERSION, hashes, known

KNOWN = known()

pytestmark = pytest.mark.skipif(KNOWN is None, reason=f"no hashes for torch {VERSION}")


def test_every_operation_is_portable() -> None:
    assert KNOWN is not None
    found = hashes()
    assert found.keys() == KNOWN.keys()
    assert [name for name, value in found.items() if value != KNOWN[name]] == []
