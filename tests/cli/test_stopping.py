"""Signal handlers."""

from __future__ import annotations

import signal

import pytest

from samba_rl.cli.stopping import polite_stop


def test_signals_are_as_before_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with polite_stop() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert "press Ctrl-C again" in capfd.readouterr().err
