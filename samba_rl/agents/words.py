"""Rows of learners as plain words, for files and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from samba_rl.errors import UserError
from samba_rl.improve.constraints import KINDS, Constraint
from samba_rl.improve.objectives import Cost, Information, Objective, Safety
from samba_rl.learners import NONE, SOURCES, UPDATES, Learner
from samba_rl.models.zeta import ZETAS, Zeta


def to_words(learner: Learner) -> dict[str, Any]:
    """Return a row as plain words."""
    return {
        "traces": learner.source.label,
        "objectives": [one.label for one in learner.objectives],
        "zeta": NONE if learner.zeta is None else _name_of(learner.zeta),
        "constraint": NONE if learner.constraint is None else learner.constraint.label,
        "update": learner.update.label,
    }


def from_words(value: Any, where: str) -> Learner:
    """Make the row that `to_words` described; `where` names it in errors."""
    if not isinstance(value, dict):
        raise UserError(f"{where} is {value!r}; it must be a group of named values")
    zeta = _one_of(value.get("zeta", NONE), {**ZETAS, NONE: None}, f"{where}.zeta")
    words = value.get("objectives", [])
    if not isinstance(words, list):
        raise UserError(f"{where}.objectives is {words!r}; it must be a list")
    objectives: list[Objective] = []
    for i, word in enumerate(words):
        known = {"cost": Cost(), "safety": Safety(), "information": None if zeta is None else Information(zeta)}
        found = _one_of(word, known, f"{where}.objectives[{i}]")
        if found is None:
            raise UserError(f"{where}.zeta is 'none', but the learner seeks information; name a ζ")
        objectives.append(found)
    return Learner(
        source=_one_of(value.get("traces"), SOURCES, f"{where}.traces"),
        objectives=tuple(objectives),
        constraint=_kind(value.get("constraint"), f"{where}.constraint"),
        update=_one_of(value.get("update"), UPDATES, f"{where}.update"),
    )


def with_words(learner: Learner, words: Mapping[str, str]) -> Learner:
    """Return a row with some of the choices of `to_words` replaced: zeta, constraint, update."""
    changes: dict[str, Any] = {}
    if "zeta" in words:
        learner = learner.with_zeta(_one_of(words["zeta"], {**ZETAS, NONE: None}, "zeta"))
    if "constraint" in words:
        changes["constraint"] = _one_of(words["constraint"], {**KINDS, NONE: None}, "constraint.kind")
    if "update" in words:
        changes["update"] = _one_of(words["update"], UPDATES, "rule")
    return replace(learner, **changes) if changes else learner


def _name_of(zeta: Zeta) -> str:
    for word, one in ZETAS.items():
        if one == zeta:
            return word
    raise UserError(f"{zeta} has no name to be stored under; give it one: samba_rl.models.zeta.ZETAS['name'] = ...")


def _kind(word: Any, where: str) -> type[Constraint] | None:
    try:
        found: type[Constraint] | None = _one_of(word, {**KINDS, NONE: None}, where)
    except UserError as error:
        raise UserError(
            f"{error}. A constraint of your own is known once the file of the system is loaded (task), if that file "
            "decorates it with samba_rl.register_constraint"
        ) from error
    return found


def _one_of(word: Any, known: dict[str, Any], where: str) -> Any:
    """Return the value that a word stands for."""
    if not isinstance(word, str) or word not in known:
        raise UserError(f"{where} is {word!r}; it must be one of {', '.join(known)}")
    return known[word]
