"""The command `samba-rl`. Each subcommand has its own module; those that need torch import it when they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import tyro

from samba_rl.cli import (
    advise,
    ask,
    benchmark,
    certify,
    check_env,
    eval as evaluation,
    export,
    figures,
    forecast,
    render,
    report,
    resume,
    rollout,
    runs,
    status,
    sweep,
    tasks,
    tell,
    verify,
    watch,
)
from samba_rl.cli.parsing import one_line, parsed
from samba_rl.errors import UserError, did_you_mean, printable

DESCRIPTION = """Safe, sample-efficient reinforcement learning (SAMBA) for systems where every real trial is expensive.

Start with:  samba-rl train safe-pendulum        learn to balance safely, with figures and pictures at the end
             samba-rl resume runs/x              continue an interrupted run
             samba-rl watch runs/x               see its curves while another process works on it
             samba-rl new runs/x --task mine.py:rig    make a run whose trials are made elsewhere; then ask and tell
             samba-rl certify runs/x             bound the real risk of its policy, with 95 % confidence
             samba-rl export runs/x policy.h     write its policy for a controller in C (or .onnx, .npz, .json)
             samba-rl advise runs/x              say what return can be had at which limit
             samba-rl benchmark smoke            make a small version of the paper's tables in a minute
             samba-rl report runs                show the results of your runs on one page
             samba-rl tasks                      list the systems
             samba-rl check-env MyEnv-v0         check whether your own Gymnasium environment can be used
"""


def train() -> int:
    """Learn a policy on a system; `samba-rl train SYSTEM --help` shows every setting with its default there."""
    raise AssertionError("its flags depend on the system and the learner, so `_call` parses them separately")


def new() -> int:
    """Make a run whose trials are made outside of this program; its flags are the settings of `train`."""
    raise AssertionError("its flags depend on the system and the learner, so `_call` parses them separately")


COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume.resume,
    "new": new,
    "ask": ask.ask,
    "tell": tell.tell,
    "status": status.status,
    "runs": runs.runs,
    "watch": watch.watch,
    "eval": evaluation.evaluate,
    "certify": certify.certify,
    "verify": verify.verify,
    "render": render.render,
    "export": export.export,
    "forecast": forecast.forecast,
    "advise": advise.advise,
    "benchmark": benchmark.benchmark,
    "sweep": sweep.sweep,
    "figures": figures.figures,
    "report": report.report,
    "tasks": tasks.tasks,
    "check-env": check_env.check_env,
    "rollout": rollout.rollout,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _call(given)()
    except UserError as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        print("samba-rl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output (`head`, say) has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        return _refused(f"{where}{error.strerror or error}")


def _refused(why: str) -> int:
    """Say in one line why the request is refused, and return the exit code."""
    line = printable(why).replace("\n", "\\n")
    print(f"samba-rl: {line}", file=sys.stderr)
    return 2


def _call(given: list[str]) -> Callable[[], int]:
    """Parse the arguments and return the call that they ask for."""
    if given[:1] == ["train"]:
        # Imported here because the settings need torch, which would slow down the help of the other commands.
        from samba_rl.cli.train import parsed_train

        return parsed_train(given[1:])
    if given[:1] == ["new"]:
        from samba_rl.cli.new import parsed_new

        return parsed_new(given[1:])
    if given and given[0] in COMMANDS:
        return parsed(COMMANDS[given[0]], f"samba-rl {given[0]}", given[1:])
    if given and not given[0].startswith("-"):
        raise UserError(f"no command is called '{given[0]}'; {did_you_mean(given[0], COMMANDS)}")
    with one_line("samba-rl"):
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="samba-rl", description=DESCRIPTION, args=given)
    raise UserError("no command was given; see samba-rl --help")
