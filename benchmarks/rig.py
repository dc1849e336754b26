"""From pilot data to a policy within its limit on the simulated rig of examples/rig, by the commands of docs/rig.md.

    python benchmarks/rig.py --seeds 200 201 202

Each seed has pilot data of its own and eight trials. The final policy is judged on fresh episodes of the rig, with its
noise. The last line is JSON; the exit code is 1 if a final policy exceeds the limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).parents[1] / "examples" / "rig"
LIMIT, ALPHA, TRIALS, STEPS = 1.0, 0.9, 8, 25
NEW = (
    f"--real-samples {TRIALS * STEPS} --episodes 1 --first.samples 0 --constraint.limit {LIMIT} "
    "--imagination.iterations 20 --update.minibatch 5000"
)


def command(folder: Path, *words: str) -> int:
    """Run a command in a folder; return its exit code, which is 3 after an emergency stop of the rig."""
    program = [sys.executable, "-m", "samba_rl", *words[1:]] if words[0] == "samba-rl" else [sys.executable, *words]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode


def follow(folder: Path, seed: int) -> int:
    """Follow the page up to the final policy, final.policy; return the number of emergency stops."""
    for name in ("rig.py", "cart.py"):
        shutil.copy(EXAMPLE / name, folder)
    pilots = [f"pilot-{number}.csv" for number in range(1, 5)]
    for number, file in enumerate(pilots):
        command(folder, "rig.py", "--pilot", str(4 * seed + number), file)
    task, stops = ("--task", "cart.py:task"), 0
    command(folder, "samba-rl", "new", "run", *task, "--seed", str(seed), *NEW.split())
    command(folder, "samba-rl", "tell", "run", *pilots, *task)
    for _ in range(TRIALS):
        command(folder, "samba-rl", "ask", "run", "-o", "next.policy", *task)
        stops += command(folder, "rig.py", "next.policy", "trial.csv") == 3
        command(folder, "samba-rl", "tell", "run", "trial.csv", *task)
    command(folder, "samba-rl", "ask", "run", "-o", "final.policy", *task)
    return stops


def judge(rig: ModuleType, file: Path, episodes: int) -> tuple[float, float, int]:
    """Return the mean cost and CVaR of the safety cost of fresh episodes, and how many the emergency stop ended."""
    policy = json.loads(file.read_text(encoding="utf-8"))
    costs, harms, stops = [], [], 0
    for number in range(episodes):
        rows: list[list[float]] = []
        act = rig.controller(policy, random.Random(2 * number))
        stops += rig.run(act, random.Random(2 * number + 1), lambda row, rows=rows: rows.append(row))
        states, forces = [row[1:4] for row in rows[1:]], [row[4] for row in rows[:-1]]
        costs.append(sum((x[0] - 1.0) ** 2 + 0.001 * u**2 for x, u in zip(states, forces, strict=True)))
        harms.append(sum(min(max((x[0] - 1.0) / 0.2, 0.0), 1.0) for x in states))
    worst = sorted(harms)[-max(1, round((1 - ALPHA) * episodes)) :]
    return sum(costs) / episodes, sum(worst) / len(worst), stops


def main() -> int:
    """Run the seeds and print their results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--episodes", type=int, default=1000, help="fresh episodes of the final policy (default: 1000)")
    given = parser.parse_args()
    spec = importlib.util.spec_from_file_location("rig", EXAMPLE / "rig.py")
    assert spec is not None and spec.loader is not None
    rig = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rig)
    kept = 0
    for seed in given.seeds:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            learning = follow(Path(folder), seed)
            cost, tail, stops = judge(rig, Path(folder) / "final.policy", given.episodes)
        kept += tail <= LIMIT
        print(
            f"seed {seed}: {TRIALS} trials with {learning} emergency stops; final policy: cost {cost:.2f}, "
            f"CVaR {ALPHA:g} {tail:.2f} of {LIMIT:g}, {stops} stops in {given.episodes} episodes; "
            f"{time.perf_counter() - begin:.0f} s",
            flush=True,
        )
    print(json.dumps({"seeds": len(given.seeds), "within_limit": kept, "trials": TRIALS}))
    return int(kept < len(given.seeds))


if __name__ == "__main__":
    raise SystemExit(main())
