import torch

from samba_rl.models.normalise import Normaliser, Trend


def test_columns_are_standardised_and_constant_ones_only_shifted() -> None:
    values = torch.tensor([[1.0, 5.0], [3.0, 5.0]]).double()
    normaliser = Normaliser.of(values)
    assert normaliser(values).tolist() == [[-1, 0], [1, 0]]


def test_a_linear_trend_leaves_what_no_line_explains() -> None:
    # Over the four corners of a square, x y is orthogonal to every line.
    x, y = torch.tensor([[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]]).double()
    inputs = torch.stack([x, y], dim=1)
    targets = torch.stack([3 + 2 * x - y + 0.5 * x * y, 7 + 4 * x], dim=1)
    trend = Trend.of(inputs, targets, linear=1)
    assert torch.allclose(trend.slope, torch.tensor([[2.0, 0.0], [-1.0, 0.0]]).double(), atol=1e-5)
    assert torch.allclose(trend(inputs, targets), torch.stack([x * y, x], dim=1), atol=1e-5)
    assert torch.allclose(trend.scale, torch.tensor([0.5, 4.0]).double(), atol=1e-5)
    assert torch.allclose(trend.restored(inputs, trend(inputs, targets)), targets, rtol=1e-14)


def test_a_constant_trend_is_the_normaliser_to_the_bit() -> None:
    inputs, targets = torch.randn(2, 20, 3, generator=torch.Generator().manual_seed(0)).double()
    trend, plain = Trend.of(inputs, targets, linear=0), Normaliser.of(targets)
    assert torch.equal(trend(inputs, targets), plain(targets))
    assert torch.equal(trend.restored(inputs, targets), plain.restored(targets))


def test_slopes_that_the_data_do_not_determine_stay_near_zero() -> None:
    inputs = torch.stack([torch.arange(5.0) - 2, torch.zeros(5)], dim=1).double()
    assert Trend.of(inputs, inputs[:, :1] * 3, linear=1).slope[1].item() == 0
