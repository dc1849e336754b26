"""`samba-rl certify`: bound the real risk of a learned policy with a confidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import Episodes, JsonFlag, RunArgument
from samba_rl.cli.parsing import asked, load_finished
from samba_rl.cli.text import text
from samba_rl.ranges import In, Seed, Workers

if TYPE_CHECKING:
    from samba_rl.runs.certify import Certificate

EPISODES = 2000
"""Number of real episodes unless another is given; a rig runs none unasked."""


def certify(
    run: RunArgument,
    confidence: Annotated[float, In("[0.5, 1)")] = 0.95,
    episodes: Episodes | None = None,
    seed: Seed | None = None,
    limit: Annotated[float, In("[0, 1e12]")] | None = None,
    step_bound: Annotated[float, In("(0, 1e12]")] = 1.0,
    *,
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
    workers: Workers | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Bound the real value of every limit of a run from above, with a confidence, from fresh real episodes.

    The bound holds for every distribution of the safety cost and every number of episodes. Exits with 0 if all limits
    are certified, and with 1 if not. The result is also written to certificate.json in the run's folder.

    Args:
        run: Folder that `samba-rl train` wrote.
        confidence: Probability with which all bounds hold together.
        episodes: Number of real episodes. Default: 2000; a rig, which runs them one by one, needs the number.
        seed: Seed of the episodes. Default: a fresh seed, which is printed.
        limit: Limit to certify instead of the run's own. A learner without a limit gets CVaR of each safety cost.
        step_bound: Largest safety cost that a step can have; 1 for the paper's systems.
        deterministic: Leave out the noise of the policy's actions.
        task: Your own system, as module:function or file.py:function.
        workers: Number of processes for MuJoCo. Default: one per core; 0 uses none.
        as_json: Print one line of JSON instead of text.
    """
    from samba_rl.data.plain import to_plain
    from samba_rl.runs.certify import CERTIFICATE
    from samba_rl.runs.folder import write_json

    loaded = load_finished(run, task)
    count = asked(loaded.task, episodes, EPISODES)
    console = Console(stderr=as_json, highlight=False)
    title = f"{text(loaded.task.title)}: {text(loaded.learner)}"
    with console.status(f"{title}: {count:,} episodes") as status:
        certificate = loaded.certify(
            count,
            confidence,
            seed,
            limit=limit,
            step_bound=step_bound,
            deterministic=deterministic,
            workers=workers,
            tell=lambda done: status.update(f"{title}: {done:,} of {count:,} episodes"),
        )
    result = to_plain(certificate.to_json())
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        console.print(_table(title, certificate))
        colour = {True: "green", False: "red"}
        for one, words in zip(certificate.limits, certificate.verdicts(), strict=True):
            console.print(f"[{colour[one.certified]}]{text(words)}[/]", soft_wrap=True)
    # Last: the episodes are not lost if the folder cannot be written.
    write_json(run / CERTIFICATE, result)
    return 0 if certificate.certified else 1


def _table(title: str, certificate: Certificate) -> Table:
    """Return a table with a row per limit."""
    noise = "without noise" if certificate.deterministic else "with noise"
    table = Table(
        title=f"{title}, {certificate.episodes:,} episodes {noise}, seed {certificate.seed}",
        title_justify="left",
        caption=f"The upper bounds hold together with {100 * certificate.confidence:g} % confidence, if no step can "
        f"cost more than {certificate.step_bound:g}. Episodes at least: if none costs anything.",
        caption_justify="left",
    )
    table.add_column("limit on")
    for column in ("limit", "measured", "upper bound", "episodes needed", "episodes at least"):
        table.add_column(column, justify="right")
    for one in certificate.limits:
        counts = ("–" if count is None else f"{count:,}" for count in (one.needed, one.least))
        table.add_row(text(one.words), f"{one.limit:g}", f"{one.value:.3g}", f"{one.shown_bound:g}", *counts)
    return table
