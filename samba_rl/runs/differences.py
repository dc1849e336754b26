"""What sets a run apart from its preset: the settings and the choices of its row that differ."""

from __future__ import annotations

from typing import Any

from samba_rl.agents.words import from_words, to_words
from samba_rl.data.plain import to_plain
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from samba_rl.presets import find_row, make_settings

FLAGS = {"constraint": "constraint.kind", "update": "rule", "traces": "traces", "zeta": "zeta"}
"""Names of the choices of a row on the command line."""


def differences(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the settings of a run's configuration that differ from its preset's, as "constraint.limit 1.5"."""
    words, learner = config.get("row"), str(config.get("learner"))
    try:
        row = from_words(words, "row")
        usual = to_plain(make_settings(str(config.get("task")), row, str(config.get("preset"))))
    except UserError:
        # A row or a preset of the user's own: there is nothing to compare with.
        return ()
    standard = to_words(find_row(learner, str(config.get("preset"))) if learner in LEARNERS else row)
    choices = {FLAGS[key]: value for key, value in to_words(row).items() if key in FLAGS and value != standard[key]}
    flat, before = _flat(config.get("settings"), ""), _flat(usual, "")
    changed = {name: value for name, value in flat.items() if name not in before or before[name] != value}
    return tuple(f"{name} {_in_words(value)}" for name, value in {**choices, **changed}.items())


def _flat(value: Any, path: str) -> dict[str, Any]:
    """Return the values of nested groups by their flags."""
    if isinstance(value, dict):
        parts = ((f"{path}.{key}" if path else str(key), part) for key, part in value.items())
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        parts = ((f"{path}.{i}", part) for i, part in enumerate(value))
    else:
        return {path: value}
    return {name: each for where, part in parts for name, each in _flat(part, where).items()}


def _in_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
