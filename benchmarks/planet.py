"""Speed of PlaNet: the time of a planning step, compared with TorchRL's planner, and real samples learned per second.

A planning step is the paper's: 1000 candidates, 10 iterations, horizon 12, for one Safe Pendulum with vector
observations and the default network. TorchRL's CEMPlanner has the same numbers and a world model of its own RSSMPrior
and an MLP reward head, all of the same sizes; it samples the latent state where ours uses its mean. `--systems` is the
batch size of a second measurement. `samples_per_s` is measured on a run of `--samples` real samples with the default
preset, learning included, without its first trials. Contestants take turns in the same process; numbers are medians.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from samba_rl.events import Event, TrialReport
from samba_rl.planet.latent import LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_settings
from samba_rl.runs import train
from samba_rl.tasks import make_task


def seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def latent_settings() -> LatentSettings:
    settings = make_settings("safe-pendulum", "planet")
    assert isinstance(settings, PlanetSettings)
    return settings.latent


def ours(systems: int, planner: PlannerSettings) -> Callable[[], object]:
    task = make_task("safe-pendulum")
    generator = torch.Generator().manual_seed(0)
    policy = PlanningPolicy(task, latent_settings(), planner, generator)
    observation = task.observe(task.start(systems, generator))
    return lambda: policy(observation, generator)


def theirs(planner: PlannerSettings) -> Callable[[], object] | None:
    """Return a planning step of TorchRL on its own modules; None if it is not installed."""
    try:
        from tensordict import TensorDict
        from tensordict.nn import TensorDictModule
        from torchrl.data import Bounded, Composite, Unbounded
        from torchrl.envs.model_based import ModelBasedEnvBase
        from torchrl.modules import CEMPlanner, RSSMPrior, WorldModelWrapper
    except ImportError:
        return None
    latent = latent_settings()
    nd, ns, hidden = latent.deterministic, latent.stochastic, latent.hidden
    action = Bounded(-1.0, 1.0, (1,))
    prior = RSSMPrior(action, hidden_dim=hidden, rnn_hidden_dim=nd, state_dim=ns, action_dim=1)
    reward = nn.Sequential(nn.Linear(nd + ns, hidden), nn.ELU(), nn.Linear(hidden, 1))

    class Reward(nn.Module):
        def forward(self, state: torch.Tensor, belief: torch.Tensor) -> Any:
            return reward(torch.cat([state, belief], dim=-1))

    transition = TensorDictModule(prior, in_keys=["state", "belief", "action"], out_keys=["_", "_", "state", "belief"])
    head = TensorDictModule(Reward(), in_keys=["state", "belief"], out_keys=["reward"])

    class World(ModelBasedEnvBase):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(WorldModelWrapper(transition, head))
            spaces = {"state": Unbounded((ns,)), "belief": Unbounded((nd,))}
            self.observation_spec, self.state_spec = Composite(spaces), Composite(spaces)
            self.action_spec = action
            self.reward_spec = Unbounded((1,))

        def _reset(self, tensordict: Any, **_: Any) -> Any:
            return tensordict

    search = CEMPlanner(World(), planner.horizon, planner.iterations, planner.candidates, planner.elites)
    start = TensorDict({"state": torch.zeros(ns), "belief": torch.zeros(nd)}, batch_size=[])

    def plan() -> object:
        with torch.no_grad():
            return search(start.clone())

    return plan


def samples_per_second(samples: int, seed: int) -> float:
    """Return the real samples per second of a run with the default preset, without its first trials."""
    reports: list[TrialReport] = []

    def log(event: Event) -> None:
        if isinstance(event, TrialReport):
            reports.append(event)

    run = train("safe-pendulum", "planet", seed=seed, real_samples=samples, log=log, out=None)
    first = reports[0]
    return float((run.summary["real_samples"] - first.real_samples) / (run.summary["seconds"] - first.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="number of planning steps (default: %(default)s)")
    parser.add_argument("--systems", type=int, default=10, help="systems in the batch (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=2_400, help="real samples of the run (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="number of threads (default: PyTorch's choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    paper = PlannerSettings()
    contestants = {"planning": ours(1, paper), "planning_batch": ours(options.systems, paper)}
    peer = theirs(paper)
    if peer is not None:
        contestants["planning_torchrl"] = peer
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(options.turns + 2):
        for name, plan in contestants.items():
            if name == "planning" or turn < 2 + max(1, options.turns // 3):
                took = seconds(plan)
                if turn >= 2:
                    taken[name].append(took)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    rate = samples_per_second(options.samples, seed=0)
    result: dict[str, Any] = {
        "planning_ms": 1e3 * medians["planning"],
        "planning_ms_per_system_in_batch": 1e3 * medians["planning_batch"] / options.systems,
        "samples_per_s": rate,
        "minutes_for_20000_samples": 20_000 / rate / 60,
        "threads": torch.get_num_threads(),
    }
    print(f"{torch.get_num_threads()} threads; 1000 candidates, 10 iterations, horizon 12")
    print(f"one planning step           {result['planning_ms']:8.1f} ms")
    print(f"  of {options.systems} systems at once     {result['planning_ms_per_system_in_batch']:8.1f} ms each")
    if peer is not None:
        result["planning_ms_torchrl"] = 1e3 * medians["planning_torchrl"]
        result["ratio_vs_torchrl_planning"] = medians["planning_torchrl"] / medians["planning"]
        print(f"  TorchRL's                 {result['planning_ms_torchrl']:8.1f} ms")
    print(f"learning included           {rate:8.1f} real samples/s, 20,000 in {20_000 / rate / 60:.1f} minutes")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
