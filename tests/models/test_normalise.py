import torch

from samba_rl.models.normalise import Normaliser


def test_columns_are_standardised_and_constant_ones_only_shifted() -> None:
    values = torch.tensor([[1.0, 5.0], [3.0, 5.0]]).double()
    normaliser = Normaliser.of(values)
    assert normaliser(values).tolist() == [[-1, 0], [1, 0]]
