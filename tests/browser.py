"""A browser without a window, for tests of pages: Debian's Chromium, which is installed if that can be done here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("chromium", "chromium-driver")
SECONDS = 180
"""For Debian's servers to deliver it."""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip
PHONE = {"deviceMetrics": {"width": 390, "height": 844, "pixelRatio": 2.0, "touch": True}}


@cache
def missing() -> str:
    """Why there is no browser here; nothing if there is one."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: pip install 'samba-rl[dev]'"
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return ""
    install = f"apt-get install {' '.join(PACKAGES)}"
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return f"Chromium is not installed, and only Debian's root could do it here: {install}"
    quiet = {"check": True, "capture_output": True, "timeout": SECONDS, "text": True}
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES]
    try:
        try:
            subprocess.run(command, env=environment, **quiet)  # type: ignore[call-overload]
        except subprocess.CalledProcessError:  # the list of packages may be missing or old
            subprocess.run(["apt-get", "update"], env=environment, **quiet)  # type: ignore[call-overload]
            subprocess.run(command, env=environment, **quiet)  # type: ignore[call-overload]
    except (subprocess.SubprocessError, OSError) as error:
        said = " ".join((getattr(error, "stderr", "") or str(error)).split())[-300:]
        return f"Chromium is not installed, and `{install}` failed: {said}"
    return ""


@contextmanager
def browser(page: Path, *, phone: bool = False) -> Iterator[Any]:
    """The page in a browser of its own; skips the test where there is none."""
    why = missing()
    if why:
        pytest.skip(why)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if phone:
        options.add_experimental_option("mobileEmulation", PHONE)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        driver.get(page.resolve().as_uri())
        yield driver
    finally:
        driver.quit()
