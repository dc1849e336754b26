"""Policies as C99: one file without allocation, for controllers."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from samba_rl.errors import UserError, printable
from samba_rl.export.description import Description, Floats, Output
from samba_rl.export.reading import content, damaged

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARK = "/* samba-rl policy, version 1"
"""First characters of an exported file."""
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120
"""Longest time that compiling or running a file may take."""

_HEAD = Template("""$mark: $title

   int ${p}_act(const ${p}_real observation[$no], ${p}_real action[$nu]);
      Compute the action for an observation. Returns 0; or 1, and leaves the action alone, if a number is not finite.
$monitor_text
   observation: $observations
   action:      $actions
   It was trained for a call every $dt s.

   ${p}_real is double, or float if ${P}_FLOAT is defined before this file is included. Needs libm (-lm).

   $provenance */
#ifndef ${P}_H
#define ${P}_H

#include <math.h>

#define ${P}_OBSERVATIONS $no
#define ${P}_ACTIONS $nu
#define ${P}_HAS_MONITOR $has_monitor

#ifdef ${P}_FLOAT
typedef float ${p}_real;
#define ${P}_TANH tanhf
#define ${P}_SQRT sqrtf
#else
typedef double ${p}_real;
#define ${P}_TANH tanh
#define ${P}_SQRT sqrt
#endif
""")

_ACT = Template("""
${linkage}int ${p}_act(const ${p}_real observation[$no], ${p}_real action[$nu])
{
    ${p}_real x[$width], y[$width];
    ${p}_real result[$nu];
    int i, j;

    for (i = 0; i < $no; i++) {
        if (!isfinite(observation[i]))
            return 1;
        x[i] = (observation[i] - ${p}_centre[i]) / ${p}_scale[i];
    }
$layers    for (i = 0; i < $nu; i++) {
        const ${p}_real low = ${p}_low[i], high = ${p}_high[i];
        const ${p}_real mean = $mean;
        const ${p}_real wanted = (low + high) / 2 + (high - low) / 2 * mean;
        if (!isfinite(wanted))
            return 1;
        result[i] = wanted < low ? low : wanted > high ? high : wanted;
    }
    for (i = 0; i < $nu; i++)
        action[i] = result[i];
    return 0;
}
""")

_LAYER = Template("""    for (i = 0; i < $rows; i++) {
        ${p}_real sum = ${p}_bias$k[i];
        for (j = 0; j < $columns; j++)
            sum += ${p}_weight$k[i][j] * $source[j];
        $target[i] = $result;
    }
""")

_MONITOR = Template("""
${linkage}${p}_real ${p}_monitor(const ${p}_real observation[$no])
{
    ${p}_real nearest = HUGE_VAL;
    int i, j;

    for (i = 0; i < $count; i++) {
        ${p}_real sum = 0;
        for (j = 0; j < $no; j++) {
            const ${p}_real d = (observation[j] - ${p}_points[i][j]) / ${p}_spread[j];
            sum += d * d;
        }
        if (sum < nearest)
            nearest = sum;
    }
    return ${P}_SQRT(nearest) / ${p}_radius;
}
""")

_DRIVER = Template("""#include <stdio.h>
#include "$file"

int main(void)
{
    double numbers[${P}_OBSERVATIONS];
    while (fread(numbers, sizeof numbers, 1, stdin) == 1) {
        ${p}_real observation[${P}_OBSERVATIONS], action[${P}_ACTIONS];
        double results[${P}_ACTIONS + 1];
        int i;
        for (i = 0; i < ${P}_OBSERVATIONS; i++)
            observation[i] = numbers[i];
        if (${p}_act(observation, action))
            return 3;
        for (i = 0; i < ${P}_ACTIONS; i++)
            results[i] = action[i];
#if ${P}_HAS_MONITOR
        results[${P}_ACTIONS] = ${p}_monitor(observation);
#else
        results[${P}_ACTIONS] = 0;
#endif
        if (fwrite(results, sizeof results, 1, stdout) != 1)
            return 4;
    }
    return 0;
}
""")


def encode_header(policy: Description, stem: str) -> bytes:
    """Return the content of a header: functions that every file which includes it has for itself."""
    return _file(policy, stem, "static inline ")


def encode_source(policy: Description, stem: str) -> bytes:
    """Return the content of a source file, to be compiled once and linked."""
    return _file(policy, stem, "")


def prefix_of(stem: str) -> str:
    """Return the prefix of all names in a file whose name has this stem."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", stem).strip("_")
    return name if name and name[0].isalpha() else f"policy_{name}".rstrip("_")


def _file(policy: Description, stem: str, linkage: str) -> bytes:
    prefix, monitor = prefix_of(stem), policy.monitor
    no, nu = len(policy.observations), len(policy.actions)
    names = {
        "p": prefix,
        "P": prefix.upper(),
        "no": no,
        "nu": nu,
        "linkage": linkage,
        "has_monitor": int(monitor is not None),
    }
    parts = [_head(policy, names)]
    if not linkage:
        parts.append(f"\nint {prefix}_act(const {prefix}_real observation[{no}], {prefix}_real action[{nu}]);\n")
        parts += [f"{prefix}_real {prefix}_monitor(const {prefix}_real observation[{no}]);\n"] * (monitor is not None)
    parts.append("\n")
    for name in ("centre", "scale", "low", "high"):
        parts.append(_array(prefix, name, getattr(policy, name)))
    for k, (weight, bias) in enumerate(policy.layers):
        parts += [_array(prefix, f"weight{k}", weight), _array(prefix, f"bias{k}", bias)]
    parts.append(_act(policy, names))
    if monitor is not None:
        parts += ["\n", _array(prefix, "points", monitor.points), _array(prefix, "spread", monitor.scale)]
        parts.append(f"static const {prefix}_real {prefix}_radius = {monitor.radius!r};\n")
        parts.append(_MONITOR.substitute(names, count=len(monitor.points)))
    parts.append("\n#endif\n")
    return "".join(parts).encode()


def _head(policy: Description, names: Mapping[str, object]) -> str:
    p, no = names["p"], names["no"]
    monitor_text = f"""
   {p}_real {p}_monitor(const {p}_real observation[{no}]);
      Return how far an observation lies from the data that were measured; above 1 the policy has not been there.
"""
    units, origin = policy.provenance.get("units"), dict(policy.provenance)
    origin.pop("units", None)
    unit = units if isinstance(units, Mapping) else {}

    def listed(components: tuple[str, ...]) -> str:
        return ", ".join(
            f"{_plain(name)} [{_plain(unit[name])}]" if name in unit else _plain(name) for name in components
        )

    return _HEAD.substitute(
        names,
        mark=MARK,
        title=_plain(policy.provenance.get("system", "")),
        monitor_text=monitor_text if policy.monitor is not None else "",
        observations=listed(policy.observations),
        actions=listed(policy.actions),
        dt=f"{policy.dt:g}",
        provenance="\n   ".join(f"{_plain(key)}: {_plain(value)}" for key, value in origin.items()),
    )


def _act(policy: Description, names: Mapping[str, object]) -> str:
    """Return the function that computes an action."""
    layers, (here, there), columns = "", ("x", "y"), len(policy.observations)
    width = max(columns, *(len(bias) for _, bias in policy.layers))
    for k, (_, bias) in enumerate(policy.layers):
        result = "sum" if k == len(policy.layers) - 1 else f"{names['P']}_TANH(sum)"
        layers += _LAYER.substitute(
            names, k=k, rows=len(bias), columns=columns, source=here, target=there, result=result
        )
        here, there, columns = there, here, len(bias)
    bound = policy.squash
    mean = f"{here}[i]" if bound is None else f"{bound!r} * {names['P']}_TANH({here}[i] / {bound!r})"
    return _ACT.substitute(names, width=width, layers=layers, mean=mean)


def _array(prefix: str, name: str, values: Floats) -> str:
    """Return the definition of a constant array."""
    sizes = "".join(f"[{size}]" for size in values.shape)

    def numbers(row: Floats) -> str:
        texts = [repr(value) for value in row.tolist()]
        return ",\n     ".join(", ".join(texts[i : i + 6]) for i in range(0, len(texts), 6))

    rows = numbers(values) if values.ndim == 1 else "},\n    {".join(numbers(row) for row in values)
    body = rows if values.ndim == 1 else f"{{{rows}}}"
    return f"static const {prefix}_real {prefix}_{name}{sizes} = {{\n    {body}}};\n"


def _plain(value: object) -> str:
    """Return text that is harmless inside a comment."""
    text = printable(str(value)).replace("\n", " ").replace("\\", "/")
    return re.sub(r"\?{2,}", "?", re.sub(r"/(?=\*)|\*(?=/)", r"\g<0> ", text))


# Reading --------------------------------------------------------------------------------------------------------------


def load(path: Path) -> Callable[[Floats], Output]:
    """Compile an exported file; the result runs it. So give no file of a stranger: it is a program."""
    text = content(path).decode(errors="replace")
    found = re.search(r"\bint (\w+)_act\(const", text)
    if not text.startswith(MARK) or found is None:
        raise UserError(f"{path} is no policy that samba-rl export wrote; its first line is not '{MARK}'")
    prefix = found[1]
    compiler = next((tool for tool in COMPILERS if shutil.which(tool)), None)
    if compiler is None:
        raise UserError(f"checking {path} needs a C compiler, but there is none ({', '.join(COMPILERS)}); install one")
    sizes = {key: re.search(rf"^#define {prefix.upper()}_{key} (\d+)$", text, flags=re.M) for key in _SIZES}
    no, nu, has_monitor = (-1 if size is None else int(size[1]) for size in sizes.values())
    if min(no, nu, has_monitor) < 0:
        raise damaged(path, "its sizes are not defined")

    def run(observations: Floats) -> Output:
        if observations.shape[1] != no:
            raise UserError(f"{path} is for observations of {no} numbers, but the run has {observations.shape[1]}")
        results = _run(path, text, prefix, compiler, observations).reshape(-1, nu + 1)
        if len(results) != len(observations):
            raise damaged(path, f"it answered {len(results)} of {len(observations)} observations")
        return Output(results[:, :nu], results[:, nu] if has_monitor else None)

    return run


_SIZES = ("OBSERVATIONS", "ACTIONS", "HAS_MONITOR")


def _run(path: Path, text: str, prefix: str, compiler: str, observations: Floats) -> NDArray[np.float64]:
    """Return everything that the compiled file gives for observations [B, no]."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "policy.h").write_text(text, encoding="utf-8")
        (home / "main.c").write_text(_DRIVER.substitute(p=prefix, P=prefix.upper(), file="policy.h"), encoding="utf-8")
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
