"""The page that a run gets when it ends."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl.cli import main
from samba_rl.report import cards, run_page
from samba_rl.runs import load_run
from samba_rl.runs.folder import EVALUATION, REPORT
from tests.cli.commands import DONE, QUICK


@pytest.fixture
def ended(smoke_run: Path, tmp_path: Path) -> Path:
    """A run that has ended without an evaluation and without a page; `resume` makes both."""
    without = shutil.ignore_patterns(EVALUATION, REPORT, "*.png")
    return Path(shutil.copytree(smoke_run, tmp_path / "run", ignore=without))


def test_train_ends_with_a_page_that_answers_first(smoke_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (smoke_run / REPORT).read_text(encoding="utf-8")
    assert page.index("earned.</b>") < page.index("<video") < page.index("image/svg+xml") < page.index("<table")
    assert page.count("data:image/svg+xml") == 3 and page.count("<video") == 1
    # It needs no script and nothing from elsewhere, and is no part of what is verified.
    assert "<script" not in page and 'src="http' not in page and len(page) < 2e6
    assert main(["verify", str(smoke_run)]) == 0
    assert REPORT not in (smoke_run / "manifest.json").read_text()


def test_a_run_that_is_not_evaluated_is_not_filmed(
    ended: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cards, "policy_film", lambda *_, **__: pytest.fail("the system was run"))
    assert main(["resume", str(ended), "--no-evaluation", "--no-pictures"]) in DONE
    out = capsys.readouterr().out
    assert f"The report is {ended / REPORT}; open it in a browser." in out
    page = (ended / REPORT).read_text(encoding="utf-8")
    assert "It was not evaluated." in page and "so the system was not run for a film" in page
    assert not list(ended.glob("*.png"))


def test_a_rig_is_not_moved_for_it(ended: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cards, "policy_film", lambda *_, **__: pytest.fail("the rig was run"))
    run = load_run(ended)
    on_rig = replace(run, task=replace(run.task, parallel=False))
    run_page.write_run_page(on_rig, tmp_path / "page.html", {}, film=True)
    assert "No clip" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_it_can_be_left_out(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(ended), *QUICK]) in DONE
    assert not (ended / REPORT).exists() and REPORT not in capsys.readouterr().out


def test_a_page_that_cannot_be_made_does_not_fail_the_run(
    ended: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--no-evaluation", "--no-pictures"]
    usual = main(["resume", str(ended), *QUICK])

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the camera fell off")

    with monkeypatch.context() as patched:
        patched.setattr(run_page, "write_run_page", broken)
        assert main(["resume", str(ended), *flags]) == usual
    assert "No report.html: the camera fell off" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["resume", str(ended), *flags]) == usual
    assert (
        "No report.html: a report needs the package 'jinja2'; install it with: pip install" in capsys.readouterr().out
    )
    assert not (ended / REPORT).exists()
