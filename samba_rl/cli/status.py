"""`samba-rl status`: say what a waiting run needs next."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

from rich.console import Console

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.text import text


def status(run: RunArgument, *, as_json: JsonFlag = False) -> int:
    """Say what a run that waits for trials needs next.

    Args:
        run: Folder that `samba-rl new` made.
        as_json: Print one line of JSON instead of text.
    """
    from samba_rl.runs.commands import command
    from samba_rl.runs.status import status as status_of

    one = status_of(run)
    if as_json:
        print(json.dumps(asdict(one)))
        return 0
    left = 0 if one.episodes is None else one.episodes - one.told
    due = f"Trial {one.trial} is due: {left} episode{'s' * (left != 1)} of {one.episodes}"
    ask = command(run, "ask")
    words, following = {
        "finished": ("The run is finished; its policy can be written again", command(run, "ask", "-o", "FILE")),
        "busy": ("A process is at work on it", shlex.join(["samba-rl", "runs", str(run)])),
        "tell": (due, command(run, "tell", "trial.csv")),
        "ask": (f"The policy of trial {one.trial} can be asked for", ask),
    }[one.state]
    console = Console(highlight=False)
    console.print(f"{words}.  [bold]{text(following)}[/]", soft_wrap=True)
    if one.state == "tell":
        console.print(f"Its policy can be written again:  [bold]{text(ask)}[/]", soft_wrap=True)
    more = f", and {one.other_samples:,} steps beside them" if one.other_samples else ""
    console.print(f"{one.real_samples:,} of {one.budget:,} real samples{more}.", soft_wrap=True)
    return 0
