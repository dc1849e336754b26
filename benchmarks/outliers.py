"""False alarms of the test for outliers on sound real data, and the share of glitches that it finds, by their size.

Each system makes campaigns: a first trial of one to three episodes, then trials of further policies (uniform, held and
random networks of growing strength). Every flagged step of these is a false alarm. Then single readings of fresh trials
are replaced by values that lie some widths of the component's range away. With `--model`, a Gaussian process is fitted
after every trial, up to 300 steps. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import replace

import torch
from torch import Generator, Tensor

from samba_rl.agents.agent import schema_of
from samba_rl.agents.first import FirstSettings, first_policy
from samba_rl.agents.outliers import OutlierTest
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.models.gp import GPDynamics
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Traces, Transitions

SYSTEMS = ("safe-pendulum", "safe-cart-pole-double-pendulum", "safe-fetch-reach")
SIZES = (0.5, 1.5, 3.0, 20.0, 1e3, 1e12, 1e60)
"""Distances of a glitch from the middle of its component's range, in widths of the range."""
MODEL_STEPS = 300


def policy_of(task: Task, trial: int, episodes: int, generator: Generator) -> Policy:
    """Return the policy of a trial: the usual first ones, then networks that act ever more strongly."""
    if trial < 2:
        return first_policy(task, FirstSettings(how="held" if trial else "uniform"), episodes, generator)
    x = task.start(64, generator)
    policy = GaussianPolicy(*task.action_bounds(), *task.observation_scale(x), PolicySettings(std=0.3), generator)
    with torch.no_grad():
        for weight in policy.network.parameters():
            weight.mul_(1.0 + trial)
    return policy


def with_noise(traces: Traces, noise: float, generator: Generator) -> Traces:
    """Add measurement noise to the states, in standard deviations of each component."""
    if not noise:
        return traces
    scale = traces.x.flatten(0, 1).std(0)
    return replace(traces, x=traces.x + noise * scale * torch.randn(traces.x.shape, generator=generator).double())


def glitched(traces: Traces, size: float, generator: Generator) -> tuple[Traces, int]:
    """Replace one reading that is neither the first nor the last of its episode; return its number of steps too."""
    lengths = traces.active.sum(1)
    rows = (lengths > 3).nonzero()[:, 0]
    episode = int(rows[torch.randint(len(rows), (1,), generator=generator)])
    step = int(torch.randint(1, int(lengths[episode]) - 1, (1,), generator=generator))
    values = traces.x.flatten(0, 1)
    width = values.max(0).values - values.min(0).values
    column = int((width > 0).nonzero()[:, 0][torch.randint(int((width > 0).sum()), (1,), generator=generator)])
    x = traces.x.clone()
    x[episode, step, column] = values.mean(0)[column] + size * width[column]
    return replace(traces, x=x), step


def campaign(
    task: Task, seed: int, noise: float, *, trials: int, model: bool
) -> tuple[int, int, dict[float, list[bool]]]:
    """Run one campaign; return the steps, the false alarms, and for each size of a glitch whether it was found."""
    generator = Generator().manual_seed(seed)
    world, test, gp = task.world(0), OutlierTest(task, schema_of(task)), GPDynamics(task)
    steps = alarms = 0
    found: dict[float, list[bool]] = defaultdict(list)
    known: list[Transitions] = []
    for trial in range(trials):
        episodes = 1 + seed % 3
        traces = rollout(world, policy_of(task, trial, episodes, generator), episodes, generator=generator)
        traces = with_noise(traces, noise, generator)
        before = test.state_dict()
        for size in SIZES:
            bad, _ = glitched(traces, size, generator)
            found[size].append(bool(test.judge(bad.transitions(), gp if len(gp) else None).aside.any()))
            test.load_state_dict(before)
        judged = test.judge(traces.transitions(), gp if len(gp) else None)
        steps, alarms = steps + traces.steps, alarms + int(judged.aside.sum())
        known.append(traces.transitions())
        if model and sum(map(len, known)) <= MODEL_STEPS:
            gp.fit(joined(known))
    world.close()
    return steps, alarms, found


def joined(parts: list[Transitions]) -> Transitions:
    """Return all steps, with episodes of their own numbers."""
    columns: dict[str, list[Tensor]] = defaultdict(list)
    for number, part in enumerate(parts):
        for name, value in vars(part).items():
            columns[name].append(value + 1000 * number if name == "episode" else value)
    return Transitions(**{name: torch.cat(values) for name, values in columns.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=30)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--model", action="store_true", help="fit a model after each trial (minutes)")
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    arguments = parser.parse_args()
    result = {}
    for name in arguments.systems:
        for noise in (0.0, 0.05):
            steps = alarms = campaigns = 0
            found: dict[float, list[bool]] = defaultdict(list)
            for seed in range(arguments.campaigns):
                task = make_task(name)
                more = campaign(task, seed, noise, trials=arguments.trials, model=arguments.model)
                steps, alarms, campaigns = steps + more[0], alarms + more[1], campaigns + (more[1] > 0)
                for size, each in more[2].items():
                    found[size] += each
            shares = {f"{size:g}": round(sum(each) / len(each), 3) for size, each in found.items()}
            print(
                f"{name}, noise {noise}: {alarms} of {steps:,} steps flagged, in {campaigns} campaigns; found {shares}"
            )
            result[f"{name}/{noise}"] = {"steps": steps, "false_alarms": alarms, "found": shares}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
