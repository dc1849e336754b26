"""Kill campaign: runs of all learners die by SIGKILL at random moments, are resumed, and are compared with whole runs.

    python benchmarks/kills.py --moments 1000

Half of the moments are inside a call that reaches the disk, of which only a part is done; a third of the runs is killed
a second time while it goes on. A record counts as lost if the journal had it whole after the kill and the finished run
does not have it, bit by bit. A run differs if its policy, model, metrics, data or journal are not those of the whole
run. The seed of every moment is printed with a failure. The last line is JSON; the exit code is 1 after any failure.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from samba_rl.data.journal import Journal
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from tests.line import Line
from tests.runs.killing import KILLED, Nursery, nursery
from tests.runs.test_killed import assert_same

TASKS = {"line": Line(), "safe-pendulum": None}


def records(folder: Path) -> tuple[int, str]:
    """Return the number of whole records in a run's journal, and their checksum."""
    path = folder / "real.journal"
    if not (folder / "config.json").exists() or not path.exists():
        return 0, ""
    journal = Journal.read(path)
    return len(journal), journal.digest


def one_moment(runs: Nursery, folder: Path, whole: Path, seed: int, known: dict[str, Any]) -> tuple[int, int, str]:
    """Kill, resume and compare one run; return the kills, the records lost, and what differs (empty: nothing)."""
    draw, how = random.Random(seed), {"task": known["task"], "learner": known["learner"]}
    inside, again = draw.random() < 0.5, draw.random() < 1 / 3
    when = {"call": draw.randint(1, known["calls"])} if inside else {"seconds": draw.uniform(0.01, known["seconds"])}
    kept: list[tuple[int, str]] = []
    kills = 0
    for moment in (when, {"call": draw.randint(1, 60)} if again else None, None):
        begun = (folder / "config.json").exists()
        code = runs.run("resume" if begun else "train", folder, **how, **(moment or {}))["code"]
        kills += code == KILLED
        kept.append(records(folder))
        if moment is None:
            if code != 0:
                return kills, 0, f"exit code {code} when it was resumed"
            break
    journal = Journal.read(folder / "real.journal")
    lost = sum(count for count, digest in kept if count and journal.digest_of(count) != digest)
    try:
        assert_same(folder, whole, TASKS[known["task"]])
    except (AssertionError, UserError) as error:
        return kills, lost, f"it differs: {' '.join(str(error).split())[:200]}"
    return kills, lost, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=150, help="number of runs that are killed, over all learners")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first moment")
    parser.add_argument("--task", choices=sorted(TASKS), default="line")
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS))
    arguments = parser.parse_args()
    total = {"runs": 0, "kills": 0, "lost_records": 0, "different": 0, "failed_to_resume": 0}
    with nursery() as runs, tempfile.TemporaryDirectory() as home:
        known: dict[str, dict[str, Any]] = {}
        for number in range(arguments.moments):
            learner, seed = arguments.learners[number % len(arguments.learners)], arguments.seed + number
            whole, folder = Path(home) / f"whole-{learner}", Path(home) / "run"
            if learner not in known:
                begin = time.monotonic()
                result = runs.run("train", whole, task=arguments.task, learner=learner)
                seconds = time.monotonic() - begin
                known[learner] = {"learner": learner, "task": arguments.task, "seconds": seconds, **result}
            kills, lost, wrong = one_moment(runs, folder, whole, seed, known[learner])
            shutil.rmtree(folder, ignore_errors=True)
            total["runs"] += 1
            total["kills"] += kills
            total["lost_records"] += lost
            total["different"] += wrong.startswith("it differs")
            total["failed_to_resume"] += wrong.startswith("exit code")
            if lost or wrong:
                print(f"{learner}, seed {seed}: {lost} records lost; {wrong}", flush=True)
    print(json.dumps({"task": arguments.task, "learners": len(arguments.learners), **total}))
    return int(bool(total["lost_records"] or total["different"] or total["failed_to_resume"]))


if __name__ == "__main__":
    sys.exit(main())
