"""Settings without effect: which ones a learner does not use, and why. A user who sets one of them is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias

from samba_rl.errors import UserError
from samba_rl.improve.constraints import KINDS, Chance, Constraint, CVaR
from samba_rl.improve.updates.rules import Proximal
from samba_rl.learners import Learner

if TYPE_CHECKING:
    from samba_rl.agents.first import FirstSettings
    from samba_rl.agents.settings import ModelBasedSettings, PolicyGradientSettings, Settings

Reasons: TypeAlias = dict[str, str]
"""Why settings, or whole groups of them, have no effect, by their paths."""

_OWN_TRIALS = "the learner has no model that earlier data could teach; it learns from its own trials"
ADAPTIVE = ("factor", "steepness", "tolerance")
DUAL_ASCENT = ("rate",)
POLICY_STEPS = ("policy_rate", "kl_target", "kl_stop", "standardise", "entropy")


def refuse_unused(settings: Settings, learner: Learner, given: Iterable[str]) -> None:
    """Raise a `UserError` if a setting that the user gave, named by its path, has no effect with this learner."""
    unused = settings.unused(learner)
    for path in given:
        why = next((why for name, why in unused.items() if path == name or path.startswith(f"{name}.")), None)
        if why is not None:
            raise UserError(f"{path} has no effect: {why}. Leave it out")


def paths_of(changes: object, path: str = "") -> Iterator[str]:
    """Yield the paths of the settings that nested dicts and lists of changes give."""
    if isinstance(changes, Mapping):
        for name, value in changes.items():
            yield from paths_of(value, f"{path}.{name}" if path else str(name))
    elif isinstance(changes, list | tuple):
        for i, value in enumerate(changes):
            yield from paths_of(value, f"{path}.{i}")
    else:
        yield path


def unused_at_first(first: FirstSettings) -> Reasons:
    """Return the settings of the first trials without effect."""
    return {"first.hold": "first.how is 'uniform', which draws every action afresh"} if first.how == "uniform" else {}


def unused_in_improving(learner: Learner, settings: PolicyGradientSettings) -> Reasons:
    """Return the settings without effect on how a policy is improved by its gradient."""
    own = {} if learner.source.predicts else dict.fromkeys(("data", "first.data"), _OWN_TRIALS)
    return {
        **unused_at_first(settings.first),
        **own,
        **_of_limits(learner, settings),
        **_of_multipliers(learner, settings),
        **_of_updates(learner, settings),
    }


def unused_on_a_model(learner: Learner, settings: ModelBasedSettings) -> Reasons:
    """Return the settings without effect on the model and on what it imagines."""
    found: Reasons = {}
    if not _is_limited(learner, settings):
        found["feasibility_iterations"] = "the learner has no limit, whose least value could be searched for"
    if learner.zeta is None:
        found["weights"] = "the learner seeks no information (its ζ is 'none'), so the cost is weighed against nothing"
    if not settings.imagination.starts:
        found["imagination.start_iterations"] = "imagination.starts is 0"
    if settings.model.outputs == "independent":
        found["model.latent"] = "model.outputs is 'independent', which mixes no latent functions"
    else:
        why = "model.outputs is 'correlated', a model without inducing points"
        found |= dict.fromkeys(("model.sparse_above", "model.inducing"), why)
    return found


def _is_limited(learner: Learner, settings: PolicyGradientSettings) -> bool:
    return learner.constraint is not None or bool(settings.more_constraints)


def _of_limits(learner: Learner, settings: PolicyGradientSettings) -> Reasons:
    found: Reasons = {}
    for i, one in enumerate(settings.more_constraints):
        found |= _of_kind(KINDS[one.kind], f"more_constraints.{i}.")
        if not issubclass(KINDS[one.kind], CVaR):
            found[f"more_constraints.{i}.alpha"] = "the limit is not on CVaR, which alone has a level α"
    if learner.constraint is not None:
        return found | _of_kind(learner.constraint, "constraint.")
    # CVaR is reported at this level for learners without a limit too.
    names = (f"constraint.{name}" for name in ("limit", "per", "nu_floor", "gamma", "of"))
    return found | dict.fromkeys(names, "the learner has no limit; choose a kind of limit, or a learner that has one")


def _of_kind(kind: type[Constraint], path: str) -> Reasons:
    found: Reasons = {}
    if not issubclass(kind, CVaR):
        found[f"{path}nu_floor"] = "the limit is not on CVaR, which alone has a ν"
    if issubclass(kind, Chance):
        found[f"{path}gamma"] = "the limit is on a probability, which has no discount"
    return found


def _of_multipliers(learner: Learner, settings: PolicyGradientSettings) -> Reasons:
    names: Iterable[str]
    if not _is_limited(learner, settings):
        # multiplier.excess also decides on the unit of the cost, which matters without a limit too.
        names = (part.name for part in fields(settings.multiplier) if part.name != "excess")
        why = "the learner has no limit, and so no multiplier"
        return {**dict.fromkeys((f"multiplier.{name}" for name in names), why), "advantage.tail_critic": why}
    found: Reasons = {}
    if not settings.feasibility:
        found["multiplier.slack"] = "it is never found out whether the limit can be met: that takes a search on a model"
    if learner.update.own_dual:
        names = ("schedule", "initial", "reaction", "floor", *ADAPTIVE, *DUAL_ASCENT)
        why = f"the update '{learner.update.label}' finds λ by itself"
    else:
        schedule = settings.multiplier.schedule
        names = ADAPTIVE if schedule == "dual-ascent" else DUAL_ASCENT
        why = f"multiplier.schedule is '{schedule}'"
    return found | dict.fromkeys((f"multiplier.{name}" for name in names), why)


def _of_updates(learner: Learner, settings: PolicyGradientSettings) -> Reasons:
    label = learner.update.label
    if isinstance(learner.update, Proximal):
        return {"trust_region": f"the update '{label}' has no trust region"}
    if _is_limited(learner, settings) and settings.feasibility:
        return {}  # the search for the least value of a constraint takes proximal steps
    names = POLICY_STEPS if settings.update.critic_loss == "clipped" else (*POLICY_STEPS, "clip")
    why = f"the update '{label}' takes one step within its trust region (trust_region.kl)"
    return dict.fromkeys((f"update.{name}" for name in names), why)
