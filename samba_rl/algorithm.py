"""Algorithm 1 of the paper: the loop over real trials, and the loop that improves the policy between two of them.

Both loops are generators. They yield an event whenever something has happened; their consumer logs it, saves a
checkpoint, stops, or goes on. At every `Event` the state is whole, so a run that ends there can be continued to the
same end. The symbols are the paper's: D the data, p the model, π the policy, τ trajectories, L the constrained values,
λ their multipliers, λ_π the weight of the cost against -ζ, A advantages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Generator

from samba_rl.events import Event, PolicyReady, Signal

if TYPE_CHECKING:
    from samba_rl.agents.agent import AnyAgent
    from samba_rl.agents.policy_gradient import Agent
    from samba_rl.runs.trials import AnyTrials


def train(agent: AnyAgent, trials: AnyTrials, generator: Generator) -> Iterator[Event | Signal]:
    """Spend the agent's budget of real samples; `agent.policy` is the result.

    A restored agent continues where it was. Every agent has its own `improve`: for those with a policy gradient it is
    the loop below, PlaNet trains its latent model.
    """
    while episodes := agent.episodes_due():
        if agent.is_first_trial:
            π = agent.first_policy(episodes, generator)
        else:
            yield from agent.improve()
            π = agent.acting()
            yield PolicyReady(agent.iteration, π)
        with agent.clock("real"):
            trial = yield from trials(π, episodes, generator)  # on disk before anything learns from it
        yield from agent.learn(trial.traces, trial.faults)  # D ← D ∪ trial, p ← fit(D)
        yield from trials.pause_if_due(trial)
    yield from agent.improve(last=True)


def improve(agent: Agent) -> Iterator[Event]:
    """Improve the policy on imagined trajectories (without a model: on its last trial), one control iteration each."""
    work, λ = agent.work, agent.multipliers
    while not work.cleared:
        if work.control >= work.controls:
            yield from agent.gate()  # never a worse or less safe policy than one already known
            continue
        τ, notices = agent.imagine()  # from p, under π: trajectories with cost, safety cost and ζ
        π = agent.improver
        L = π.measure(τ)
        before = agent.snapshot()
        step = None
        if τ.finite:
            with agent.clock("update"):
                if not agent.rule.own_dual:
                    λ.update(L)
                A = π.advantages(τ)
                λ_π = π.min_norm(A, agent.least_cost_weight)  # min-norm point of ∇cost and -∇ζ
                step = π.update(A.combined(λ_π, λ.values, λ.scales, λ.excess(L)), agent.generator)
                if agent.rule.own_dual:
                    λ.adopt(step.nu)
        if step is None or not π.finite:
            before.restore(π, λ, agent.generator)
            notices += agent.note_failure(τ)
            step, λ_π = None, ()
        work.control += 1
        agent.keep_candidate()
        report = agent.report(τ, L, λ_π, step)
        yield from notices  # only now, when the state is whole
        yield report
