"""The ranges of all numeric settings, written out a second time: what the package accepts is compared with them."""

from __future__ import annotations

import math

Range = tuple[float, bool, float, bool]
"""Lower end, whether it belongs to the range, upper end, whether it belongs to the range."""


def _of(low: float, high: float, *, without: str = "") -> Range:
    """A range from `low` to `high`, `without` its "low" or "high" end."""
    return low, without != "low", high, without != "high"


COUNT, WIDTH = _of(1, 10**9), _of(1, 10**4)
POSITIVE_SHARE, SHARE = _of(0, 1, without="low"), _of(0, 1)
BOUND = _of(1e-12, 1e12)

COMMON = {
    "real_samples": COUNT,
    "episodes": COUNT,
    "first.samples": _of(0, 10**9),
    "first.hold": COUNT,
    "first.amplitude": POSITIVE_SHARE,
    "first.ramp": _of(0, 10**9),
    "first.stop": _of(0, 1e12),
    "first.data_dt": _of(0, 10**6, without="low"),
    "real.faults_in_a_row": COUNT,
    "real.timeout": _of(0, 10**6, without="low"),
}
LIMIT = {
    "limit": _of(0, 1e12),
    "alpha": _of(0, 1, without="high"),
    "nu_floor": SHARE,
    "nu_ceiling": _of(0, math.inf, without="low"),
    "gamma": POSITIVE_SHARE,
}
POLICY_GRADIENT = {
    **COMMON,
    **{f"constraint.{name}": each for name, each in LIMIT.items()},
    **{f"more_constraints.0.{name}": each for name, each in LIMIT.items()},
    "multiplier.initial": _of(0, 1e9),
    "multiplier.factor": _of(1, 10, without="low"),
    "multiplier.steepness": _of(0, 100),
    "multiplier.reaction": _of(0, 100),
    "multiplier.tolerance": _of(1, 100),
    "multiplier.rate": _of(0, 1e9),
    "multiplier.floor": _of(0, 1e9),
    "multiplier.cap": _of(0, math.inf, without="low"),
    "multiplier.margin": _of(0, 1, without="high"),
    "multiplier.slack": _of(0, 100),
    "policy.hidden.0": WIDTH,
    "policy.hidden.1": WIDTH,
    "policy.std": _of(1e-6, 100),
    "policy.std_floor_first": _of(0, 100),
    "policy.std_floor": _of(0, 100),
    "policy.mean_bound": _of(1e-6, 1e6),
    "policy.experts": _of(1, 100),
    "policy.apart": _of(0, 10**9),
    "policy.gate_hidden.0": WIDTH,
    "policy.gate_hidden.1": WIDTH,
    "policy.gate_rate": POSITIVE_SHARE,
    "policy.gate_passes": COUNT,
    "advantage.gamma": SHARE,
    "advantage.lam": SHARE,
    "advantage.hidden.0": WIDTH,
    "advantage.hidden.1": WIDTH,
    "update.epochs": _of(1, 10**5),
    "update.minibatch": COUNT,
    "update.policy_rate": POSITIVE_SHARE,
    "update.kl_target": _of(0, 10, without="low"),
    "update.critic_rate": POSITIVE_SHARE,
    "update.clip": _of(0, 10, without="low"),
    "update.kl_stop": _of(0, 1e9, without="low"),
    "update.max_gradient_norm": _of(0, math.inf, without="low"),
    "update.entropy": _of(-100, 100),
    "trust_region.kl": _of(0, 10, without="low"),
    "trust_region.damping": _of(0, 1e6),
    "trust_region.cg_iterations": _of(1, 10**4),
    "trust_region.backtracks": _of(0, 1000),
    "trust_region.shrink": (0.0, False, 1.0, False),
    "trust_region.fisher_samples": COUNT,
}
MODEL_BASED = {
    **POLICY_GRADIENT,
    "feasibility_iterations": _of(0, 10**6),
    "imagination.iterations": COUNT,
    "imagination.last_iterations": COUNT,
    "imagination.trajectories": _of(2, 10**6),
    "imagination.candidates": _of(1, 1000),
    "imagination.judged": _of(2, 10**6),
    "imagination.starts": _of(0, 1000),
    "imagination.start_iterations": COUNT,
    "imagination.most": _of(1, 1000),
    "weights.least_cost_weight": SHARE,
    "weights.explore": _of(0, 10**4),
    "weights.worth": _of(-1e9, 1e9),
    "model.sparse_above": _of(0, 10**9),
    "model.inducing": COUNT,
    "model.latent": _of(1, 100),
    "model.fit.iterations": COUNT,
    "model.fit.points": _of(2, 10**9),
    "model.fit.lengthscale_bounds.0": BOUND,
    "model.fit.lengthscale_bounds.1": BOUND,
    "model.fit.signal_bounds.0": BOUND,
    "model.fit.signal_bounds.1": BOUND,
    "model.fit.noise_bounds.0": BOUND,
    "model.fit.noise_bounds.1": BOUND,
    "model.fit.max_snr": _of(1.1, math.inf),
    "model.fit.lengthscale_prior.0": _of(-100, 100),
    "model.fit.lengthscale_prior.1": _of(1e-6, math.inf),
    "model.fit.tolerance": POSITIVE_SHARE,
}
LATENT = {
    **COMMON,
    "latent.deterministic": WIDTH,
    "latent.stochastic": WIDTH,
    "latent.hidden": WIDTH,
    "latent.channels": _of(1, 1000),
    "latent.free_nats": _of(0, 1e6),
    "latent.overshooting": COUNT,
    "latent.updates": COUNT,
    "latent.first_updates": COUNT,
    "latent.batch": _of(1, 10**6),
    "latent.length": COUNT,
    "latent.rate": POSITIVE_SHARE,
    "latent.last_rate": _of(0, 100, without="low"),
    "latent.max_gradient_norm": _of(0, math.inf, without="low"),
    "latent.safety_weight": _of(0, 1e6),
    "planner.candidates": _of(2, 10**6),
    "planner.elites": COUNT,
    "planner.iterations": _of(1, 1000),
    "planner.horizon": _of(1, 10**4),
    "planner.std": _of(0, 100, without="low"),
    "planner.noise": _of(0, 100),
}
FAMILIES = {"ModelBasedSettings": MODEL_BASED, "ModelFreeSettings": POLICY_GRADIENT, "PlanetSettings": LATENT}
"""Ranges of each family of settings, by the path of the setting."""


def lies_in(value: float, interval: Range) -> bool:
    """Whether a number lies in a range."""
    low, with_low, high, with_high = interval
    return low < value < high or (value == low and with_low) or (value == high and with_high)
