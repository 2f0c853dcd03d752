"""The table of docs/understand/methods.md contains every method and the size of its messages."""

import re
from pathlib import Path

import pytest
import torch

from rdpfl_sim.learning.models import cnn
from rdpfl_sim.methods import METHODS
from rdpfl_sim.methods.base import RunInfo
from rdpfl_sim.simulation.experiment import layers_of
from tests.methods.one_client import client, send, start
from tests.support import trained

PAGE = (Path(__file__).parents[2] / "docs" / "understand" / "methods.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\d.]+) \|", PAGE, flags=re.MULTILINE))


class Anything:
    def gradient(self, w: torch.Tensor) -> torch.Tensor:
        return w


def test_table_has_a_row_for_every_method_and_the_text_a_paragraph() -> None:
    assert list(ROWS) == list(METHODS)
    assert [name for name in METHODS if f"**`{name}`**" not in PAGE] == ["local"]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "local"])
def test_bytes_of_the_table_are_those_of_a_message(name: str) -> None:
    method = METHODS[name](RunInfo(10, layers_of(cnn([3, 32, 32], 10))))
    w = torch.randn(122_570, generator=torch.Generator().manual_seed(0))
    view = client(batch=Anything())
    _, payload = send(method, start(method, w, view), trained(w, second_w=w), view)
    assert payload.size_bytes / (4 * len(w)) == pytest.approx(float(ROWS[name]), abs=0.0005)
