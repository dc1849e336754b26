"""The wheel: what is in it, and that it trains where nothing is installed but what it requires."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import samba_rl

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SMOKE = ["train", "safe-pendulum", "--preset", "smoke", "--workers", "0", "--out"]


def modules(requirements: list[str]) -> set[str]:
    """Return the names of requirements, as one imports them."""
    names = {re.split(r"[\[<>=~!; ]", one)[0] for one in requirements}
    others = {"gymnasium-robotics": "gymnasium_robotics", "imageio-ffmpeg": "imageio_ffmpeg"}
    return {others.get(name, name) for name in names - {"samba-rl"}}


EXTRAS = modules([one for name, given in PROJECT["optional-dependencies"].items() if name != "dev" for one in given])
"""Packages of the extras, which nobody needs to have."""


def test_training_needs_no_extra(tmp_path: Path) -> None:
    assert {"mujoco", "matplotlib", "tensorboard", "plotly", "onnx", "ray", "minari", "pyarrow"} <= EXTRAS
    hiding = (
        "import importlib.abc, importlib.util, sys\n"
        f"hidden = {sorted(EXTRAS)!r}\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in hidden:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name.split('.')[0] in hidden else find(name, *a)\n"
        "from samba_rl.cli import main\n"
        f"code = main({[*SMOKE, 'run', '--evaluation-steps', '60']!r})\n"
        "assert code in (0, 4), code\n"
        "assert main(['eval', 'run', '--episodes', '2']) == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", hiding], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as a user's pip does, from a copy without what is built already."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"samba_rl-{samba_rl.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    package = ROOT / "samba_rl"
    wanted = [path for path in package.rglob("*") if path.suffix in (".py", ".json", ".html", ".typed")]
    own = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert own == {path.relative_to(ROOT).as_posix() for path in wanted}


@pytest.mark.slow
def test_the_wheel_trains_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / "bin"
    python, constraints = str(scripts / "python"), str(ROOT / "constraints.txt")
    subprocess.run([python, "-m", "pip", "install", "-q", "--constraint", constraints, str(wheel)], check=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    run = [str(scripts / "samba-rl"), *SMOKE, "run", "--evaluation-steps", "60"]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr
    load = "import samba_rl; print(samba_rl.load_run('run').summary['real_samples'], samba_rl.__file__)"
    read = [python, "-c", load]
    found = subprocess.run(read, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith(f"120 {tmp_path / 'env'}")


def test_the_version_is_said_once_and_cited() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.M)
    assert cited is not None and cited[1] == samba_rl.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {samba_rl.__version__}\n" in changes


def test_the_public_ci_tests_every_supported_version() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    supported = [one.rsplit(" ", 1)[1] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    assert f"python: {supported}".replace("'", '"') in workflow
    assert PROJECT["requires-python"] == f">={supported[0]}"
    assert all(f"run: make {target}" in workflow for target in ("check", "test", "docs"))
