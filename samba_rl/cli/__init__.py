"""The command `samba-rl`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import tyro

from samba_rl.cli import benchmark, figures, listing, report, results, systems
from samba_rl.cli.parsing import one_line, parsed
from samba_rl.errors import UserError, did_you_mean, printable

DESCRIPTION = """Safe, sample-efficient reinforcement learning (SAMBA) for systems where every real trial is expensive.

Start with:  samba-rl train safe-pendulum        learn to balance safely; ends with figures and pictures
             samba-rl resume runs/x              go on with a run that was interrupted
             samba-rl benchmark smoke            a minute's worth of the paper's tables
             samba-rl report runs                what came of your runs, on one page
             samba-rl tasks                      what systems there are
             samba-rl check-env MyEnv-v0         whether your own Gymnasium environment can be used
"""


def train() -> int:
    """Learn a policy on a system; `samba-rl train SYSTEM --help` shows every setting with its value there."""
    raise AssertionError("its arguments depend on the system, so it is parsed apart: see `_call`")


def resume() -> int:
    """Go on with a run that was interrupted, to the same end that it would have had."""
    raise AssertionError("it brings in torch, so it is loaded when it is asked for: see `_call`")


COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "runs": listing.runs,
    "eval": results.evaluate,
    "render": results.render,
    "benchmark": benchmark.benchmark,
    "figures": figures.figures,
    "report": report.report,
    "tasks": systems.tasks,
    "check-env": systems.check_env,
    "rollout": systems.rollout,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _call(given)()
    except UserError as error:
        print(f"samba-rl: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("samba-rl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output, such as `head`, has seen enough; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _call(given: list[str]) -> Callable[[], int]:
    """What the arguments ask for, ready to be called."""
    if given[:1] == ["train"]:
        # Here, because its settings bring in torch, for which the help of the others need not wait.
        from samba_rl.cli.training import parsed_train

        return parsed_train(given[1:])
    if given[:1] == ["resume"]:
        from samba_rl.cli.training import resume as go_on

        return parsed(go_on, "samba-rl resume", given[1:])
    if given and given[0] in COMMANDS:
        return parsed(COMMANDS[given[0]], f"samba-rl {given[0]}", given[1:])
    if given and not given[0].startswith("-"):
        raise UserError(f"no command is called '{given[0]}'; {did_you_mean(given[0], COMMANDS)}")
    with one_line("samba-rl"):
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="samba-rl", description=DESCRIPTION, args=given)
    raise UserError("no command was given; see samba-rl --help")
