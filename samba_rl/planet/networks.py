"""Networks of the latent model: dense layers, and convolutions that encode and decode images."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Generator, Tensor, nn

PICTURE = 64
"""Width and height of an image, in pixels."""


def layers(size_in: int, hidden: int, size_out: int) -> nn.Sequential:
    """Make a dense network [..., size_in] -> [..., size_out] with one hidden layer."""
    return nn.Sequential(nn.Linear(size_in, hidden), nn.ELU(inplace=True), nn.Linear(hidden, size_out))


def picture_encoder(channels: int, size_out: int) -> nn.Sequential:
    """Make a network that encodes images [B, 3, 64, 64] as [B, size_out]."""
    sizes = [3, channels, 2 * channels, 4 * channels, 8 * channels]
    parts: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        parts += [nn.Conv2d(a, b, 4, stride=2), nn.ReLU(inplace=True)]
    # 64 -> 31 -> 14 -> 6 -> 2 pixels
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(4 * sizes[-1], size_out))


def picture_decoder(size_in: int, channels: int) -> nn.Sequential:
    """Make a network that decodes [B, size_in] to images [B, 3, 64, 64]."""
    wide = 16 * channels
    # 1 -> 5 -> 13 -> 30 -> 64 pixels
    return nn.Sequential(
        nn.Linear(size_in, wide),
        nn.Unflatten(1, (wide, 1, 1)),
        nn.ConvTranspose2d(wide, 4 * channels, 5, stride=2),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(4 * channels, 2 * channels, 5, stride=2),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(2 * channels, channels, 6, stride=2),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(channels, 3, 6, stride=2),
    )


def as_floats(pictures: Tensor) -> Tensor:
    """Scale pixels from 0..255 (uint8) to -0.5..0.5."""
    return pictures.float() / 255 - 0.5


@torch.no_grad()
def initialise(module: nn.Module, generator: Generator) -> None:
    """Draw every weight uniformly with variance 1 / fan-in, and set the biases to zero."""
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            parameter.zero_()
            continue
        # A transposed convolution stores its inputs first, and with stride 2 each output sees a quarter of the kernel.
        transposed = isinstance(module.get_submodule(name.rpartition(".")[0]), nn.ConvTranspose2d)
        inputs = parameter.shape[0] * parameter[0, 0].numel() / 4 if transposed else parameter[0].numel()
        bound = math.sqrt(3 / inputs)
        parameter.copy_((2 * torch.rand(parameter.shape, generator=generator) - 1) * bound)
