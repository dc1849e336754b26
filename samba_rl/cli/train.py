"""`samba-rl train`: learn a policy on a system.

Its flags are the settings of a learner on a system, so they depend on the arguments themselves: the system, the learner
and the preset are found first, and their settings become the defaults of all other flags.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, get_type_hints

import torch
import tyro

from samba_rl import runs
from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.agents.unused import refuse_unused
from samba_rl.agents.words import to_words
from samba_rl.cli.display import RunDisplay
from samba_rl.cli.flags import given_paths, settings_flags
from samba_rl.cli.from_file import SYSTEM, FromFile
from samba_rl.cli.options import Options, kind_of
from samba_rl.cli.parsing import load_function, load_task, one_line
from samba_rl.cli.print_config import print_config
from samba_rl.cli.rehearsal import rehearse
from samba_rl.errors import UserError
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.learners import NONE
from samba_rl.presets import find_row, make_settings
from samba_rl.ranges import check
from samba_rl.runs.folder import free_folder
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


# Arguments ------------------------------------------------------------------------------------------------------------


def parsed_train(arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments and return the call that they ask for."""
    task, options = parsed_options(arguments)
    return partial(print_config, task, options) if options.print_config else partial(train, task, options)


def parsed_options(arguments: list[str], prog: str = PROG) -> tuple[Task, Options]:
    """Parse the arguments of a command that makes a run; return the system and all options."""
    file = FromFile.of(arguments)
    where, learner, preset = _peek(arguments, file)
    if not where and not {"-h", "--help"} & set(arguments):
        raise UserError(
            f"no system was given; name one of {', '.join(TASKS)}, or your own as file.py:function; see {prog} --help"
        )
    task = load_task(where) if where else None
    options = _parse(arguments, task, learner, preset, file, prog)
    if task is None or (options.task, options.learner, options.preset) != (where, learner, preset):
        # The guess was wrong: only the parser can tell a system from the value of a flag.
        task = load_task(options.task)
        options = _parse(arguments, task, options.learner, options.preset, file, prog)
    return task, options


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


def _parse(arguments: list[str], task: Task | None, learner: str, preset: str, file: FromFile, prog: str) -> Options:
    row = find_row(learner, preset)
    given = file.options(option_kinds())
    settings = file.settings(make_settings("" if task is None else task, row, preset), option_kinds())
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
    with one_line(prog), settings_flags():
        options = tyro.cli(Options, prog=prog, description=DESCRIPTION, default=default, args=arguments)
    check(options)
    if ":" in options.kind:
        # Loaded once; from here on its label stands for it.
        loaded = kind_of(options.kind)
        options = replace(options, kind=NONE if loaded is None else loaded.label)
    # Raises if the choices make no sense together.
    refuse_unused(options.settings, options.row, given_paths(arguments))
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
        torch.set_num_threads(options.threads)
    out = options.out or free_folder(task.name, options.learner, options.seed)
    if options.dry_run:
        return rehearse(task, options, out)
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
            rig=options.rig or None,
            first_policy=load_function(options.first_policy) if options.first_policy else None,
            log=log,
            workers=options.workers,
            stop=stop,
            named=options.task if ":" in options.task else "",
        )

    display = RunDisplay(
        task, options.task, out, about, rig=options.rig, tensorboard=options.tensorboard, wandb=options.wandb
    )
    return display.run(
        learning,
        evaluation=options.evaluation,
        steps=options.evaluation_steps,
        pictures=options.pictures,
        report=options.report,
        workers=options.workers,
    )
