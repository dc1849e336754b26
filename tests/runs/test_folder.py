"""The folder of a run: what is in it, and what is said when it is not as it should be."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from samba_rl.data import DataSet
from samba_rl.errors import UserError
from samba_rl.events import Notice
from samba_rl.runs import Run, load_run, train
from samba_rl.runs.writer import RunFolder
from tests.line import Line


def test_everything_is_there_and_plain(pendulum: Run) -> None:
    folder = pendulum.folder
    assert folder is not None
    files = {"config.json", "metrics.jsonl", "real.journal", "real.csv", "policy.npz", "summary.json"}
    assert {path.name for path in folder.iterdir()} >= files | {".lock", "model.state"}
    config = json.loads((folder / "config.json").read_text())
    assert config["format"] == 2 and config["versions"]["torch"] == torch.__version__ and config["threads"] == 1
    assert config["task"] == "safe-pendulum" and config["row"]["constraint"] == "cvar"
    rows = [
        json.loads(line, parse_constant=pytest.fail) for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    kinds = [row["kind"] for row in rows]
    assert kinds.count("trial") == len(pendulum.trials) and kinds.count("improvement") == len(pendulum.improvements)
    assert rows[0]["kind"] == "trial" and rows[0]["surprise"] is None and rows[0]["return_mean"] < 0
    assert json.loads((folder / "summary.json").read_text()) == pendulum.summary
    assert len(DataSet.from_csv(folder / "real.csv")) == pendulum.summary["real_samples"]
    with np.load(folder / "policy.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == set(pendulum.policy.state_dict())


def test_data_are_on_the_disk_after_each_trial(tmp_path: Path) -> None:
    lengths = []

    def log(event: object) -> None:
        if (tmp_path / "run" / "real.csv").exists():
            lengths.append(len(DataSet.from_csv(tmp_path / "run" / "real.csv")))

    train(Line(), "ppilco", preset="smoke", real_samples=70, out=tmp_path / "run", log=log)
    assert lengths[0] == 60 and lengths[-1] == 70 and sorted(set(lengths)) == [60, 70]


def test_an_interrupted_run_says_so_and_keeps_what_was_measured(tmp_path: Path) -> None:
    def log(event: object) -> None:
        if (tmp_path / "run" / "real.csv").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Line(), preset="smoke", out=tmp_path / "run", log=log)
    with pytest.raises(UserError, match=r"policy.npz is missing: the run did not finish.*samba-rl resume .*run"):
        load_run(tmp_path / "run", Line())
    with pytest.raises(UserError, match="already holds a run; continue it with: samba-rl resume"):
        train(Line(), preset="smoke", out=tmp_path / "run")


def test_a_folder_that_holds_a_run_is_refused_and_left_alone(pendulum: Run, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}
    with pytest.raises(UserError, match="already holds a run"):
        train("safe-pendulum", preset="smoke", out=folder)
    assert {path: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()} == before
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="already holds a run"):
        RunFolder.create(folder, {})


def test_a_folder_with_other_things_in_it_is_fine_and_they_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    writer = RunFolder.create(tmp_path, {"task": "line"})
    writer(Notice("hello"))
    assert (tmp_path / "metrics.jsonl").read_text() == '{"kind": "notice", "text": "hello"}\n'
    writer.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def rewrite(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(change((folder / name).read_text()))


def altered(name: str, place: int) -> Callable[[Path], object]:
    """One bit of a file is flipped."""

    def flip(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[place] ^= 1
        (folder / name).write_bytes(data)

    return flip


def in_config(**changes: object) -> Callable[[Path], object]:
    return rewrite("config.json", lambda text: json.dumps({**json.loads(text), **changes}))


def arrays(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    with np.load(folder / "policy.npz") as found:
        state: dict[str, object] = dict(found)
    change(state)
    np.savez(folder / "policy.npz", allow_pickle=True, **state)  # type: ignore[arg-type]


class Evil:
    """Code that a pickle in the place of numbers would run."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("code from a file was run",)


def with_pickle(folder: Path) -> None:
    (folder / "policy.npz").write_bytes(pickle.dumps(Evil()))


def with_npy(folder: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    (folder / "policy.npz").write_bytes(file.getvalue())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "holds no run: it has no config.json"),
        (rewrite("config.json", lambda text: text[:100]), "config.json is damaged .*; copy the run's folder again"),
        (rewrite("config.json", lambda text: "[1]"), "config.json is damaged .it holds a list"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "config.json is damaged"),
        (in_config(seed="0"), "config.json: seed is '0'; it must be a whole number"),
        (in_config(task=None), "config.json: task is None; it must be text"),
        (in_config(task="os:system"), "on 'os:system', which is not one of the paper's systems"),
        (
            in_config(row={"zeta": "x"}),
            "row.zeta is 'x'; it must be one of loo, loo-observed, bootstrap, entropy, information, none",
        ),
        (in_config(row=None), "row is None; it must be a group of named values"),
        (in_config(row={"objectives": 3}), "row.objectives is 3; it must be a list"),
        (in_config(row={"objectives": [3]}), r"row.objectives\[0\] is 3; it must be one of cost, safety, information"),
        (in_config(settings={"code": "x"}), "settings has no 'code'"),
        (in_config(settings={"policy": {"hidden": [8]}}), r"policy.npz is damaged \(.*expected"),
        (in_config(settings={"policy": {"hidden": [8, 8]}}), r"'network.0.weight' is \[32, 3\]"),
        (lambda f: (f / "policy.npz").unlink(), "policy.npz is missing"),
        (lambda f: (f / "policy.npz").write_bytes(b""), "policy.npz is damaged"),
        (lambda f: (f / "policy.npz").write_bytes((f / "policy.npz").read_bytes()[:900]), "policy.npz is damaged"),
        (with_pickle, "policy.npz is damaged"),
        (with_npy, "policy.npz is damaged"),
        (lambda f: arrays(f, lambda s: s.pop("log_std")), "policy.npz is damaged"),
        (
            lambda f: arrays(f, lambda s: s.update(log_std=np.array([np.nan], "f4"))),
            "'log_std' contains NaN or infinity",
        ),
        (lambda f: arrays(f, lambda s: s.update(log_std=np.array([0.0]))), r"'log_std' is \[1\] .torch.float64"),
        (lambda f: arrays(f, lambda s: s.update(log_std=np.array([Evil()]))), "policy.npz is damaged"),
        (lambda f: (f / "summary.json").unlink(), "summary.json is missing: the run did not finish"),
        (lambda f: (f / "real.journal").unlink(), "real.journal cannot be read: No such file"),
        (altered("real.journal", 3000), r"real.journal is damaged \(record 1 was torn or altered\).*--data .*real.csv"),
        (altered("real.journal", 0), "real.journal is damaged .it does not begin like a journal"),
        (rewrite("metrics.jsonl", lambda text: text[:-30]), "metrics.jsonl is damaged .its last line is incomplete"),
        (
            rewrite("metrics.jsonl", lambda text: text.replace('"trial"', '"trail"')),
            "line 1 is of unknown kind 'trail'",
        ),
        (rewrite("metrics.jsonl", lambda text: text.replace('"lambda_pi"', '"lambda"')), "line 2 has no 'lambda'"),
    ],
)
def test_damage_is_named_with_its_file(damage: Callable[[Path], object], message: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(UserError, match=message) as caught:
        load_run(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
