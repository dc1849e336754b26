"""The first trial of a rig is made with care."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl.data.journal import Journal
from samba_rl.errors import Stopped, UserError
from samba_rl.runs import resume, train
from samba_rl.types import Traces
from tests.runs.systems import counting_rig
from tests.threads import one_thread

SMOKE: dict[str, Any] = {"preset": "smoke", "real_samples": 20, "first": {"samples": 10}, "episodes": 1}


def test_a_controller_of_ones_own_makes_it_and_is_named_again_to_resume(tmp_path: Path) -> None:
    def controller(observation: torch.Tensor) -> torch.Tensor:
        return -0.25 * observation

    with one_thread():
        with pytest.raises(UserError, match="the controller returned a float"):
            train(counting_rig(), first_policy=lambda o: 1.0, out=tmp_path / "wrong", **SMOKE)  # type: ignore[arg-type, return-value]
        train(counting_rig(), first_policy=controller, out=tmp_path / "run", **SMOKE)
    record = Journal.read(tmp_path / "run" / "real.journal").find(0, 0)
    assert record is not None and isinstance(record.steps, Traces)
    assert torch.equal(record.steps.u, -0.25 * record.steps.x[:, :-1])
    before = [0]

    def stop() -> bool:
        before[0] += 1
        return True

    with one_thread(), pytest.raises(Stopped):
        train(counting_rig(), first_policy=controller, out=tmp_path / "half", stop=stop, **SMOKE)
    (tmp_path / "half" / "real.journal").write_bytes(b"samba_rl journal, format 1\n")
    for path in (tmp_path / "half" / "checkpoints").rglob("*.*"):
        path.unlink()
    with pytest.raises(UserError, match=r"its first trial is made by a controller of yours; give it: --first.policy"):
        resume(tmp_path / "half", counting_rig())


def test_a_bound_on_its_hazard_is_a_notice_and_what_was_measured_counts(tmp_path: Path) -> None:
    with one_thread():
        run = train(
            counting_rig(), first_policy=torch.ones_like, out=tmp_path / "run",
            **{**SMOKE, "first": {"samples": 10, "stop": 0.5}},
        )  # fmt: skip
    assert any("above first.stop = 0.5; the episode is kept up to there" in notice.text for notice in run.notices)
    assert 1 <= run.trials[0].real_samples < 10 and run.summary["real_samples"] > 10
