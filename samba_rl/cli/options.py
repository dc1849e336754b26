"""The arguments of `samba-rl train`, and of the other commands that make a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, cast, final

import tyro

from samba_rl.agents.settings import Settings
from samba_rl.agents.words import to_words
from samba_rl.cli.parsing import load_function
from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.constraints import KINDS, Constraint
from samba_rl.improve.objectives import Information
from samba_rl.improve.own_constraint import register_constraint
from samba_rl.learners import LEARNERS, NONE, UPDATES, Learner, Planning
from samba_rl.models.zeta import ZETAS
from samba_rl.presets import find_row
from samba_rl.ranges import In, Seed, Workers


def _in_words(row: Learner) -> str:
    """Describe a learner in half a line."""
    minimised = [one.label for one in row.objectives if not isinstance(one, Information)]
    aim = f"minimises {' and '.join(minimised)} on {row.source.title}" + ", seeks information" * (row.zeta is not None)
    if isinstance(row.update, Planning):
        return f"{aim}, by planning"
    limit = NONE if row.constraint is None else row.constraint.label
    return f"{aim}, limit {limit}, update {row.update.label}"


LEARNERS_IN_WORDS = "; ".join(f"{name}: {_in_words(row)}" for name, row in LEARNERS.items())


@final
@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SYSTEM")]
    """safe-pendulum, safe-cart-pole-double-pendulum or safe-fetch-reach; or a function that returns your own Task, as
    module:function or file.py:function."""
    settings: Annotated[Settings, tyro.conf.arg(name="")]
    learner: Annotated[str, tyro.conf.arg(help=LEARNERS_IN_WORDS)] = "samba"
    preset: str = "default"
    """Preset that the settings start from. paper: the paper's table of hyper-parameters. smoke: a few seconds, to see
    whether everything works."""
    zeta: Literal["none", "information", "loo", "loo-observed", "bootstrap", "entropy"] = "none"
    """Exploration signal ζ of a learner on a GP model. information: what a whole trajectory would tell. loo:
    sensitivity of the model to leaving out a data point (the paper's). loo-observed: the same of a noisy observation.
    bootstrap: estimate of loo by halves of the data. entropy: predictive entropy. none: no exploration."""
    rule: Literal["proximal", "trust-region", "projection", "none"] = "proximal"
    """Update of the policy. proximal: clipped steps (PPO). trust-region: a natural-gradient step within a trust region
    (TRPO). projection: such a step that keeps to the limit by itself (CPO). none: no update, for a planner."""
    kind: Annotated[str, tyro.conf.arg(name="constraint.kind", metavar="{cvar,expectation,chance,none}")] = "cvar"
    """Kind of limit on the safety cost. cvar: the mean of the worst share 1 - α of the trajectories. expectation: the
    mean of all. chance: the share of trajectories that enter the unsafe region (per step: the share of steps inside
    it). none: no limit."""
    seed: Seed = 0
    """Seed of the run; the same seed gives the same run."""
    out: Path | None = None
    """Folder of the run. Default: runs/SYSTEM-LEARNER-SEED, with a number appended if that is taken."""
    data: tuple[str, ...] = ()
    """CSV or Parquet files, or Minari datasets, of real transitions measured earlier; they do not count as samples."""
    columns: str = ""
    """Columns of these files that are called otherwise than the system's quantities, as in angle=theta,time=t."""
    data_dt: Annotated[float, In("(0, 1e6]")] | None = None
    """Time between two lines of these files, in seconds. Default: from their column `time`, or else the system's time
    step."""
    first_policy: Annotated[str, tyro.conf.arg(name="first.policy")] = ""
    """Controller of your own that makes the first trial instead of random actions: a function of observations [B, no]
    that returns actions [B, nu], as module:function or file.py:function."""
    rig: str = ""
    """Command that runs one episode outside of this program: './run_trial {policy} {trial}' gets the file of the policy
    (JSON) and writes the measurements (CSV). Another exit code than 0 means that it stopped early; --real.timeout
    limits its time, and --real.on-fault says what happens then."""
    dry_run: bool = False
    """Print the first command of --rig and what it would get, and run nothing."""
    device: str = "cpu"
    """Device of the model and the policy: cpu or cuda."""
    threads: Annotated[int, In("[1, 1000]")] | None = None
    """Number of PyTorch threads. Default: one per core."""
    workers: Workers | None = None
    """Number of processes for MuJoCo. Default: one per core; 0 uses none."""
    config: Path | None = None
    """TOML file with any of these settings, which flags then change: see --print-config."""
    print_config: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print every setting as such a file, and do nothing else."""
    tensorboard: bool = True
    """Write curves for TensorBoard into the run's folder, if it is installed."""
    wandb: str = ""
    """Project of Weights & Biases that gets the curves as well; needs the package wandb and a login."""
    evaluation: bool = True
    """Evaluate the policy at the end, with and without its noise."""
    evaluation_steps: Annotated[int, In("[1, 1e9]")] | None = None
    """Number of real steps of the evaluation. Default: 10,000, or 3,000 of a simulator or a planner; none of a rig (a
    system that runs one episode at a time), which only runs what it is told to."""
    pictures: bool = True
    """Draw pictures at the end."""
    report: bool = True
    """Write a page about the run, report.html in its folder, at the end: the verdict, the figures and, if the policy
    was evaluated, the film of an episode."""

    @property
    def row(self) -> Learner:
        """Return the learner with the choices that the flags changed."""
        row = find_row(self.learner, self.preset)
        words = to_words(row)
        if self.zeta != words["zeta"]:
            row = row.with_zeta({NONE: None, **ZETAS}[self.zeta])
        if (self.kind, self.rule) != (words["constraint"], words["update"]):
            row = replace(row, constraint=kind_of(self.kind), update=UPDATES[self.rule])
        return row

    def with_data(self) -> Settings:
        """Return the settings with the files of earlier data and how to read them."""
        first = self.settings.first
        changes: dict[str, str | float | None] = {}
        if self.data:
            changes["data"] = ",".join(self.data)
        if self.columns:
            changes["columns"] = self.columns
        if self.data_dt is not None:
            changes["data_dt"] = self.data_dt
        return replace(self.settings, first=replace(first, **changes))  # type: ignore[arg-type]


def kind_of(word: str) -> type[Constraint] | None:
    """Return the kind of constraint of that label, or the class of a user's own, which is then known by its label."""
    if word == NONE:
        return None
    if ":" in word:
        return register_constraint(cast("type[Constraint]", load_function(word)))
    if word not in KINDS:
        raise UserError(
            f"--constraint.kind: no constraint is called '{word}'; {did_you_mean(word, (*KINDS, NONE))} (for your own, "
            "give file.py:Class)"
        )
    return KINDS[word]
