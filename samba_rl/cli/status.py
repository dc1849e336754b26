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
    from samba_rl.runs.status import status as status_of

    one = status_of(run)
    if as_json:
        print(json.dumps(asdict(one)))
        return 0
    folder = shlex.quote(str(run))
    left = 0 if one.episodes is None else one.episodes - one.told
    due = f"Trial {one.trial} is due: {left} episode{'s' * (left != 1)} of {one.episodes}"
    words, command = {
        "finished": ("The run is finished; its policy can be written again", f"samba-rl ask {folder} -o FILE"),
        "busy": ("A process is at work on it", f"samba-rl runs {folder}"),
        "tell": (due, f"samba-rl tell {folder} trial.csv"),
        "ask": (f"The policy of trial {one.trial} can be asked for", f"samba-rl ask {folder}"),
    }[one.state]
    console = Console(highlight=False)
    console.print(f"{words}.  [bold]{text(command)}[/]", soft_wrap=True)
    if one.state == "tell":
        console.print(f"Its policy can be written again:  [bold]samba-rl ask {text(folder)}[/]", soft_wrap=True)
    more = f", and {one.other_samples:,} steps beside them" if one.other_samples else ""
    console.print(f"{one.real_samples:,} of {one.budget:,} real samples{more}.", soft_wrap=True)
    return 0
