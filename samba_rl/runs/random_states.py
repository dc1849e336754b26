"""The states of all random numbers that a run, or a system that it runs, may draw."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Generator

from samba_rl.types import State


def random_states(generator: Generator) -> State:
    """Return the state of the trials' generator and of torch's, NumPy's and Python's, which a system may use."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "trials": generator.get_state(),
        "torch": torch.get_rng_state(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, torch.tensor(words), gauss],
    }


def set_random_states(generator: Generator, state: State) -> None:
    """Restore what `random_states` returned."""
    generator.set_state(state["trials"])
    torch.set_rng_state(state["torch"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
