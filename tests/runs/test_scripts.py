"""Plain scripts, without `if __name__ == "__main__":`, run as files: their systems run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os

import gymnasium
import numpy as np
import torch

import samba_rl

print("the script runs", flush=True)


class Point(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if os.getpid() == SCRIPT:
            made_here.append(1)
        self.x = np.array([-2.0])
        return self.x, {}

    def step(self, action):
        self.x = self.x + action
        return self.x, 0.0, False, False, {}


def cost(x, u):
    return x[..., 0].square()


SCRIPT, made_here = os.getpid(), []
gymnasium.register("Named-v0", entry_point="__main__:Point")
gymnasium.register("Point-v0", entry_point=Point)
for env in ("Named-v0", lambda: gymnasium.make("Point-v0")):
    task = samba_rl.GymTask(env, cost=cost, safety=lambda x, u: x[..., 0].clamp(0, 1), horizon=5, name="point")
    world = task.world(1)
    print("start", world.reset(2, torch.Generator().manual_seed(0)).tolist())
    world.close()
task = samba_rl.GymTask(Point, cost=cost, safety=lambda x, u: x[..., 0].clamp(0, 1), horizon=5)
run = samba_rl.train(
    task, "ppo", preset="smoke", out=None, real_samples=20, episodes=2, first={"samples": 10}, workers=1
)
print("learned from", len(run.data), "steps;", len(made_here), "episodes ran in the process of the script")
"""


def test_a_plain_script_just_works(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert result.stdout.splitlines() == [
        "the script runs",
        *["start [[-2.0], [-2.0]]"] * 2,
        "learned from 20 steps; 0 episodes ran in the process of the script",
    ]
