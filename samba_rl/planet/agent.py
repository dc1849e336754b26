"""PlaNet's agent: it trains a latent model on replayed real sequences; a planner on that model is the policy."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from samba_rl.agents.agent import AnyAgent, Foresight
from samba_rl.data import DataSet
from samba_rl.events import Event, LatentReport, Notice
from samba_rl.improve.objectives import Safety
from samba_rl.improve.updates.networks import optimiser_state, restore_optimiser
from samba_rl.learners import Learner
from samba_rl.planet.evidence import Evidence, negative_evidence
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.planet.replay import Replay
from samba_rl.planet.settings import PlanetSettings
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces

REPORT_EVERY = 25
"""Gradient steps between two reports."""
LEAST_COST_SCALE = 0.3
"""Least scale of the cost, as a share of its mean absolute value in the first data: a cost that hardly varies there may
vary later."""
LEAST_OBSERVATION_SCALE = 0.01
"""Least scale of an observation, as a share of the size of its mean in the first data."""
LEAST_SAFETY_SCALE = 0.1
"""Least scale of a safety cost, which lies in [0, 1]."""


@dataclass
class Training:
    """Progress of a training of the latent model."""

    last: bool
    """Whether it follows the last trial."""
    updates: int
    """Gradient steps planned."""
    done: int = 0
    """Gradient steps done."""
    failures: int = 0
    """Gradient steps that were skipped because they were not finite."""


@final
class PlanetAgent(AnyAgent):
    """Learns a latent model of observations and costs, and plans on it."""

    def __init__(
        self, task: Task, learner: Learner, settings: PlanetSettings, *, seed: int = 0, device: str = "cpu"
    ) -> None:
        super().__init__(task, learner, settings, seed, device)
        self._latent, self._planner = settings.latent, settings.planner
        self._policy = PlanningPolicy(task, self._latent, self._planner, self._cpu_generator()).to(self.device)
        parameters = [parameter for parameter in self._policy.model.parameters() if parameter.requires_grad]
        self._optimiser = torch.optim.Adam(parameters, lr=self._latent.rate, eps=1e-5)
        self._replay = self._empty_replay()
        self._trained = False
        self._work: Training | None = None

    @property
    def model(self) -> None:
        """Return None: the policy holds the model."""

    @property
    def policy(self) -> PlanningPolicy:
        """Return the present policy, on the CPU, without exploration noise."""
        self._check_told()
        return copy.deepcopy(self._policy).cpu()

    def acting(self, *, last: bool = False) -> Policy:
        """Return the policy for the next trial, with exploration noise, or the `last` one, without."""
        return self._policy.with_noise(0.0 if last else self._planner.noise)

    def model_state(self) -> State:
        """Return nothing: the policy holds its model."""
        return {}

    def improve(self, *, last: bool = False) -> Iterator[Event]:
        """Train the latent model on all data; an interrupted training is continued."""
        self._check_told()
        if self._work is None or self._work.last != last:
            self._work = Training(last, self._latent.updates if self._trained else self._latent.first_updates)
        yield from self._train(self._work)
        self._work = None

    # Learning -------------------------------------------------------------------------------------------------------

    def _take_in(self, traces: Traces | None) -> Iterator[Notice]:  # noqa: ARG002 - the data hold them
        self._work = None
        if not len(self._replay):
            self._normalise()
        self._replay.extend(self.believed)
        yield from ()

    def _foresight(self, traces: Traces) -> Foresight:
        """Predict the trial's cost and safety cost from its first observations and its actions."""
        if not self._trained:
            return Foresight()
        seen = traces.observation[:, 0] if self._policy.camera is None else self._policy.camera(traces.x[:, 0])
        _, outcome = self._policy.model.open_loop(seen.to(self.device), self._raw(traces.u))
        outcome = outcome.where(traces.active.to(self.device)[..., None], 0.0).sum(1).mean(0)
        return Foresight(-float(outcome[0]), float(outcome[1:].sum()))

    def _calibrated(self, foresight: Foresight) -> Foresight:
        return foresight

    def _empty_replay(self) -> Replay:
        return Replay(self._policy.camera or self.task.observe, self._raw, self.device)

    def _raw(self, action: Tensor) -> Tensor:
        return self._policy.raw(action.to(self.device))

    def _normalise(self) -> None:
        """Set the scales of observations and costs from the first data."""
        model, transitions = self._policy.model, self.believed
        if self._policy.camera is None:
            centre, scale = self.task.observation_scale(transitions.x)
            model.centre.copy_(centre)
            # An observation that hardly varies in the first data may vary later.
            model.scale.copy_(torch.maximum(scale, LEAST_OBSERVATION_SCALE * centre.abs()).clamp(min=1e-3))
        cost, safety = transitions.cost, transitions.safety
        # Costs are negative where rewards are mostly positive.
        size = max(float(cost.abs().mean()), 1e-6)
        model.outcome_mean[0], model.outcome_mean[1:] = float(cost.mean()), safety.mean(0)
        model.outcome_scale[0] = max(float(cost.std(correction=0)), LEAST_COST_SCALE * size)
        model.outcome_scale[1:] = safety.std(0, correction=0).clamp(min=LEAST_SAFETY_SCALE)
        weight = self._latent.safety_weight if Safety() in self.learner.objectives else 0.0
        self._policy.safety_weight.fill_(weight * size)

    def _train(self, work: Training) -> Iterator[Event]:
        """Take gradient steps on the evidence bound, with a report now and then."""
        latent, model = self._latent, self._policy.model
        for group in self._optimiser.param_groups:
            group["lr"] = latent.rate * latent.last_rate ** (1.0 if work.last else self._progress())
        while work.done < work.updates:
            with self.clock("fit"):
                drawn = self._replay.draw(latent.batch, latent.length, self.generator)
                seen = drawn._replace(
                    observation=model.normalised(drawn.observation),
                    outcome=(drawn.outcome - model.outcome_mean) / model.outcome_scale,
                )
                evidence = negative_evidence(model, seen, self.generator)
                finite = self._step(evidence.loss)
            work.done += 1
            report_due = work.done % REPORT_EVERY == 0 or work.done == work.updates
            self._trained = self._trained or report_due
            if not finite:
                work.failures += 1
                if work.failures == 1:
                    yield Notice(f"the model stays as it was before gradient step {work.done}: it is not finite")
            if report_due:
                yield self._latent_report(work, evidence)

    def _step(self, loss: Tensor) -> bool:
        """Take a gradient step if the gradient is finite; return whether it is."""
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self._policy.model.parameters(), self._latent.max_gradient_norm)
        if finite := math.isfinite(float(norm)):
            self._optimiser.step()
        return finite

    def _latent_report(self, work: Training, evidence: Evidence) -> LatentReport:
        loss, observation, cost, safety, kl = torch.stack(evidence).tolist()
        return LatentReport(
            iteration=self.iteration,
            update=work.done,
            updates=work.updates,
            loss=loss,
            observation=observation,
            cost=cost,
            safety=safety,
            kl=kl,
            seconds=self.clock.seconds,
        )

    # Continuing exactly ---------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Return everything but the data. At an event it is whole: an agent that loads it continues to the same end."""
        return {
            **self._counts(),
            "policy": {name: value.clone() for name, value in self._policy.state_dict().items()},
            "optimiser": optimiser_state(self._optimiser),
            "trained": self._trained,
            "training": None if self._work is None else dict(vars(self._work)),
        }

    def load_state_dict(self, state: State, data: DataSet) -> Iterator[Notice]:
        """Become the agent that returned this state when it had these data."""
        self._load_data(data, state)
        self._policy.load_state_dict(state["policy"])
        restore_optimiser(self._optimiser, state["optimiser"])
        self._replay = self._empty_replay()
        self._replay.extend(self.believed)
        self._trained = bool(state["trained"])
        self._work = None if state["training"] is None else Training(**state["training"])
        self._load_counts(state)
        yield from ()
