"""A GPU's rows of benchmarks/train.py: passes, rollouts, runs. It needs torch, gpytorch, NumPy and SciPy alone.

pass_ms            one pass of SAMBA's update over 30,000 steps, as in the preset `paper` (policy and three critics)
rollout_ms_n1600   1000 trajectories of 30 steps from 1600 points, in float64, with ζ_LOO
double_run_s       SAMBA, preset `default`, Safe Cart-Pole Double Pendulum, 1500 samples
runs_per_hour      the same, of several runs at once
paper_run_s        SAMBA, preset `paper`, Safe Pendulum, 1600 samples
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Generator, Tensor

from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.capture import Recorder
from samba_rl.improve.policies import GaussianPolicy, PolicySettings, UniformPolicy
from samba_rl.improve.updates.batch import Batch
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.recorded import recorded_rollout
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelSource
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.presets import find_row, make_settings
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import RealSource

Row = dict[str, object]


def milliseconds(call: Callable[[], object], count: int = 15) -> float:
    """Return the median time of a call, after three to warm up."""
    times = []
    for _ in range(count + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[3:])


def paper_agent(device: str, samples: int = 1600, seed: int = 0) -> Agent:
    settings = make_settings("safe-pendulum", "samba", "paper")
    assert isinstance(settings, ModelBasedSettings)
    row = find_row("samba", "paper")
    agent = replace(settings, real_samples=samples).make_agent(
        make_task("safe-pendulum"), row, seed=seed, device=device
    )
    assert isinstance(agent, Agent)
    return agent


def run(agent: Agent, seed: int = 0) -> Row:
    """Learn to the end and return the seconds by phase."""
    generator, source = Generator().manual_seed(seed), RealSource(agent.task.world())
    begin = time.perf_counter()
    while episodes := agent.episodes_due():
        policy = agent.first_policy(episodes, generator) if agent.is_first_trial else agent.ask()
        agent.tell(source(policy, episodes, generator))
        print(f"{agent.real_samples} samples after {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    agent.ask(last=True)
    seconds = time.perf_counter() - begin
    final = source(agent.policy, 1000, Generator().manual_seed(1))
    phases = {phase: round(spent, 2) for phase, spent in agent.clock.by_phase().items()}
    return {
        "s": round(seconds, 1),
        "phases": phases,
        "samples": agent.real_samples,
        "return": round(float(final.returns.mean()), 2),
        "safety_cost": round(float(final.safety_costs.mean()), 3),
        "refused": refused(agent),
    }


def refused(agent: Agent) -> dict[str, str]:
    """Return what an agent could not record, and why."""
    improver = agent.improver
    places = [(improver, "_recorder"), (improver.update, "recorder"), (agent._experience, "recorder")]
    recorders = [getattr(holder, name, None) for holder, name in places]
    return {name: why for one in recorders if one is not None for name, why in one.refused.items()}


def passes(device: str) -> Row:
    agent = paper_agent(device, 60)
    generator = Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    task = agent.task
    agent.tell(RealSource(task.world())(agent.first_policy(1, Generator().manual_seed(0)), 1, Generator()))
    update, n = agent.improver.update, 30_000
    batch = Batch(
        inputs=normal(n, 3),
        raw=0.5 * normal(n, 1),
        objective=normal(n),
        tails=normal(1, n),
        critic_inputs=normal(3, n, 5),
        targets=normal(3, n),
        multipliers=(1.0,),
        units=None,
    )
    epochs = agent.settings.update.epochs  # type: ignore[attr-defined]
    return {"pass_ms": round(milliseconds(lambda: update(batch, generator)) / epochs, 4), "refused": refused(agent)}


def rollouts(device: str, points: int = 1600) -> Row:
    task = make_task("safe-pendulum")
    generator = Generator().manual_seed(0)
    steps = RealSource(task.world())(UniformPolicy((-2.0,), (2.0,)), points // 25 + 2, generator).transitions()
    chosen = type(steps)(**{name: value[:points] for name, value in vars(steps).items()})
    model = GPDynamics(task, GPSettings(fit=FitSettings(iterations=20, noise_bounds=(1e-3, 1.0))), device=device)
    model.fit(chosen)
    policy = GaussianPolicy((-2.0,), (2.0,), torch.zeros(3), torch.ones(3), PolicySettings(), generator).to(device)
    own = Generator(device).manual_seed(0)
    recorder = Recorder(torch.device(device))
    found: Row = {}
    for name, how in (("eager", None), ("recorded", partial(recorded_rollout, recorder))):
        source = ModelSource(model, LeaveOneOut(), run=how)
        found[name] = round(milliseconds(partial(source, policy, 1000, own)), 2)
    return {"rollout_ms_n1600": found["recorded"], "rollout_eager_ms_n1600": found["eager"]} | {
        "refused": recorder.refused
    }


def double(device: str, samples: int = 1500, seed: int = 0) -> Row:
    name = "safe-cart-pole-double-pendulum"
    settings = make_settings(name, "samba")
    agent = replace(settings, real_samples=samples).make_agent(
        make_task(name), find_row("samba"), seed=seed, device=device
    )
    assert isinstance(agent, Agent)
    found = run(agent, seed)
    return {"double_run_s": found["s"], "double": found}


def paper(device: str, samples: int = 1600) -> Row:
    found = run(paper_agent(device, samples))
    return {"paper_run_s": found["s"], "paper": found}


def together(device: str, workers: int) -> Row:
    """Time several runs at once, each in a process of its own."""
    begin = time.perf_counter()
    runs = [subprocess.Popen([sys.executable, __file__, device, str(seed)]) for seed in range(workers)]
    if any(each.wait() for each in runs):
        raise RuntimeError("a run failed")
    seconds = time.perf_counter() - begin
    return {"runs_per_hour": round(3600 * workers / seconds, 1), "workers": workers}


def main(device: str, only: list[str] | None, workers: int) -> None:
    rows: dict[str, Callable[[], Row]] = {
        "pass_ms": partial(passes, device),
        "rollout_ms_n1600": partial(rollouts, device),
        "double_run_s": partial(double, device),
        "runs_per_hour": partial(together, device, workers),
        "paper_run_s": partial(paper, device),
    }
    result: Row = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else device}
    for name in only or rows:
        try:
            result |= rows[name]()
        except Exception:
            traceback.print_exc()
            result[name] = None
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    print(json.dumps(double(sys.argv[1], seed=int(sys.argv[2]))))
