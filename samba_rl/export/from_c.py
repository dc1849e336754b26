"""Reading policies in C99: an exported file is compiled and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from samba_rl.errors import UserError
from samba_rl.export.as_c import MARKS
from samba_rl.export.description import Acts, Floats, Output
from samba_rl.export.reading import content, damaged

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120
"""Longest time that compiling or running a file may take."""

DRIVER = Path(__file__).with_name("check.c")
"""Program that runs a file; ${p} and ${P} stand for the prefix of its names."""


def load(path: Path) -> Acts:
    """Compile an exported file; the result runs it. So give no file of a stranger: it is a program."""
    text = content(path).decode(errors="replace")
    found = re.search(r"\bint (\w+)_act\(const", text)
    if not text.startswith(MARKS) or found is None:
        raise UserError(f"{path} is no policy that samba-rl export wrote; its first line is not '{MARKS[0]}'")
    prefix = found[1]
    compiler = next((tool for tool in COMPILERS if shutil.which(tool)), None)
    if compiler is None:
        raise UserError(f"checking {path} needs a C compiler, but there is none ({', '.join(COMPILERS)}); install one")
    sizes = {key: re.search(rf"^#define {prefix.upper()}_{key} (\d+)$", text, flags=re.M) for key in _SIZES}
    no, nu, has_monitor = (-1 if size is None else int(size[1]) for size in sizes.values())
    if min(no, nu, has_monitor) < 0:
        raise damaged(path, "its sizes are not defined")
    several = re.search(rf"^#define {prefix.upper()}_EXPERTS \d+$", text, flags=re.M) is not None

    def run(observations: Floats, first: Floats | None = None) -> Output:
        if observations.shape[1] != no:
            raise UserError(f"{path} is for observations of {no} numbers, but the run has {observations.shape[1]}")
        both = np.stack([observations if first is None else first, observations], axis=1)
        results = _run(path, text, prefix, compiler, both).reshape(-1, nu + 2)
        if len(results) != len(observations):
            raise damaged(path, f"it answered {len(results)} of {len(observations)} observations")
        monitor, expert = results[:, nu], results[:, nu + 1].astype(np.int64)
        return Output(results[:, :nu], monitor if has_monitor else None, expert if several else None)

    return run


_SIZES = ("OBSERVATIONS", "ACTIONS", "HAS_MONITOR")


def _run(path: Path, text: str, prefix: str, compiler: str, observations: Floats) -> NDArray[np.float64]:
    """Return everything that the compiled file gives for first observations and later ones [B, 2, no]."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "policy.h").write_text(text, encoding="utf-8")
        program = Template(DRIVER.read_text(encoding="utf-8")).substitute(p=prefix, P=prefix.upper())
        (home / "main.c").write_text(program, encoding="utf-8")
        commands = (
            ([compiler, "-std=c99", "-O1", "-o", str(home / "main"), str(home / "main.c"), "-lm"], b""),
            ([str(home / "main")], np.ascontiguousarray(observations, dtype=np.float64).tobytes()),
        )
        for command, given in commands:
            try:
                done = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise damaged(path, error) from error
            if done.returncode:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                why = next((line for line in said if "error" in line), f"exit code {done.returncode}")
                raise damaged(path, why.replace(f"{home}/", ""))
        return np.frombuffer(done.stdout[: len(done.stdout) // 8 * 8])
