"""Put together a learner of your own: a learner is a row of four choices, and each choice is a value.

This one explores where the model is unsure, limits the probability of an unsafe episode, and takes natural-gradient
steps. Its exploration signal is defined here, in a few lines.

Usage:
    python examples/own_learner.py                       # about three minutes on two cores
    python examples/own_learner.py runs/quick smoke      # seconds: checks that everything works, learns little
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch import Tensor

import samba_rl
from samba_rl import GPDynamics, Learner
from samba_rl.improve.constraints import Chance
from samba_rl.improve.objectives import Cost, Information
from samba_rl.improve.updates.rules import TrustRegion
from samba_rl.learners import GPModel
from samba_rl.models.gp import Prediction
from samba_rl.models.zeta import ZETAS


@dataclass(frozen=True)
class Uncertainty:
    """ζ as the predictive standard deviation, in units of the spread of the data, summed over the outputs."""

    def predict(self, model: GPDynamics, queries: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction at queries [B, ni] and ζ of each query [B]."""
        prediction = model.predict(queries)
        return prediction, (prediction.variance.sqrt() / model.target_scale).sum(-1)


ZETAS["uncertainty"] = Uncertainty()  # its name in run folders

CAUTIOUS = Learner(
    source=GPModel(),
    objectives=(Cost(), Information(Uncertainty())),
    constraint=Chance,
    update=TrustRegion(),
)


def main(out: str = "runs/cautious", preset: str = "default") -> None:
    """Train the new row on Safe Pendulum; at most a tenth of the episodes may enter the unsafe region."""
    run = samba_rl.train("safe-pendulum", CAUTIOUS, name="cautious", preset=preset, out=out, constraint={"limit": 0.1})
    first, last = run.improvements[0], run.improvements[-1]
    print(f"weight of the cost against information: {first.lambda_pi:.2f} at first, {last.lambda_pi:.2f} at the end")
    result = run.evaluate(steps=3000)
    print(f"return {result.return_mean:.1f}")
    for limit in result.constraints:
        print(f"{limit.words}: {limit.value:.3f}, limit {limit.limit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
