"""The agent of PlaNet: it learns a latent model from replayed real sequences, and a planner on it is the policy."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from samba_rl.agents.agent import AnyAgent, Foresight
from samba_rl.data import DataSet
from samba_rl.errors import UserError
from samba_rl.events import LatentReport, Log, Notice
from samba_rl.improve.updates.networks import optimiser_state, restore_optimiser
from samba_rl.planet.latent import Evidence
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.planet.replay import Replay
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces

if TYPE_CHECKING:
    from samba_rl.learners import Settings

REPORT_EVERY = 25
"""Gradient steps."""
LEAST_COST_SCALE = 0.3
"""Costs are measured in their standard deviation in the first data, or in this share of their mean size if that is
more: what never varied there may do so later."""
LEAST_OBSERVATION_SCALE = 0.01
"""The same for observations."""
LEAST_SAFETY_SCALE = 0.1
"""The same for safety costs, which lie between 0 and 1."""


@dataclass
class _Work:
    """Learning that is under way."""

    last: bool
    updates: int
    """How many gradient steps it has."""
    done: int = 0
    problems: int = 0
    """Gradient steps that were not finite."""


@final
class PlanetAgent(AnyAgent):
    """Learns a model of what it sees and what it costs, and plans on it."""

    def __init__(self, task: Task, settings: Settings, *, seed: int = 0, device: str = "cpu", log: Log | None = None):
        super().__init__(task, settings, seed, device, log)
        if settings.traces != "latent":
            raise UserError(f"traces = '{settings.traces}' is another agent's: make_agent(task, settings)")
        self._policy = PlanningPolicy(task, settings.latent, settings.planner, self._cpu_generator()).to(self._device)
        parameters = [parameter for parameter in self._policy.model.parameters() if parameter.requires_grad]
        self._optimiser = torch.optim.Adam(parameters, lr=settings.latent.rate, eps=1e-5)
        self._replay = self._empty_replay()
        self._trained = False
        self._work: _Work | None = None

    @property
    def policy(self) -> PlanningPolicy:
        """The policy as it stands, on the CPU, without the noise of collecting."""
        self._check_told()
        return copy.deepcopy(self._policy).cpu()

    def ask(self, *, last: bool = False) -> Policy:
        """Learn from all that was told, and give the policy for the next trial, with noise, or as the `last` one."""
        self._check_told()
        if self._work is None or self._work.last != last:
            latent = self.settings.latent
            self._work = _Work(last, latent.updates if self._trained else latent.first_updates)
        self._train(self._work)
        self._work = None
        return self._policy.with_noise(0.0 if last else self.settings.planner.noise)

    def model_state(self) -> State:
        """Nothing: the policy holds all of its model."""
        return {}

    def _check_told(self) -> None:
        if not len(self.data):
            raise UserError(f"nothing is known of {self.task.name} yet: tell(traces) of a first trial comes before")

    def _empty_replay(self) -> Replay:
        return Replay(self._policy.camera or self.task.observe, self._raw, self._device)

    def _raw(self, action: Tensor) -> Tensor:
        return self._policy.raw(action.to(self._device))

    # Learning -------------------------------------------------------------------------------------------------------

    def _learn(self, traces: Traces | None) -> Foresight:
        self._work = None
        foresight = Foresight() if traces is None or not self._trained else self._foreseen(traces)
        if not len(self._replay):
            self._normalise()
        self._replay.extend(self.data.transitions)
        return foresight

    def _foreseen(self, traces: Traces) -> Foresight:
        """What the model makes of the trial's actions from its first observations."""
        seen = traces.observation[:, 0] if self._policy.camera is None else self._policy.camera(traces.x[:, 0])
        _, outcome = self._policy.model.open_loop(seen.to(self._device), self._raw(traces.u))
        outcome = outcome.where(traces.active.to(self._device)[..., None], 0.0).sum(1).mean(0)
        return Foresight(-float(outcome[0]), float(outcome[1:].sum()))

    def _normalise(self) -> None:
        """Measure everything as the first data are spread."""
        model, transitions = self._policy.model, self.data.transitions
        if self._policy.camera is None:
            centre, scale = self.task.observation_scale(transitions.x)
            model.centre.copy_(centre)
            # What hardly varies in the first data may do so later.
            model.scale.copy_(torch.maximum(scale, LEAST_OBSERVATION_SCALE * centre.abs()).clamp(min=1e-3))
        cost, safety = transitions.cost, transitions.safety
        # A reward that is mostly positive makes costs negative.
        size = max(float(cost.abs().mean()), 1e-6)
        model.outcome_mean[0], model.outcome_mean[1:] = float(cost.mean()), safety.mean(0)
        model.outcome_scale[0] = max(float(cost.std(correction=0)), LEAST_COST_SCALE * size)
        model.outcome_scale[1:] = safety.std(0, correction=0).clamp(min=LEAST_SAFETY_SCALE)
        self._policy.safety_weight.fill_(self.settings.latent.safety_weight * size)

    def _train(self, work: _Work) -> None:
        """Gradient steps on the evidence bound. At every report all is in order: there it can be broken off."""
        latent, model = self.settings.latent, self._policy.model
        for group in self._optimiser.param_groups:
            group["lr"] = latent.rate * 0.1 ** (1.0 if work.last else self._progress())
        evidence: Evidence | None = None
        while work.done < work.updates:
            with self.clock("fit"):
                drawn = self._replay.draw(latent.batch, latent.length, self._generator)
                seen = drawn._replace(
                    observation=model.normalised(drawn.observation),
                    outcome=(drawn.outcome - model.outcome_mean) / model.outcome_scale,
                )
                evidence = model.evidence(seen, self._generator)
                self._step(evidence.loss, work)
            work.done += 1
            if work.done % REPORT_EVERY == 0 or work.done == work.updates:
                self._trained = True
                self._log(self._latent_report(work, evidence))

    def _step(self, loss: Tensor, work: _Work) -> None:
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self._policy.model.parameters(), self.settings.latent.max_gradient_norm)
        if math.isfinite(float(norm)):
            self._optimiser.step()
            return
        if work.problems == 0:
            self._log(Notice(f"the model stays as it was before gradient step {work.done + 1}: it is not finite"))
        work.problems += 1

    def _latent_report(self, work: _Work, evidence: Evidence) -> LatentReport:
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

    # Going on exactly -----------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything but the data; at a report it is whole, so that an agent that gets it goes on to the same end."""
        return {
            **self._counts(),
            "policy": {name: value.clone() for name, value in self._policy.state_dict().items()},
            "optimiser": optimiser_state(self._optimiser),
            "trained": self._trained,
            "work": None if self._work is None else dict(vars(self._work)),
        }

    def load_state_dict(self, state: State, data: DataSet) -> None:
        """Become the agent that gave this state when it had these data."""
        self.data = data
        self._policy.load_state_dict(state["policy"])
        restore_optimiser(self._optimiser, state["optimiser"])
        self._replay = self._empty_replay()
        self._replay.extend(data.transitions)
        self._trained = bool(state["trained"])
        self._work = None if state["work"] is None else _Work(**state["work"])
        self._load_counts(state)
