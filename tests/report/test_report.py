"""The report: the content of the page, and how a browser shows it."""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from samba_rl.benchmark.cells import Cell, CellResult, write_result
from samba_rl.benchmark.running import run_cell
from samba_rl.cli import main
from samba_rl.data.plain import to_plain
from samba_rl.errors import UserError
from samba_rl.report.report import make_report
from samba_rl.runs import train
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.evaluation import StandardErrors
from samba_rl.runs.folder import write_json
from samba_rl.runs.manifest import seal
from tests.browser import browser
from tests.line import Line, quick_settings
from tests.report.results import result
from tests.threads import one_thread

PENDULUM = "safe-pendulum"
EVIL = "<img src=x onerror=alert(1)>&amp;"


@dataclass(frozen=True)
class Made:
    """Runs, results and the page about both."""

    runs: Path
    results: Path
    cell: CellResult
    page: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("report")
    runs, results = home / "runs", home / "results"
    with one_thread():
        cell = run_cell(Cell(PENDULUM, "samba", 3, "smoke"), runs / EVIL.replace("/", ""), steps=200)
        write_result(results, cell)
        # A limit other than the preset's, and no evaluation yet.
        train(PENDULUM, "sppo", preset="smoke", seed=4, out=runs / "sppo", constraint={"limit": 0.5})
        for seed in (5, 6):
            write_result(results, run_cell(Cell(PENDULUM, "ppo", seed, "smoke"), home / f"gone-{seed}", steps=200))
        shutil.copytree(runs / "sppo", runs / "torn")
        (runs / "torn" / "summary.json").unlink()
        assert main(["report", str(runs), str(results), "-o", str(home / "report.html"), "--steps", "200"]) == 0
    return Made(runs, results, cell, home / "report.html")


class _Text(HTMLParser):
    """The words of a page, without its scripts and styles, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._skipped = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._skipped = tag if tag in ("script", "style") else self._skipped

    def handle_endtag(self, tag: str) -> None:
        self._skipped = "" if tag == self._skipped else self._skipped

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.words += data.split()

    @property
    def text(self) -> str:
        return " ".join(self.words)


# Content --------------------------------------------------------------------------------------------------------------


def test_the_page_lists_runs_tables_figures_and_policies(made: Made) -> None:
    page = _Text(made.page.read_text(encoding="utf-8"))
    for words in (
        "SAMBA, PPO, SPPO on Safe Pendulum",
        "5 runs (4 finished, 1 interrupted)",
        "Interrupted. The last trial had a return of",
        f"samba-rl resume {made.runs / 'torn'}",
        "240 of 240",
        "Safety during and after learning",
        "Constraint satisfaction and return",
        "Cost of learning relative to SAMBA",
        "Learning curves on Safe Pendulum",
        "Return against safety on Safe Pendulum",
        "Constraint of SAMBA, ξ 0.75 on Safe Pendulum",
        "No clip: the run's folder is not available, only its result.",
        "imagination.trajectories",
        "gpytorch",
    ):
        assert words in page.text, words
    assert f"{made.cell.learning_TC:.3g}" in page.words
    (measured,) = made.cell.with_noise.constraints
    assert not measured.kept and f", limit {measured.limit:g} ({measured.kind}): broken" in page.text
    # Only the two runs whose folders are available have a clip; the seeds of PPO share a verdict.
    assert sum(tag == "video" for tag, _ in page.elements) == 2
    assert "PPO on Safe Pendulum 2 seeds: 5, 6" in page.text
    assert page.text.count("(1 changed from the preset)") == 1


def test_the_verdicts_come_first_and_the_table_of_runs_last(made: Made) -> None:
    page = made.page.read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == ["verdicts", "policies", "figures", "tables", "runs"]
    for first, then in itertools.pairwise(("<article", "<video", 'id="figures"')):
        assert page.index(first) < page.index(then)
    titles = re.findall(r"<article[^>]*><h3>(.*?)(?: <span|</h3>)", page.split('id="policies"')[0])
    assert len(titles) == 4 == len(set(titles))
    # Captions are short; what explains them is folded.
    for words in re.findall(r'<p class="soft">(.*?)</p>', re.sub("<details.*?</details>", "", page, flags=re.S)):
        assert len(words) < 120, words
    # A few seconds are no fraction of a minute.
    assert re.search(r'data-label="Time">\d+ s<', page)


def test_a_page_about_one_s_own_system_says_nothing_of_the_paper(tmp_path: Path) -> None:
    mine = result("samba", 0, "cart")
    write_result(tmp_path, replace(mine, with_noise=replace(mine.with_noise, limit=1.0)))
    text = _Text(make_report([tmp_path])).text
    assert "Constraint satisfaction and return" in text and "paper" not in text and "left out" not in text
    write_result(tmp_path, result("samba", 0))
    assert "the paper's values in round brackets" in _Text(make_report([tmp_path])).text


def alarms(page: str) -> list[str]:
    """The texts that a page shows in red."""
    found = re.findall(r'<(th|p) [^>]*class="[^"]*\balarm"[^>]*>(.*?)</\1>', page)
    return [html.unescape(words) for _, words in found]


@pytest.mark.parametrize(("error", "red"), [(0.2, False), (0.1, True)])
def test_a_limit_that_was_measured_above_is_red(error: float, red: bool, tmp_path: Path) -> None:
    plain = result("sppo", 1, cost=1.0)  # whose constraint is 1, with a limit of 0.75
    errors = StandardErrors(1, 1, 1, 1, (1, 1, 1), 1, 1, (error,))
    write_result(tmp_path, replace(plain, with_noise=replace(plain.with_noise, errors=errors), tail=()))
    page = make_report([tmp_path])
    words = f"CVaR 0.9 of the hazard is measured above its limit: 1 ± {1.96 * error:.2g}, limit 0.75."
    cell = f"1 ± {1.96 * error:.2g}, limit 0.75 (CVaR 0.9): broken"
    assert sorted(alarms(page)) == ([cell, f"The limit is not kept. {words}"] if red else [])
    assert (">Limit broken.<" in page) is red and (">Limit unclear.<" in page) is not red
    assert ("Limit not kept: 1 run." in _Text(page).text) is red


def test_a_limit_that_the_model_does_not_see_kept_is_red(made: Made, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made.runs / "sppo", tmp_path / "sppo"))
    told = json.loads((run / "summary.json").read_text())
    (limit,) = told["constraints"]
    bad = {**told, "limit_kept": False, "constraints": [{**limit, "bound": 4.35, "accepted": 0.43}]}
    content = json.dumps(bad).encode()
    seal(run, content)
    (run / "summary.json").write_bytes(content)
    with one_thread():
        cards = alarms(make_report([run], steps=60, episodes=0))
    words = "The limit is not kept. mean of the hazard cost of a trajectory is bounded by 4.35 on the model; "
    assert cards[0] == words + "0.43 is accepted, limit 0.5."


def test_names_are_escaped_and_nothing_comes_from_elsewhere(made: Made) -> None:
    text = made.page.read_text(encoding="utf-8")
    page = _Text(text)
    assert "<img src=x" not in text and EVIL.replace("/", "") in page.text
    for tag, attributes in page.elements:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("data:", "#")), (tag, value[:80])
    assert not re.search(r"@import|url\(\s*['\"]?http", text.split("<script>")[0])


def test_the_same_runs_give_the_same_page(made: Made) -> None:
    with one_thread():
        once, again = (make_report([made.runs / "sppo"], steps=60, episodes=0, title=EVIL) for _ in range(2))
    assert once == again and _Text(once).words[0] == EVIL.split()[0]
    assert "No clip: clips are turned off." in _Text(once).text


def test_a_run_on_one_s_own_system(tmp_path: Path) -> None:
    with one_thread():
        train(Line(), settings=quick_settings(), out=tmp_path / "mine", seed=1)
        alone = _Text(make_report([tmp_path])).text
        given = make_report([tmp_path], task=Line(), steps=100, episodes=1)
    # A folder cannot name code to run, so the system has to be given.
    assert "Not judged. It was not evaluated, and its system is your own, so give it as well: --task" in alone
    assert "<video" in given and "SAMBA on Line seed 1" in _Text(given).text


def test_an_evaluated_run_on_one_s_own_system_is_judged_without_it(tmp_path: Path) -> None:
    with one_thread():
        mine = train(Line(), settings=quick_settings(), out=tmp_path / "mine", seed=1)
        both = mine.evaluate(100)
        plain = to_plain({"with_noise": both.to_json(), "without_noise": both.to_json()})
        write_json(tmp_path / "mine" / "evaluation.json", signed(plain))
        page = make_report([tmp_path])
    text = _Text(page).text
    samples = f"{mine.summary['real_samples']:,}"
    assert f"1 run (1 finished); {samples} real samples" in text and "No clip: its system is your own" in text
    assert f"{both.return_mean:.3g}" in text and "Learning curve of SAMBA" in page


def test_places_that_hold_nothing_are_named(tmp_path: Path, made: Made) -> None:
    (tmp_path / "notes.json").write_text("[1, 2]")
    with pytest.raises(UserError, match=f"{tmp_path}: no run and no benchmark result found"):
        make_report([tmp_path])
    with pytest.raises(UserError, match="there is no folder"):
        make_report([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="episodes = -1"):
        make_report([made.runs], episodes=-1)
    with pytest.raises(UserError, match="steps = 0"):
        make_report([made.runs], steps=0)


def test_the_command_s_mistakes(tmp_path: Path, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(made.results), "-o", str(tmp_path / "report.pdf")]) == 2
    assert "its name must end in .html" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["report", str(made.results), "-o", str(tmp_path / "file" / "report.html")]) == 2
    assert "report.html" in capsys.readouterr().err
    (tmp_path / "x.json").write_text("{")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 2
    assert "x.json is damaged" in capsys.readouterr().err and not (tmp_path / "r.html").exists()


# In a browser ---------------------------------------------------------------------------------------------------------

STATE = """
const plot = document.getElementById(arguments[0]);
return {
  plots: document.querySelectorAll(".plot .main-svg").length,
  range: plot._fullLayout.xaxis.range,
  hovers: [...plot.querySelectorAll(".hoverlayer .hovertext")].map(e => e.textContent),
  videos: [...document.querySelectorAll("video")].map(v => [v.readyState, v.duration]),
  tables: [...document.querySelectorAll("table")].map(t => [t.offsetHeight, t.rows.length]),
  wide: document.documentElement.scrollWidth - innerWidth,
};
"""
POINT = """
const plot = document.getElementById(arguments[0]);
document.documentElement.style.scrollBehavior = "auto";
plot.scrollIntoView({block: "center"});
const box = plot.querySelector(".main-svg").getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
const trace = plot.data.find(trace => trace.text);
return [box.x + xaxis._offset + xaxis.d2p(trace.x[0]), box.y + yaxis._offset + yaxis.d2p(trace.y[0])];
"""


def _clean(driver: Any) -> None:
    """Check that there were no errors and no requests to the network."""
    assert driver.get_log("browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith(("file:", "data:", "blob:")) for url in urls), urls


def test_a_browser_shows_tables_figures_hover_zoom_and_clips(made: Made) -> None:
    with browser(made.page) as driver:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.support.wait import WebDriverWait

        def state() -> dict[str, Any]:
            return dict(driver.execute_script(STATE, "trade-off-safe-pendulum"))

        WebDriverWait(driver, 30).until(
            lambda _: all(ready >= 1 for ready, _ in state()["videos"]) and state()["plots"] >= 3
        )
        seen = state()
        assert len(seen["videos"]) == 2 and all(duration > 1 for _, duration in seen["videos"])
        assert len(seen["tables"]) >= 6 and all(height > 0 and rows > 0 for height, rows in seen["tables"])
        assert seen["hovers"] == [] and seen["wide"] <= 0
        x, y = (round(value) for value in driver.execute_script(POINT, "trade-off-safe-pendulum"))
        hand = ActionChains(driver, duration=50)
        pointer: Any = hand.w3c_actions.pointer_action
        pointer.move_to_location(x - 40, y - 40)
        pointer.move_to_location(x, y)
        hand.perform()
        WebDriverWait(driver, 10).until(lambda _: state()["hovers"])
        (hover,) = state()["hovers"]
        assert "return -" in hover and "safety cost" in hover
        # Dragging over a region zooms in.
        hand.reset_actions()
        pointer.move_to_location(x - 30, y - 30)
        pointer.pointer_down()
        pointer.move_to_location(x + 60, y + 60)
        pointer.pointer_up()
        hand.perform()
        low, high = seen["range"]

        def closer(_: Any) -> bool:
            left, right = state()["range"]
            return bool(right - left < 0.9 * (high - low))

        WebDriverWait(driver, 10).until(closer)
        _clean(driver)


def test_a_phone_shows_it_without_scrolling_sideways(made: Made) -> None:
    with browser(made.page, phone=True) as driver:
        seen = driver.execute_script(STATE, "trade-off-safe-pendulum")
        assert seen["wide"] <= 0 and seen["plots"] >= 3
        # Rows of runs are lists of names and values, of which none is off the screen.
        driver.execute_script("document.querySelector('#runs details').open = true")
        cut = "return [...document.querySelectorAll('.stack [data-label]')].map(e => e.getBoundingClientRect().right)"
        ends = driver.execute_script(cut)
        assert ends and max(ends) <= 390
        widths = driver.execute_script("return [...document.querySelectorAll('.plot')].map(p => p.offsetWidth)")
        assert widths and all(250 < width <= 390 for width in widths)
        assert driver.execute_script("return document.querySelector('.plot')._fullLayout.dragmode") is False
        # Names and values have room beside each other.
        words = driver.execute_script("return [...document.querySelectorAll('dt, dd')].map(e => e.offsetWidth)")
        assert words and min(words) > 100
        _clean(driver)


def test_a_page_without_results_needs_no_figures(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.runs / "torn", tmp_path / "torn")
    text = make_report([tmp_path])
    # The curve so far is shown; without a trial there is none, and so no library either.
    assert "Plotly" in text and "interrupted" in _Text(text).text
    (tmp_path / "torn" / "metrics.jsonl").write_text("")
    assert "Plotly" not in make_report([tmp_path])


def test_a_cell_s_file_can_be_named(made: Made) -> None:
    (path,) = made.results.glob("*samba*")
    text = _Text(make_report([path])).text
    assert "1 run (1 finished)" in text and replace(made.cell, curve=()).cell.learner in text
