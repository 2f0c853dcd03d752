import pytest
import torch

from rdpfl_sim.methods.base import Payload


def test_dense_payload_is_as_large_as_its_vector() -> None:
    payload = Payload(torch.zeros(10))
    assert payload.size_bytes == 40
    assert payload.form == (torch.Size([10]), torch.float32)
    assert payload.mask is None


@pytest.mark.parametrize(("num", "size"), [(0, 2), (4, 18), (10, 42)])
def test_masked_payload_is_the_entries_under_the_mask_and_a_bit_for_every_entry(num: int, size: int) -> None:
    assert Payload(torch.ones(10), torch.arange(10) < num).size_bytes == size  # 4 num + ceil(10 / 8)


def test_form_distinguishes_masks_by_length_type_and_presence() -> None:
    mask = torch.ones(3, dtype=torch.bool)
    forms = [
        Payload(torch.zeros(3), m).form
        for m in (mask, mask[:2], mask.unsqueeze(0), mask.float(), mask.to(torch.uint8), None)
    ]
    assert len(set(forms)) == len(forms)
    assert Payload(torch.zeros(3), torch.zeros(3, dtype=torch.bool)).form == forms[0]


@pytest.mark.parametrize("place", [0, 2])
def test_payload_with_a_nan_is_not_finite_under_the_mask_or_outside(place: int) -> None:
    vector = torch.zeros(3)
    vector[place] = torch.nan
    assert not Payload(vector, torch.tensor([True, True, False])).is_finite


def test_payload_of_the_largest_numbers_is_finite() -> None:
    assert Payload(torch.full((5,), 3e38)).is_finite
