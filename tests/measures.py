"""Measures of how readable the package is. Print them: python tests/measures.py"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "samba_rl"

WALK = (
    "learners.py",
    "algorithm.py",
    "agents/policy_gradient.py",
    "agents/experience.py",
    "models/gp.py",
    "models/exact.py",
    "models/information.py",
    "models/world.py",
    "tasks/rollout.py",
    "improve/step.py",
    "improve/constraints.py",
    "improve/multipliers.py",
    "improve/updates/min_norm.py",
    "improve/updates/proximal.py",
)
"""Files to open to follow SAMBA from its row to the update of its policy: the row, both loops, the model and its
imagination with ζ, advantages and weights, the constraint and its multiplier, λ_π, and the proximal update."""

WORDS = frozenset(
    {"samba", "sppilco", "ppilco", "ppo", "sppo", "trpo", "strpo", "cpo", "planet", "planet-rs"}
    | {"proximal", "trust-region", "projection"}
    | {"model", "real", "latent", "none"}
    | {"loo", "bootstrap", "entropy"}
    | {"cvar", "expectation", "chance"}
)
"""Names of learners, update rules, sources of traces, ζ and kinds of constraints."""
NAMERS = ("learners.py", "presets.py", "cli/")
"""Files that may compare those names: they turn words into values."""

SERIALISATION = (
    "agents/words.py",
    "benchmark/audit.py",
    "benchmark/collect.py",
    "benchmark/reference.py",
    "data/minari_io.py",
    "data/packing.py",
    "data/plain.py",
    "data/tables.py",
    "export/as_json.py",
    "export/as_onnx.py",
    "runs/checkpoints.py",
    "runs/checks.py",
    "runs/differences.py",
    "runs/folder.py",
    "runs/limits.py",
    "runs/listing.py",
    "runs/loading.py",
    "runs/policy_file.py",
    "runs/request.py",
    "runs/summary.py",
    "runs/upgrade.py",
    "runs/writer.py",
)
"""Files that read or write JSON, CSV, ONNX, Minari data sets and checkpoints, whose values can be anything."""


def sources() -> dict[str, str]:
    """Return the text of every module, by its path in the package."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def lines(name: str) -> int:
    """Return the number of lines of a module."""
    return len((PACKAGE / name).read_text("utf-8").splitlines())


def compared_words() -> list[str]:
    """Return the places that compare a value with the name of a learner, rule, source, ζ or kind of constraint."""
    found = []
    for name, text in sources().items():
        if name.startswith(NAMERS):
            continue
        for node in ast.walk(ast.parse(text)):
            parts: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
            elif isinstance(node, ast.MatchValue):
                parts = [node.value]
            flat = [leaf for part in parts for leaf in (part.elts if isinstance(part, ast.Tuple | ast.Set) else [part])]
            if any(isinstance(leaf, ast.Constant) and leaf.value in WORDS for leaf in flat):
                found.append(f"{name}:{node.lineno if isinstance(node, ast.Compare) else '?'}")
    return found


def positional_bools() -> list[str]:
    """Return the boolean parameters that can be passed by position."""
    found = []
    for name, function in _functions():
        arguments = [*function.args.posonlyargs, *function.args.args]
        found += [
            f"{name}:{function.lineno} {function.name}({argument.arg})"
            for argument in arguments
            if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "bool"
        ]
    return found


def any_in_signatures() -> list[str]:
    """Return the functions outside serialisation whose signature has `Any`."""
    found = []
    for name, function in _functions():
        every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        every += [extra for extra in (function.args.vararg, function.args.kwarg) if extra is not None]
        annotations = [argument.annotation for argument in every] + [function.returns]
        names = {n.id for a in annotations if a is not None for n in ast.walk(a) if isinstance(n, ast.Name)}
        if "Any" in names and name not in SERIALISATION:
            found.append(f"{name}:{function.lineno} {function.name}")
    return found


def _functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for name, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                yield name, node


def measures() -> dict[str, tuple[float, float]]:
    """Return each measure beside the most that it may be."""
    sizes = {name: lines(name) for name in sources()}
    top = [name for name in sizes if "/" not in name and not name.startswith("__")]
    return {
        "files to open for SAMBA, from the row to the update": (len(WALK), 14),
        "lines to open for SAMBA": (sum(sizes[name] for name in WALK), 2500),
        "lines of the algorithm": (sizes["algorithm.py"], 150),
        "modules in the top folder": (len(top), 8),
        "comparisons with names of learners, rules, sources, ζ": (len(compared_words()), 0),
        "files over 300 lines": (sum(size > 300 for size in sizes.values()), 5),
        "lines of the longest file": (max(sizes.values()), 350),
        "positional bool parameters": (len(positional_bools()), 0),
        "signatures with Any outside serialisation": (len(any_in_signatures()), 20),
        "source lines": (sum(sizes.values()), 38_500),
    }


def main() -> None:
    for what, (value, most) in measures().items():
        print(f"{what:55} {value:6,}  (at most {most:,})")
    for where in (*compared_words(), *positional_bools(), *any_in_signatures()):
        print(" ", where)


if __name__ == "__main__":
    main()
