"""C99: it compiles without a warning, as a header and as a source file, in double and in float."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from samba_rl.export.as_c import prefix_of
from samba_rl.export.formats import write
from tests.export.policies import a_policy, observations

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")


def compiled(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["gcc", *STRICT, *arguments, "-lm"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@gcc
@pytest.mark.parametrize("real", ["double", "float"])
def test_a_header_compiles_without_a_warning_and_refuses_what_is_not_finite(real: str, tmp_path: Path) -> None:
    write(a_policy(), tmp_path / "my-rig.h")
    (tmp_path / "main.c").write_text(
        """#include "my-rig.h"
        int main(void)
        {
            my_rig_real seen[MY_RIG_OBSERVATIONS] = {1, 0, -5}, action[MY_RIG_ACTIONS] = {42, 42};
            if (sizeof(my_rig_real) != EXPECTED) return 1;
            seen[1] = (my_rig_real)NAN;
            if (my_rig_act(seen, action) != 1 || action[0] != 42 || my_rig_monitor(seen) <= 1e9) return 2;
            seen[1] = (my_rig_real)INFINITY;
            if (my_rig_act(seen, action) != 1 || action[1] != 42) return 3;
            seen[1] = 0;
            if (my_rig_act(seen, action) != 0 || action[0] < -2 || action[0] > 2) return 4;
            return 0;
        }"""
    )
    flags = ["-DMY_RIG_FLOAT", "-DEXPECTED=4"] if real == "float" else ["-DEXPECTED=8"]
    compiled(tmp_path, *flags, "-o", "main", "main.c")
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


@gcc
@pytest.mark.parametrize("real", ["double", "float"])
def test_a_policy_of_several_experts_begins_an_episode_with_one_of_them(real: str, tmp_path: Path) -> None:
    policy = a_policy(experts=3)
    write(policy, tmp_path / "policy.h")
    first = next(one for one in observations(policy, 100) if policy(one[None]).expert == 2)
    starts, seen = (", ".join(map(repr, one.tolist())) for one in (first, policy.centre))
    (tmp_path / "main.c").write_text(
        f"""#include <stdio.h>
        #include "policy.h"
        int main(void)
        {{
            policy_real first[POLICY_OBSERVATIONS] = {{{starts}}}, seen[POLICY_OBSERVATIONS] = {{{seen}}};
            policy_real action[POLICY_ACTIONS] = {{42, 42}};
            int expert = policy_begin(first);
            if (POLICY_EXPERTS != 3 || expert != 2) return 1;
            if (policy_act(seen, -1, action) != 1 || policy_act(seen, 3, action) != 1 || action[0] != 42) return 2;
            for (expert = 0; expert < POLICY_EXPERTS; expert++) {{
                if (policy_act(seen, expert, action) != 0) return 3;
                printf("%.17g %.17g\\n", (double)action[0], (double)action[1]);
            }}
            first[1] = (policy_real)NAN;
            if (policy_begin(first) != -1) return 4;
            first[1] = (policy_real)INFINITY;
            if (policy_begin(first) != -1) return 5;
            return 0;
        }}"""
    )
    compiled(tmp_path, *(["-DPOLICY_FLOAT"] if real == "float" else []), "-o", "main", "main.c")
    done = subprocess.run([tmp_path / "main"], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    found = np.array([line.split() for line in done.stdout.splitlines()], dtype=np.float64)
    starts_of = [next(one for one in observations(policy, 100) if policy(one[None]).expert == k) for k in range(3)]
    due = [policy(policy.centre[None], one[None]).action[0] for one in starts_of]
    assert np.abs(found - due).max() < (1e-5 if real == "float" else 1e-12)
    assert len(np.unique(found[:, 0])) == 3


@gcc
def test_a_source_file_of_several_experts_declares_both_functions(tmp_path: Path) -> None:
    write(a_policy(experts=2), tmp_path / "policy.c")
    (tmp_path / "main.c").write_text(
        "int policy_begin(const double first[3]);\n"
        "int policy_act(const double observation[3], int expert, double action[2]);\n"
        "int main(void) { double o[3] = {1, 0, -5}, u[2]; return policy_act(o, policy_begin(o), u); }\n"
    )
    compiled(tmp_path, "-Wmissing-prototypes", "-c", "policy.c")
    compiled(tmp_path, "-o", "main", "main.c", "policy.o")
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


@gcc
def test_a_source_file_is_compiled_once_and_linked(tmp_path: Path) -> None:
    write(a_policy(), tmp_path / "policy.c")
    (tmp_path / "main.c").write_text(
        "int policy_act(const double observation[3], double action[2]);\n"
        "int main(void) { double o[3] = {1, 0, -5}, u[2]; return policy_act(o, u); }\n"
    )
    compiled(tmp_path, "-o", "main", "main.c", "policy.c")
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_a_file_allocates_nothing_and_includes_only_mathematics(tmp_path: Path) -> None:
    write(a_policy(), tmp_path / "policy.h")
    text = (tmp_path / "policy.h").read_text()
    assert text.count("#include") == 1 and "#include <math.h>" in text and "alloc" not in text
    assert text.count("*/") == 1 and "force [N]" in text and "every 0.02 s" in text


@pytest.mark.parametrize(
    ("stem", "prefix"),
    [("policy", "policy"), ("my-rig 2", "my_rig_2"), ("3", "policy_3"), ("ß", "policy"), ("_a", "a")],
)
def test_names_follow_from_the_files_name(stem: str, prefix: str) -> None:
    assert prefix_of(stem) == prefix
