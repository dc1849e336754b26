"""Checks of the cost and the safety cost of an environment, measured or computed by a user's function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.gym.findings import Findings

SIGN_STEPS = 20
"""Least number of steps for a comparison of a cost with the reward."""
OPPOSITE, DOUBTFUL = -0.9, -0.3
"""Rank correlations of a cost with the negative reward: at most the first is a wrong sign, the second may be."""


def note_measured(*, cost: bool, safety: bool, findings: Findings) -> None:
    """Say which learners can use a system whose cost or safety cost is measured."""
    measured = " and the ".join(what for what, is_so in (("cost", cost), ("safety cost", safety)) if is_so)
    if not measured:
        return
    flags = " and ".join(flag for flag, is_so in (("cost=", cost), ("safety=", safety)) if is_so)
    findings.note(
        "learners",
        f"the {measured} {'are' if cost and safety else 'is'} measured, so learners on a GP model (samba, sppilco, "
        f"ppilco) cannot imagine {'them' if cost and safety else 'it'}: give {flags} as functions of states and "
        "actions. Learners on real trials (--learner ppo, sppo, trpo, strpo, cpo) and planet can be used as it is",
    )


def check_sign(costs: Tensor, rewards: list[float], findings: Findings) -> None:
    """Compare a user's costs [N] with the negative rewards of the same steps: they should rise and fall together."""
    given, paid = costs.double().numpy(), -np.array(rewards)
    if len(paid) < SIGN_STEPS or np.ptp(given) == 0 or np.ptp(paid) == 0:
        return
    both = float(np.corrcoef(_ranks(given), _ranks(paid))[0, 1])
    if both <= OPPOSITE:
        findings.problem(
            "cost",
            f"the cost function falls where the negative reward rises (rank correlation {both:.2f} over "
            f"{len(paid)} random steps): it has the wrong sign. A cost is what should be small; return the negative "
            "of a reward",
        )
    elif both <= DOUBTFUL:
        findings.note(
            "cost",
            f"the cost function often falls where the negative reward rises (rank correlation {both:.2f} over "
            f"{len(paid)} random steps); check that it is small where the system should be",
        )


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of values [N]; equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return ranks[place.reshape(values.shape)]


def check_measured_cost(rewards: list[float], findings: Findings) -> None:
    """Report the range of the cost, the negative reward."""
    low, high = min(rewards), max(rewards)
    findings.fine("cost", f"measured: the negative reward, seen from {-high:.4g} to {-low:.4g}")
    if high > 0:
        findings.note(
            "cost", f"rewards reach {high:.4g}, so the cost can be negative; learning works, limits are not affected"
        )


def check_measured_safety(costs: list[object], info_keys: set[str], findings: Findings) -> None:
    """Check the safety costs from `info["cost"]`, with None for each step that had none."""
    missing = sum(value is None for value in costs)
    if missing == len(costs):
        keys = ", ".join(sorted(info_keys)) or "nothing"
        findings.problem(
            "safety",
            f'no safety cost: info["cost"] is missing (info has: {keys}) and step does not return six values with the '
            "cost third. Give a function of (states, actions) with --safety module:function, or have the environment "
            'set info["cost"]',
        )
        return
    if missing:
        findings.problem("safety", f'info["cost"] is missing in {missing} of {len(costs)} steps; it must be in all')
        return
    try:
        values = np.array([np.asarray(value, dtype=np.float64).ravel() for value in costs])
    except (TypeError, ValueError):
        findings.problem("safety", f'info["cost"] is {costs[0]!r}; it must be a number')
        return
    _check_safety_values(values, 'info["cost"]', findings, measured=True)


def check_function(
    what: str, function: Callable[[Tensor, Tensor], Tensor], x: Tensor, u: Tensor, findings: Findings
) -> None:
    """Check a user's function on states [N, nx] and actions [N, nu]: shape, finite values, independent rows."""
    before = x.clone()
    try:
        whole = function(x, u)
        rows = torch.cat([function(x[i : i + 1], u[i : i + 1]) for i in range(len(x))])
    except UserError as error:
        findings.problem(what, str(error))
        return
    except Exception as error:
        findings.problem(what, f"the {what} function raised {type(error).__name__} on a batch of {len(x)}: {error}")
        return
    if not torch.equal(x, before):
        findings.problem(what, f"the {what} function changed the states that it was given; it must not modify them")
        return
    if not torch.allclose(whole.double(), rows.double(), rtol=1e-9, atol=1e-12, equal_nan=True):
        worst = int((whole - rows).abs().reshape(len(x), -1).amax(1).argmax())
        findings.problem(
            what,
            f"the {what} function does not work on batches: row {worst} of {len(x)} gives {whole[worst].tolist()} in "
            f"the batch and {rows[worst].tolist()} alone. Index columns as x[..., i] and never sum over rows",
        )
        return
    values = whole.double().numpy().reshape(len(x), -1)
    if what == "safety":
        _check_safety_values(values, "the safety function", findings, measured=False)
    elif what != "cost":
        findings.fine(what, f"the {what} function, True in {values.any(1).mean():.0%} of steps")
    elif np.isfinite(values).all():
        findings.fine(what, f"the cost function, seen from {values.min():.4g} to {values.max():.4g}")
    else:
        bad = int((~np.isfinite(values)).sum())
        findings.problem(what, f"the cost function is NaN or infinite in {bad} of {values.size} states")


def _check_safety_values(values: NDArray[np.float64], what: str, findings: Findings, *, measured: bool) -> None:
    """Check that safety costs are finite and not negative."""
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        findings.problem("safety", f"{what} is NaN or infinite in {bad} of {values.size} places")
        return
    if (values < 0).any():
        findings.problem(
            "safety", f"{what} goes down to {values.min():.4g}; a safety cost is zero in safe states and never negative"
        )
        return
    findings.fine(
        "safety",
        f"{what}, seen from {values.min():.4g} to {values.max():.4g}, positive in {(values > 0).mean():.0%} of values",
    )
    if values.max() <= 0 and measured:
        findings.note(
            "safety",
            f"{what} was never positive; learners on a model know of no danger until a trial measures some. A function "
            "with --safety module:function would tell them before",
        )
    elif values.max() <= 0:
        findings.note(
            "safety",
            f"{what} is never positive in {len(values)} random steps, so nothing shows that it ever is; try it on a "
            "state that you know to be unsafe",
        )
    if values.max() > 1:
        findings.note(
            "safety", f"{what} exceeds 1; that works, but limits are then in its units, not in [0, 1] per step"
        )
