"""Policies as C99: one file without allocation, for controllers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template

from samba_rl.errors import printable
from samba_rl.export.description import Description, Floats, Layer

MARKS = ("/* samba-rl policy, version 1", "/* samba-rl policy, version 2")
"""First characters of an exported file with a single expert, and of one with several."""

_HEAD = Template("""$mark: $title

   $acting$monitor_text
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
$define_experts
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

_ACTING = Template("""int ${p}_act(const ${p}_real observation[$no], ${p}_real action[$nu]);
      Compute the action for an observation. Returns 0; or 1, and leaves the action alone, if a number is not finite.
""")

_CHOOSING = Template("""int ${p}_begin(const ${p}_real observation[$no]);
      Choose the expert of an episode by its first observation: 0 to $last_expert; or -1 if a number is not finite.

   int ${p}_act(const ${p}_real observation[$no], int expert, ${p}_real action[$nu]);
      Compute the action of an expert, which must stay the same for all of an episode. Returns 0; or 1, and leaves the
      action alone, if a number is not finite or there is no such expert.
""")

_BEGIN = Template("""
${linkage}int ${p}_begin(const ${p}_real observation[$no])
{
    ${p}_real x[$width], y[$width];
    int i, j, best = 0;

    for (i = 0; i < $no; i++) {
        if (!isfinite(observation[i]))
            return -1;
        x[i] = (observation[i] - ${p}_centre[i]) / ${p}_scale[i];
    }
$layers    for (i = 0; i < $experts; i++) {
        if (!isfinite($ratings[i]))
            return -1;
        if ($ratings[i] > $ratings[best])
            best = i;
    }
    return best;
}
""")

_COLUMNS = Template("""    if (expert < 0 || expert >= $experts)
        return 1;
    for (i = 0; i < $experts; i++)
        x[$no + i] = i == expert;
""")

_ACT = Template("""
${linkage}int ${p}_act(const ${p}_real observation[$no], $expert${p}_real action[$nu])
{
    ${p}_real x[$width], y[$width];
    ${p}_real result[$nu];
    int i, j;

    for (i = 0; i < $no; i++) {
        if (!isfinite(observation[i]))
            return 1;
        x[i] = (observation[i] - ${p}_centre[i]) / ${p}_scale[i];
    }
$columns$layers    for (i = 0; i < $nu; i++) {
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

_PROTOTYPE = Template("""
int ${p}_act(const ${p}_real observation[$no], $expert${p}_real action[$nu]);
""")

_LAYER = Template("""    for (i = 0; i < $rows; i++) {
        ${p}_real sum = ${p}_${kind}bias$k[i];
        for (j = 0; j < $columns; j++)
            sum += ${p}_${kind}weight$k[i][j] * $source[j];
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
        "expert": "int expert, " if policy.gate else "",
        "experts": policy.experts,
    }
    parts = [_head(policy, names)]
    if not linkage:
        parts += [f"\nint {prefix}_begin(const {prefix}_real observation[{no}]);"] * bool(policy.gate)
        parts.append(_PROTOTYPE.substitute(names))
        parts += [f"{prefix}_real {prefix}_monitor(const {prefix}_real observation[{no}]);\n"] * (monitor is not None)
    parts.append("\n")
    for name in ("centre", "scale", "low", "high"):
        parts.append(_array(prefix, name, getattr(policy, name)))
    for kind, layers in (("gate_", policy.gate), ("", policy.layers)):
        for k, (weight, bias) in enumerate(layers):
            parts += [_array(prefix, f"{kind}weight{k}", weight), _array(prefix, f"{kind}bias{k}", bias)]
    if policy.gate:
        parts.append(_begin(policy, names))
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
        mark=MARKS[bool(policy.gate)],
        title=_plain(policy.provenance.get("system", "")),
        acting=(_CHOOSING if policy.gate else _ACTING).substitute(names, last_expert=policy.experts - 1),
        define_experts=f"#define {names['P']}_EXPERTS {policy.experts}\n" if policy.gate else "",
        monitor_text=monitor_text if policy.monitor is not None else "",
        observations=listed(policy.observations),
        actions=listed(policy.actions),
        dt=f"{policy.dt:g}",
        provenance="\n   ".join(f"{_plain(key)}: {_plain(value)}" for key, value in origin.items()),
    )


def _begin(policy: Description, names: Mapping[str, object]) -> str:
    """Return the function that chooses an expert."""
    layers, ratings, width = _network(policy.gate, len(policy.observations), names, "gate_")
    return _BEGIN.substitute(names, width=width, layers=layers, ratings=ratings)


def _act(policy: Description, names: Mapping[str, object]) -> str:
    """Return the function that computes an action."""
    columns = _COLUMNS.substitute(names) if policy.gate else ""
    inputs = len(policy.observations) + (policy.experts if policy.gate else 0)
    layers, last, width = _network(policy.layers, inputs, names, "")
    bound = policy.squash
    mean = f"{last}[i]" if bound is None else f"{bound!r} * {names['P']}_TANH({last}[i] / {bound!r})"
    return _ACT.substitute(names, width=width, columns=columns, layers=layers, mean=mean)


def _network(layers: tuple[Layer, ...], inputs: int, names: Mapping[str, object], kind: str) -> tuple[str, str, int]:
    """Return the statements that compute a network of `inputs` from x, its result's name, and the size of x and y."""
    text, (here, there), columns = "", ("x", "y"), inputs
    for k, (_, bias) in enumerate(layers):
        result = "sum" if k == len(layers) - 1 else f"{names['P']}_TANH(sum)"
        text += _LAYER.substitute(
            names, k=k, kind=kind, rows=len(bias), columns=columns, source=here, target=there, result=result
        )
        here, there, columns = there, here, len(bias)
    return text, here, max(inputs, *(len(bias) for _, bias in layers))


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
