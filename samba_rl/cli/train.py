"""`samba-rl train`: learn a policy on a system.

Its flags are the settings of a learner on a system, so they depend on the arguments themselves: the system, the learner
and the preset are found first, and their settings become the defaults of all other flags.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, final, get_type_hints

import torch
import tyro

from samba_rl import runs
from samba_rl.agents.settings import PolicyGradientSettings, Settings
from samba_rl.agents.words import to_words
from samba_rl.cli.display import RunDisplay
from samba_rl.cli.from_file import SYSTEM, FromFile
from samba_rl.cli.parsing import load_function, load_task, one_line
from samba_rl.cli.print_config import print_config
from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.constraints import KINDS, Constraint
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.improve.objectives import Information
from samba_rl.improve.own_constraint import register_constraint
from samba_rl.learners import LEARNERS, NONE, UPDATES, Learner, Planning, find_learner
from samba_rl.models.zeta import ZETAS
from samba_rl.presets import make_settings
from samba_rl.runs.session import About
from samba_rl.tasks import TASKS

if TYPE_CHECKING:
    from samba_rl.events import Log
    from samba_rl.runs import Run
    from samba_rl.tasks.task import Task

PROG = "samba-rl train"
DESCRIPTION = """Learn a policy on a system: real trials, a model of them, a policy improved on imagined trajectories.

Every setting is a flag; the defaults below are those of the system, the learner and the preset that you name. Further
limits are numbered: --more-constraints.0.kind chance --more-constraints.0.limit 0.1. For planet and planet-rs,
--model.X is short for --latent.X, as in --model.observation pixels.

Exits with 4 if the policy does not keep a limit: its bound on the model exceeds what is accepted, or its evaluation
measures more than the limit (if the limit cannot be met: more than the target) by more than the 95 % interval.
"""


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
    zeta: Literal["none", "loo", "bootstrap", "entropy"] = "none"
    """Exploration signal ζ of a learner on a GP model. loo: sensitivity of the model to leaving out a data point.
    bootstrap: its bootstrap estimate. entropy: predictive entropy. none: no exploration."""
    rule: Literal["proximal", "trust-region", "projection", "none"] = "proximal"
    """Update of the policy. proximal: clipped steps (PPO). trust-region: a natural-gradient step within a trust region
    (TRPO). projection: such a step that keeps to the limit by itself (CPO). none: no update, for a planner."""
    kind: Annotated[str, tyro.conf.arg(name="constraint.kind", metavar="{cvar,expectation,chance,none}")] = "cvar"
    """Kind of limit on the safety cost. cvar: the mean of the worst share 1 - α of the trajectories. expectation: the
    mean of all. chance: the share of trajectories that enter the unsafe region (per step: the share of steps inside
    it). none: no limit."""
    seed: int = 0
    """Seed of the run; the same seed gives the same run."""
    out: Path | None = None
    """Folder of the run. Default: runs/SYSTEM-LEARNER-SEED, with a number appended if that is taken."""
    data: tuple[str, ...] = ()
    """CSV or Parquet files, or Minari datasets, of real transitions measured earlier; they do not count as samples."""
    columns: str = ""
    """Columns of these files that are called otherwise than the system's quantities, as in angle=theta,time=t."""
    data_dt: float | None = None
    """Time between two lines of these files, in seconds. Default: from their column `time`, or else the system's time
    step."""
    device: str = "cpu"
    """Device of the model and the policy: cpu or cuda."""
    threads: int | None = None
    """Number of PyTorch threads. Default: one per core."""
    workers: int | None = None
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
    pictures: bool = True
    """Draw pictures at the end."""

    @property
    def row(self) -> Learner:
        """Return the learner with the choices that the flags changed."""
        row, words = find_learner(self.learner), to_words(find_learner(self.learner))
        if self.zeta != words["zeta"]:
            row = row.with_zeta({NONE: None, **ZETAS}[self.zeta])
        if (self.kind, self.rule) != (words["constraint"], words["update"]):
            row = replace(row, constraint=_kind(self.kind), update=UPDATES[self.rule])
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


def _kind(word: str) -> type[Constraint] | None:
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


# Arguments ------------------------------------------------------------------------------------------------------------


def parsed_train(arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments and return the call that they ask for."""
    file = FromFile.of(arguments)
    where, learner, preset = _peek(arguments, file)
    if not where and not {"-h", "--help"} & set(arguments):
        raise UserError(
            f"no system was given; name one of {', '.join(TASKS)}, or your own as file.py:function; see {PROG} --help"
        )
    task = load_task(where) if where else None
    options = _parse(arguments, task, learner, preset, file)
    if task is None or (options.task, options.learner, options.preset) != (where, learner, preset):
        # The guess was wrong: only the parser can tell a system from the value of a flag.
        task = load_task(options.task)
        options = _parse(arguments, task, options.learner, options.preset, file)
    return partial(print_config, task, options) if options.print_config else partial(train, task, options)


def _peek(arguments: list[str], file: FromFile) -> tuple[str, str, str]:
    """Guess the system (empty if none was found), the learner and the preset, on which other defaults depend."""
    named = {"--learner": file.text("learner", "samba"), "--preset": file.text("preset", "default")}
    first = next((argument for argument in arguments[:1] if not argument.startswith("-")), "")
    # A constraint of the user's own looks like a system.
    own = {after for name, after in itertools.pairwise(arguments) if name == "--constraint.kind"}
    places = [one for one in arguments if one in TASKS or (re.fullmatch(r"[^-].*:\w+", one) and one not in own)]
    where = first or next(iter(places), "") or file.text(SYSTEM, "")
    for i, argument in enumerate(arguments):
        name, _, joined = argument.partition("=")
        if name in named:
            named[name] = joined or "".join(arguments[i + 1 : i + 2])
    return where, named["--learner"], named["--preset"]


def _parse(arguments: list[str], task: Task | None, learner: str, preset: str, file: FromFile) -> Options:
    row = find_learner(learner)
    given = file.options(option_kinds())
    settings = file.settings(make_settings("" if task is None else task.name, row, preset), option_kinds())
    if isinstance(settings, PolicyGradientSettings):
        limits = _more_constraints(arguments, settings.more_constraints)
        settings = replace(settings, more_constraints=limits)
    else:
        arguments = [re.sub(r"^--model\.", "--latent.", argument) for argument in arguments]
    words = to_words(row)
    values = {"zeta": words["zeta"], "rule": words["update"], "constraint.kind": words["constraint"], **given}
    values["kind"] = values.pop("constraint.kind")
    where = file.text(SYSTEM, "") or tyro.MISSING
    default = replace(Options(where, settings), **{**values, "learner": learner, "preset": preset})
    with one_line(PROG):
        options = tyro.cli(Options, prog=PROG, description=DESCRIPTION, default=default, args=arguments)
    if ":" in options.kind:
        # Loaded once; from here on its label stands for it.
        loaded = _kind(options.kind)
        options = replace(options, kind=NONE if loaded is None else loaded.label)
    _ = options.row  # raises if the choices make no sense together
    return options


def option_kinds() -> dict[str, object]:
    """Return the types of the flags that are no settings, by their names in a file."""
    hints = get_type_hints(Options)
    names = (
        field.name for field in fields(Options) if field.name not in ("task", "settings", "config", "print_config")
    )
    return {"constraint.kind" if name == "kind" else name: hints[name] for name in names}


def _more_constraints(arguments: list[str], given: tuple[FurtherConstraint, ...]) -> tuple[FurtherConstraint, ...]:
    """Return the limits of a file, and as many further ones as the flags number, for the parser to fill in."""
    found = set(range(len(given))) | {
        int(number) for number in re.findall(r"^--more[-_]constraints\.(\d+)\.", "\n".join(arguments), re.M)
    }
    if found != set(range(len(found))):
        raise UserError(
            f"--more-constraints has the numbers {', '.join(map(str, sorted(found)))}; number the limits from 0"
        )
    return given + (FurtherConstraint(),) * (len(found) - len(given))


# The run --------------------------------------------------------------------------------------------------------------


def train(task: Task, options: Options) -> int:
    """Train with a display of the progress, then evaluate and draw."""
    if options.threads is not None:
        if options.threads < 1:
            raise UserError(f"--threads {options.threads}: at least 1 is needed")
        torch.set_num_threads(options.threads)
    out = options.out or _free_folder(task.name, options.learner, options.seed)
    settings = options.with_data()
    about = About(options.learner, options.row, options.preset, options.seed, settings, options.device)

    def learning(log: Log, stop: Callable[[], bool]) -> Run:
        return runs.train(
            task,
            options.row,
            name=options.learner,
            preset=options.preset,
            seed=options.seed,
            settings=settings,
            device=options.device,
            out=out,
            log=log,
            workers=options.workers,
            stop=stop,
            named=options.task if ":" in options.task else "",
        )

    display = RunDisplay(task, options.task, out, about, tensorboard=options.tensorboard, wandb=options.wandb)
    return display.run(learning, evaluation=options.evaluation, pictures=options.pictures, workers=options.workers)


def _free_folder(task: str, learner: str, seed: int) -> Path:
    """Return runs/SYSTEM-LEARNER-SEED, with a number appended if that is taken."""
    name = re.sub(r"[^\w.-]+", "-", f"{task}-{learner}-{seed}")
    folder, number = Path("runs") / name, 2
    while folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder
