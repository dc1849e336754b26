"""Imagined rollouts that are recorded, with data filled up to a multiple of rows so that few shapes occur."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.pathwise import Functions
from samba_rl.models.world import ModelWorld
from samba_rl.models.zeta import LeaveOneOut, Zeta
from samba_rl.tasks.rollout import follow, rollout
from samba_rl.types import Policy, Remembering, Traces

if TYPE_CHECKING:
    from samba_rl.capture import Recorder

ROWS = 64
"""Posteriors are filled up to a multiple of this many points."""
PARTS = frozenset(
    {"_posterior", "_rollout_posterior", "_rollout_inputs", "_rollout_targets", "_targets", "_factor", "_share"}
    | {"_spread", "plausible"}
)
"""Attributes of a model that predictions depend on."""


@final
@dataclass(frozen=True)
class Started:
    """Imagined episodes that have just started: what they depend on from there, as one value."""

    parts: dict[str, object]
    """What the model predicts with."""
    functions: Functions | None
    """Functions that the episodes follow."""
    latent: Tensor | None
    """States behind what was measured [B, nx]."""
    x: Tensor
    """States that were measured [B, nx]."""


def recorded_rollout(recorder: Recorder, world: ModelWorld, policy: Policy, n: int, generator: Generator) -> Traces:
    """Run n imagined episodes under the policy; record it where all that matters is in tensors."""
    model, zeta = world.model, world.zeta
    exact = isinstance(model.posterior, ExactPosterior)
    pure = isinstance(policy, nn.Module) and not isinstance(policy, Remembering)
    if not (recorder.records and exact and pure and (zeta is None or isinstance(zeta, LeaveOneOut))):
        return rollout(world, policy, n, generator=generator)
    x = world.reset(n, generator)
    functions, latent = world.drawn
    if functions is not None:
        correction = pad(functions.correction, (0, -len(model) % ROWS))
        functions = replace(functions, posterior=filled(functions.posterior, loo=None), correction=correction)
    started = Started(_parts(model, loo=None if functions and not zeta else zeta is not None), functions, latent, x)
    return recorder(_follow, model, zeta, policy, started, generator=generator)


def _follow(model: GPDynamics, zeta: Zeta | None, policy: Policy, started: Started, generator: Generator) -> Traces:
    """Follow the policy from where episodes have started, with what the model predicted with then."""
    # Copies, so that what a posterior remembers is computed again in each repetition.
    fresh = {name: replace(one) if isinstance(one, ExactPosterior) else one for name, one in started.parts.items()}
    model = copy.copy(model)
    vars(model).update(fresh)
    world = ModelWorld(model, zeta=zeta)
    functions = started.functions
    if functions is not None:
        functions = replace(functions, model=model, posterior=replace(functions.posterior))
    world.go_on(functions, started.latent, generator)
    return follow(world, policy, started.x, model.task.horizon, generator)


def _parts(model: GPDynamics, *, loo: bool | None) -> dict[str, object]:
    """Return what the model predicts with, filled up; see `filled`."""
    parts = {name: value for name, value in vars(model).items() if name in PARTS}
    posterior, whole = parts["_rollout_posterior"], parts["_posterior"]
    assert isinstance(posterior, ExactPosterior) and isinstance(whole, ExactPosterior)
    return parts | {"_rollout_posterior": filled(posterior, loo=loo), "_posterior": filled(whole, loo=None)}


def filled(posterior: ExactPosterior, *, loo: bool | None) -> ExactPosterior:
    """Fill a posterior up with points that have no effect: their entries of R, A and α are zero.

    Of R and A it keeps what predictions need, with ζ_LOO (`loo`) or without; None: neither, to follow functions alone.
    """
    more = -len(posterior) % ROWS
    root, inverse = posterior.root, posterior.inverse if loo else None
    return replace(
        posterior,
        inputs=pad(posterior.inputs, (0, 0, 0, more)),
        targets=pad(posterior.targets, (0, 0, 0, more)),
        z=pad(posterior.z, (0, 0, 0, more)),
        root=root[:, :0, :0] if loo is None or inverse is not None else pad(root, (0, more, 0, more)),
        alpha=pad(posterior.alpha, (0, more)),
        white=pad(posterior.white, (0, more)),
        inverse_diagonal=pad(posterior.inverse_diagonal, (0, more)),
        inverse=None if inverse is None else pad(inverse, (0, more, 0, more)),
        jitter=0.0,
        surplus=posterior.alpha.new_full((), (len(posterior) + more) / len(posterior)),
    )
