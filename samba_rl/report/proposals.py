"""The command that comes next for a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from samba_rl.benchmark.collect import Found
from samba_rl.learners import LEARNERS
from samba_rl.runs.limits import measured
from samba_rl.tasks.rig import RigTask

RIG_EPISODES = 100
"""Number of episodes in the commands that are proposed for a rig."""


def proposal(group: Sequence[Found], wanting: str) -> tuple[str, str]:
    """Return the command that comes next for finished runs, and its purpose.

    `wanting` is "learn" if they have not learned, and "learn more" if that is not clear: limits come before that.
    """
    judged = [one for one in group if one.result is not None]
    if wanting == "learn":
        return next_step(judged[0], wanting)
    for standing in ("broken", "unclear"):
        for one in judged:
            assert one.result is not None
            evaluation = one.result.with_noise
            standings = [measured(evaluation, i)[1] for i in range(len(evaluation.constraints))]
            if standing in standings or (standing == "broken" and one.breaches):
                return next_step(one, standing)
    return next_step(judged[0], wanting)


def next_step(one: Found, wanting: str = "") -> tuple[str, str]:
    """Return the command that comes next for a run, and its purpose; `wanting` says what it lacks."""
    if one.folder is None or one.seen is None:
        return _again(one), "to make this run here, with its film"
    if one.state == "finished":
        return _after_the_end(one, wanting)
    run = shlex.quote(str(one.folder))
    return {
        "interrupted": (f"samba-rl resume {run}{_own(one)}", "to go on to the same end"),
        "running": (f"samba-rl watch {run}", "to see its curves"),
        "waiting": (f"samba-rl status {run}", "to see which trial is due"),
        "damaged": (f"samba-rl verify {run}", "to see what can be rebuilt"),
    }[one.state]


def _own(one: Found) -> str:
    """Return the flag that names a system of one's own."""
    return f" --task {shlex.quote(one.seen.named)}" if one.seen is not None and one.seen.named else ""


def _after_the_end(one: Found, wanting: str) -> tuple[str, str]:
    """Return the command that comes next for a finished run in a folder."""
    run, own = shlex.quote(str(one.folder)), _own(one)
    if one.run is not None and isinstance(one.run.task, RigTask):
        return f"samba-rl export {run} policy.json{own}", "to use the policy"
    if one.result is None and one.run is None and own:
        return f"samba-rl report {run}{own}", "to evaluate and film it"
    rig = "" if one.run is None or one.run.task.parallel else f" --episodes {RIG_EPISODES}"
    if one.result is None:
        return f"samba-rl eval {run}{rig}{own}", "to evaluate it on the real system"
    more = f"samba-rl resume {run}{own} --real-samples {2 * one.result.real_samples}"
    if wanting in ("learn", "learn more"):
        return more, "to learn from more real samples"
    if wanting == "broken":
        # Learners with a GP model have data from which limits can be advised on.
        row = LEARNERS.get(one.learner) if one.run is None else one.run.row
        imagines = row is not None and row.source.imagines
        advice = f"samba-rl advise {run}{own}", "to see which limits can be met, and at what return"
        return advice if imagines else (more, "to learn from more real samples")
    if wanting == "unclear":
        steps = rig or f" --steps {10 * one.result.with_noise.steps}"
        return f"samba-rl eval {run}{steps}{own}", "to measure it more closely"
    certificate = one.certificate
    if one.result.with_noise.constraints and (certificate is None or not certificate.certified):
        needed = [] if certificate is None else [each.needed for each in certificate.limits if each.needed]
        episodes = f" --episodes {max(needed)}" if needed else rig
        return f"samba-rl certify {run}{episodes}{own}", "to bound its real risk with 95 % confidence"
    return f"samba-rl export {run} policy.onnx{own}", "to use the policy"


def _again(one: Found) -> str:
    """Return the command that makes the run of a benchmark's result; empty if flags cannot say it."""
    assert one.result is not None
    cell = one.result.cell
    if cell.where or cell.changes or cell.trials is not None or cell.budget_scale != 1 or " " in cell.preset:
        return ""
    limit = "" if cell.limit is None else f" --constraint.limit {cell.limit:g} --constraint.per trajectory"
    preset = "" if cell.preset == "default" else f" --preset {shlex.quote(cell.preset)}"
    task, learner = shlex.quote(cell.task), shlex.quote(cell.learner)
    return f"samba-rl train {task} --learner {learner}{preset} --seed {cell.seed}{limit}"
