"""C99: it compiles without a warning, as a header and as a source file, in double and in float."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from samba_rl.export.as_c import prefix_of
from samba_rl.export.formats import write
from tests.export.policies import a_policy

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
