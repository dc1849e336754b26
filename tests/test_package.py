"""Importing the package: its cost and its side effects."""

import subprocess
import sys

import pytest

import samba_rl


def python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_pulls_in_nothing_heavy() -> None:
    loaded = python(
        "import samba_rl, sys\n"
        "samba_rl.SafePendulum; samba_rl.SafeFetchReach; samba_rl.rollout; samba_rl.UniformPolicy; samba_rl.make_task\n"
        "samba_rl.train; samba_rl.load_run; samba_rl.Agent\n"
        "heavy = 'mujoco', 'matplotlib', 'tensorboard', 'PIL', 'rich', 'tyro', 'ray'\n"
        "print(*(module for module in heavy if module in sys.modules))"
    )
    assert loaded.strip() == ""


ADDED = """
import time
start = time.process_time()
import torch, gpytorch, sys
before, begin = set(sys.modules), time.process_time()
import samba_rl
samba_rl.make_task, samba_rl.rollout, samba_rl.UniformPolicy
print((time.process_time() - begin) / (begin - start))
print(*sorted(set(sys.modules) - before))
"""


def test_import_adds_little_to_torch_and_gpytorch() -> None:
    """In processor time as a share of theirs, so that neither a slow machine nor a busy one counts."""
    shares: list[float] = []
    while len(shares) < 3 and min(shares, default=1.0) >= 0.25:
        share, names = python(ADDED).splitlines()
        shares.append(float(share))
    assert min(shares) < 0.25, shares
    added = names.split()
    packages = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    light = {"samba_rl", "gymnasium", "farama_notifications", "numpy", "cython_runtime"}
    assert {name for name in packages if not name.startswith("_cython")} <= light
    # The systems, policies and what runs them: no models, learners, runs or reports.
    assert len([name for name in added if name.startswith("samba_rl")]) <= 30


def test_help_does_not_wait_for_torch() -> None:
    loaded = python(
        "import sys\nfrom samba_rl.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules)"
    )
    assert loaded.splitlines()[-1] == "False"


@pytest.mark.parametrize("order", ["import samba_rl, gymnasium", "import gymnasium, samba_rl"])
def test_ids_are_registered_whichever_comes_first(order: str) -> None:
    ids = python(f"{order}\nprint(sum(i in gymnasium.registry for i in samba_rl.IDS))")
    assert ids.strip() == "3"


def test_it_works_without_gymnasium() -> None:
    said = python(
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] == 'gymnasium':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'gymnasium' else find(name, *a)\n"
        "import samba_rl\n"
        "run = samba_rl.train('safe-pendulum', preset='smoke', seed=0, out=None)\n"
        "print(run.summary['real_samples'], 'gymnasium' in sys.modules)"
    )
    assert said.split() == ["120", "False"]


def test_package_prefix_in_an_id_works_without_importing_first() -> None:
    assert "SafePendulum" in python("import gymnasium\nprint(gymnasium.make('samba_rl:SafePendulum-v0'))")


def test_every_public_name_exists() -> None:
    for name in samba_rl.__all__:
        assert getattr(samba_rl, name) is not None
    assert callable(samba_rl.rollout)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = samba_rl.nothing
