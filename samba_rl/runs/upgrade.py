"""Translation of the configuration files that earlier versions wrote."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from samba_rl.agents.words import from_words
from samba_rl.learners import NONE, LatentModel
from samba_rl.presets import make_settings

_FORMAT_1 = (
    "real_samples", "episodes", "traces", "rule", "zeta", "feasibility_iterations", "first", "real", "constraint",
    "more_constraints", "multiplier", "imagination", "weights", "policy", "advantage", "update", "trust_region",
    "model", "latent", "planner",
)  # fmt: skip
"""Fields of the settings in format 1: one class had those of all families, and the learner's choices too."""


def upgraded(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a configuration in the current format, which keeps the learner's row apart from its settings."""
    old = config.get("settings")
    if config.get("format", 1) != 1 or "row" in config or not isinstance(old, dict):
        return config
    row = _row(old)
    family = type(make_settings("", from_words(row, f"{where}: settings")))
    kept = {part.name for part in fields(family)}
    settings = {name: value for name, value in old.items() if name in kept or name not in _FORMAT_1}
    if isinstance(settings.get("constraint"), dict):
        settings["constraint"] = {name: value for name, value in settings["constraint"].items() if name != "kind"}
    return {**config, "row": row, "settings": settings}


def _row(old: dict[str, Any]) -> dict[str, Any]:
    """Return the learner's row, in words, that settings of format 1 describe."""
    traces, zeta = old.get("traces", "model"), old.get("zeta", "loo")
    latent, constraint = old.get("latent"), old.get("constraint")
    plans = traces == LatentModel.label
    shaped = plans and isinstance(latent, dict) and latent.get("safety_weight", 0) != 0
    return {
        "traces": traces,
        "objectives": ["cost", *["safety"] * shaped, *["information"] * (zeta != NONE)],
        "zeta": zeta,
        "constraint": constraint.get("kind", "cvar") if isinstance(constraint, dict) else "cvar",
        "update": NONE if plans else old.get("rule", "proximal"),
    }
