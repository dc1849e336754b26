"""The manifest of a run notices every change; `verify` names what is damaged, and `repair` makes it again."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from samba_rl.cli import main
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import UserError
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.runs.manifest import FILES, problems, read_manifest
from samba_rl.runs.verify import repair, verify
from tests.line import Line
from tests.runs.interrupted import same
from tests.runs.systems import same_policy

Damage = Callable[[Path], object]


def cut_at_a_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def sharper(path: Path) -> None:
    """ζ of the model grows by a fifth."""
    state = unpack(path.read_bytes())
    state["hyper"] = {
        name: value * 1.2 if isinstance(value, torch.Tensor) else value for name, value in state["hyper"].items()
    }
    path.write_bytes(pack(state))


def test_a_finished_run_is_whole(folder: Path) -> None:
    verdict = verify(folder)
    assert verdict.state == "finished" and verdict.damaged == () and verdict.notes == ()
    assert {one.state for one in verdict.findings} == {"whole"} and problems(folder) == {}
    assert {one.file for one in verdict.findings} >= {*FILES, "manifest.json"}
    assert set(read_manifest(folder)["files"]) == set(FILES)  # type: ignore[call-overload]
    assert repair(folder) == verdict


def test_every_flipped_bit_is_noticed(folder: Path) -> None:
    for name in (*FILES, "manifest.json"):
        whole = (folder / name).read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 5)):
            changed = bytearray(whole)
            changed[place] ^= 0x10
            (folder / name).write_bytes(changed)
            with pytest.raises(UserError, match=str(folder)):
                load_run(folder)
            assert name in {one.file for one in verify(folder).damaged}
        (folder / name).write_bytes(whole)
    assert load_run(folder).seed == 3


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("policy.npz", lambda path: path.unlink()),
        ("policy.npz", flip),
        ("model.state", sharper),
        ("metrics.jsonl", cut_at_a_line),
        ("metrics.jsonl", lambda path: path.write_bytes(b"")),
        ("real.csv", cut_at_a_line),
        ("summary.json", lambda path: path.write_text(path.read_text().replace("samba", "s4mba") + " ")),
        ("manifest.json", lambda path: path.unlink()),
        ("manifest.json", lambda path: path.write_text("{}")),
    ],
)
def test_what_is_damaged_is_named_and_made_again(name: str, damage: Damage, pendulum: Run, folder: Path) -> None:
    before = {path: (folder / path).read_bytes() for path in ("real.journal", "config.json", "real.csv", "policy.npz")}
    damage(folder / name)
    with pytest.raises(UserError, match=rf"{name} .*samba-rl (verify|resume)"):
        load_run(folder)
    (found,) = verify(folder).damaged
    assert found.file == name and "--repair" in found.remedy and found.why
    assert repair(folder).damaged == ()
    mended = load_run(folder)
    assert same(mended, pendulum) and {path: (folder / path).read_bytes() for path in before} == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(mended.model.posterior.inputs) == 120
    untimed = [{**vars(event), "seconds": 0.0} for event in mended.trials]
    assert repr(untimed) == repr([{**vars(event), "seconds": 0.0} for event in pendulum.trials])


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("config.json", lambda path: path.write_text(path.read_text().replace("0.75", "99.75")), "copy it again"),
        ("config.json", lambda path: path.write_text("{"), "copy it again"),
        ("real.journal", flip, "copy it again.*--data .*real.csv"),
        ("real.journal", lambda path: path.unlink(), "copy it again"),
    ],
)
def test_what_nothing_can_replace_is_said(name: str, damage: Damage, words: str, folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    damage(folder / name)
    with pytest.raises(UserError, match=name):
        load_run(folder)
    with pytest.raises(UserError, match=rf"{name} .*{words}"):
        repair(folder)
    (folder / "policy.npz").write_text("x")
    remedies = {one.file: one.remedy for one in verify(folder).damaged}
    assert remedies["policy.npz"] == f"it cannot be rebuilt without a whole {name}"
    assert set(before) - {path.name for path in folder.iterdir()} <= {name}


def test_files_of_another_run_do_not_fit(folder: Path, tmp_path: Path) -> None:
    other = train("safe-pendulum", preset="smoke", seed=4, out=tmp_path / "other").folder
    assert other is not None
    for name in ("policy.npz", "model.state", "real.journal", "summary.json", "manifest.json"):
        whole = (folder / name).read_bytes()
        shutil.copy(other / name, folder / name)
        with pytest.raises(UserError):
            load_run(folder)
        assert verify(folder).damaged
        (folder / name).write_bytes(whole)


def test_an_evaluation_that_was_altered(folder: Path) -> None:
    assert main(["resume", str(folder), "--no-pictures", "--no-report"]) in (0, 4)  # 4: it keeps no limit
    assert "evaluation.json" in {one.file for one in verify(folder).findings} and verify(folder).damaged == ()
    path = folder / "evaluation.json"
    value = json.loads(path.read_text())
    value["with_noise"]["TV"] += 1
    path.write_text(json.dumps(value))
    with pytest.raises(UserError, match=r"evaluation\.json was altered since it was written"):
        load_run(folder)
    assert repair(folder).damaged == () and not path.exists()


def test_runs_of_before_manifests_are_read_with_a_note(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["manifest"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").unlink()
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # on a busy machine a short run may not have saved any
    assert load_run(folder).seed == 3
    verdict = verify(folder)
    assert verdict.damaged == () and "without a manifest" in verdict.notes[0]
    assert {one.state for one in verdict.findings if one.file != "real.journal"} == {"unchecked"}
    (folder / "metrics.jsonl").write_text("{")
    assert [one.file for one in verify(folder).damaged] == ["metrics.jsonl"]


def test_a_model_that_differs_is_not_passed_over(folder: Path) -> None:
    """Without a manifest to compare with, the fingerprint of the model is all there is."""
    run = load_run(folder)
    sharper(folder / "model.state")
    with pytest.warns(UserWarning, match=r"model\.state: the model differs from the one at the end of the run"):
        _ = run.model


def test_an_interrupted_run_is_checked_and_mended(copy: Path, whole: Run) -> None:
    assert verify(copy).state == "interrupted" and verify(copy).damaged == ()
    flip(copy / "metrics.jsonl")
    assert [one.file for one in verify(copy).damaged] == ["metrics.jsonl"]
    with pytest.raises(UserError, match=r"metrics\.jsonl was altered since the last checkpoint"):
        resume(copy, Line())
    assert repair(copy, Line()).damaged == () and (copy / "metrics.jsonl.damaged").exists()
    assert same_policy(resume(copy, Line()), whole)


def test_a_damaged_checkpoint_is_named(copy: Path) -> None:
    flip(max(copy.glob("checkpoints/*/agent.state")))
    (found,) = [one for one in verify(copy).findings if "altered" in one.why]
    assert found.file == "checkpoints" and found.remedy == "the one before it is used"


def test_repairing_never_uses_the_real_system(copy: Path) -> None:
    with pytest.raises(UserError, match=r"the journal has no trial \d+; real steps are only taken by samba-rl resume"):
        resume(copy, Line(), measure=False)


def test_a_kill_before_the_summary_leaves_a_run_to_be_resumed(folder: Path, pendulum: Run) -> None:
    """The manifest is there, and the summary that it describes is not."""
    (folder / "summary.json").unlink()
    assert same(resume(folder), pendulum) and verify(folder).damaged == ()


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0 and "No damage was found." in capsys.readouterr().out
    flip(folder / "policy.npz")
    assert main(["verify", str(folder), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["whole"] is False and answer["state"] == "finished"
    assert main(["runs", str(folder)]) == 0 and "damaged" in capsys.readouterr().out
    assert main(["verify", str(folder), "--repair"]) == 0 and os.path.exists(folder / "policy.npz.damaged")
    assert main(["verify", str(folder.parent)]) == 2 and "holds no run" in capsys.readouterr().err
