"""`samba-rl export`: write a learned policy for other programs, and check such a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.parsing import load_finished
from samba_rl.cli.text import file_size, text
from samba_rl.errors import UserError
from samba_rl.ranges import In

if TYPE_CHECKING:
    from samba_rl.export import Comparison

TOLERANCE = 1e-5
"""Largest difference that passes a check unless another is given. ONNX files compute in float32."""


def export(
    run: RunArgument,
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FILE ...]")] = (),
    check: Path | None = None,
    tolerance: Annotated[float, In("[0, 1]")] = TOLERANCE,
    points: Annotated[int, In("[2, 1e5]")] | None = None,
    task: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Write the policy of a run as .onnx, .c, .h, .npz or .json, with a monitor that tells unknown states.

    The exported action is the mean, without noise, and never leaves the action bounds. Of several experts, the one that
    is likeliest at the start of an episode acts. Exits with 1 if a checked file differs by more than the tolerance.

    Args:
        run: Folder that `samba-rl train` wrote.
        files: Files to write. .onnx: a graph. .c: C99 to compile and link. .h: C99 to include. .npz: plain NumPy
            arrays. .json: numbers with names.
        check: Compare this file with the policy on 10,000 observations. A .c or .h file is compiled and run.
        tolerance: Largest difference that passes, as a share of the action range; for the monitor, of its value.
        points: Representative observations of the monitor. Default: 200; fewer need less memory.
        task: Your own system, as module:function or file.py:function.
        as_json: Print one line of JSON instead of text.
    """
    from samba_rl.data.coverage import POINTS
    from samba_rl.export import compare, describe, write
    from samba_rl.export.formats import format_of
    from samba_rl.runs.folder import check_not_own

    if not files and check is None:
        raise UserError("no file was given; name one, such as policy.h, or give --check FILE")
    for path in (*files, *(() if check is None else (check,))):
        format_of(path)
    loaded, count = load_finished(run, task), POINTS if points is None else points
    for path in files:
        check_not_own(path, run)
    console = Console(stderr=as_json, highlight=False)
    policy = describe(loaded, points=count)
    for path in files:
        write(policy, path)
        console.print(f"{text(path)}: {file_size(path.stat().st_size)}", soft_wrap=True)
    result: dict[str, object] = {"files": [str(path) for path in files]}
    passed = True
    if check is not None:
        with console.status(f"Checking {text(check)}"):
            comparison = compare(loaded, check, points=count)
        passed = comparison.within(tolerance)
        console.print(
            f"[{'green' if passed else 'red'}]{text(_verdict(check, comparison, tolerance))}[/]", soft_wrap=True
        )
        result |= {"checked": str(check), **vars(comparison), "tolerance": tolerance, "passed": passed}
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    return 0 if passed else 1


def _verdict(path: Path, found: Comparison, tolerance: float) -> str:
    monitor = "it has no monitor" if found.monitor is None else f"of the monitor {found.monitor:.1e}"
    choice = (
        ""
        if found.choice is None
        else f", and an expert is chosen that the gate rates at most {found.choice:.1e} below the best"
    )
    alike = max(found.action, found.choice or 0.0) <= tolerance
    same = "the same policy" if alike else "a different policy"
    if alike and not found.within(tolerance):
        same += " with a different monitor; it was exported with another number of --points, perhaps"
    return (
        f"{path}: on {found.observations:,} observations the largest difference of an action is {found.action:.1e} of "
        f"its range, {monitor}{choice} (at most {tolerance:g}): {same}"
    )
