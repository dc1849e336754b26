"""Names and order of systems and learners."""

from __future__ import annotations

from samba_rl.benchmark.names import learner_name, place, system_name
from samba_rl.tasks import TASKS


def test_known_names_are_the_paper_s_and_others_stay() -> None:
    assert [learner_name(name) for name in ("samba", "planet-rs", "mine")] == ["SAMBA", "PlaNet w RS", "mine"]
    assert [system_name(name) for name in TASKS] == [
        "Safe Pendulum",
        "Safe Cart-Pole Double Pendulum",
        "Safe Fetch Reach",
    ]
    assert system_name("crane") == "crane"


def test_known_names_come_first_in_their_order() -> None:
    assert sorted(["b", "y", "a", "x"], key=lambda name: place(name, ("y", "x"))) == ["y", "x", "a", "b"]
