"""The table of learners: the ten rows, rows of one's own, and rows that make no sense."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from samba_rl.agents.words import from_words, to_words
from samba_rl.errors import UserError
from samba_rl.improve.constraints import Chance, Constraint, CVaR, Expectation
from samba_rl.improve.objectives import Cost, Information, Objective, Safety
from samba_rl.improve.updates.rules import Projection, Proximal, TrustRegion, UpdateRule
from samba_rl.learners import (
    LEARNERS,
    GPModel,
    LatentModel,
    Learner,
    Planning,
    RealTrials,
    TraceSource,
    find_learner,
)
from samba_rl.models.information import InformationGain
from samba_rl.models.zeta import ZETAS, Bootstrap, Entropy, LeaveOneOut, Zeta

COST, SEEKING = (Cost(),), (Cost(), Information(InformationGain()))

# The ten rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source", "objectives", "constraint", "update"),
    [
        ("samba", GPModel, SEEKING, CVaR, Proximal),
        ("sppilco", GPModel, COST, CVaR, Proximal),
        ("ppilco", GPModel, COST, None, Proximal),
        ("ppo", RealTrials, COST, None, Proximal),
        ("sppo", RealTrials, COST, Expectation, Proximal),
        ("trpo", RealTrials, COST, None, TrustRegion),
        ("strpo", RealTrials, COST, Expectation, TrustRegion),
        ("cpo", RealTrials, COST, Expectation, Projection),
        ("planet", LatentModel, COST, None, Planning),
        ("planet-rs", LatentModel, (Cost(), Safety()), None, Planning),
    ],
)
def test_the_papers_learners(
    name: str,
    source: type[TraceSource],
    objectives: tuple[Objective, ...],
    constraint: type[Constraint] | None,
    update: type[UpdateRule | Planning],
) -> None:
    row = LEARNERS[name]
    assert isinstance(row.source, source) and isinstance(row.update, update)
    assert row.objectives == objectives and row.constraint is constraint
    assert row.zeta == (InformationGain() if name == "samba" else None)


def test_the_order_of_the_papers_tables() -> None:
    rows = ["samba", "sppilco", "ppilco", "ppo", "sppo", "trpo", "strpo", "cpo", "planet", "planet-rs"]
    assert list(LEARNERS) == rows and len(set(LEARNERS.values())) == 10


def test_a_row_is_found_by_its_name_or_by_itself() -> None:
    assert find_learner("samba") is LEARNERS["samba"]
    row = Learner(GPModel(), COST, Chance, TrustRegion())
    assert find_learner(row) is row


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sambo", "no learner is called 'sambo'; did you mean 'samba'?"),
        (
            "dreamer",
            "no learner is called 'dreamer'; available: cpo, planet, planet-rs, ppilco, ppo, samba, sppilco, sppo, "
            "strpo, trpo",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_those_there_are(name: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        find_learner(name)
    assert str(error.value) == message


# Values ---------------------------------------------------------------------------------------------------------------


def test_rows_are_values() -> None:
    assert LEARNERS["samba"] == Learner(GPModel(), SEEKING, CVaR, Proximal())
    assert hash(LEARNERS["samba"]) == hash(replace(LEARNERS["samba"]))
    assert LEARNERS["samba"] != LEARNERS["sppilco"] == LEARNERS["samba"].with_zeta(None)


@pytest.mark.parametrize("zeta", [LeaveOneOut(), Bootstrap(), Bootstrap(partitions=2), Entropy(), None])
def test_a_row_with_another_zeta(zeta: Zeta | None) -> None:
    for name in ("samba", "sppilco"):
        row = LEARNERS[name].with_zeta(zeta)
        assert row.zeta == zeta and row.objectives == (COST if zeta is None else (Cost(), Information(zeta)))
        assert (row.source, row.constraint, row.update) == (GPModel(), CVaR, Proximal())


def test_leaving_zeta_out_where_there_is_none_changes_nothing() -> None:
    for name, row in LEARNERS.items():
        if name != "samba":
            assert row.with_zeta(None) == row


# Rows without a meaning -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "objectives", "constraint", "update", "message"),
    [
        (
            RealTrials(), SEEKING, None, Proximal(),
            "information on real trials: steps that were taken cannot show what others would teach",
        ),
        (
            LatentModel(), SEEKING, None, Planning(),
            "a learner on a latent model minimises cost, information; give cost, alone or with safety",
        ),
        (
            GPModel(), COST, None, Planning(),
            "update 'none' on a GP model: a latent model is planned on, and nothing else is",
        ),
        (
            RealTrials(), COST, None, Planning(),
            "update 'none' on real trials: a latent model is planned on, and nothing else is",
        ),
        (
            LatentModel(), COST, None, Proximal(),
            "update 'proximal' on a latent model: a latent model is planned on, and nothing else is",
        ),
        (
            LatentModel(), COST, None, TrustRegion(),
            "update 'trust-region' on a latent model: a latent model is planned on, and nothing else is",
        ),
        (
            RealTrials(), COST, None, Projection(),
            "update 'projection' keeps to a limit; give a constraint, or take 'trust-region'",
        ),
        (
            GPModel(), SEEKING, None, Projection(),
            "update 'projection' keeps to a limit; give a constraint, or take 'trust-region'",
        ),
        (
            LatentModel(), COST, CVaR, Planning(),
            "a planner on a latent model has no limits; minimise the safety cost beside the cost instead",
        ),
        (
            GPModel(), (), CVaR, Proximal(),
            "a learner on a GP model minimises nothing; give cost, alone or with information",
        ),
        (
            LatentModel(), (), None, Planning(),
            "a learner on a latent model minimises nothing; give cost, alone or with safety",
        ),
        (
            GPModel(), (Cost(), Safety()), None, Proximal(),
            "a learner on a GP model minimises cost, safety; give cost, alone or with information",
        ),
        (
            GPModel(), (Information(Entropy()),), None, Proximal(),
            "a learner on a GP model minimises information; give cost, alone or with information",
        ),
        (
            GPModel(), (Information(Entropy()), Cost()), None, Proximal(),
            "a learner on a GP model minimises information, cost; give cost, alone or with information",
        ),
        (
            GPModel(), (Cost(), Cost()), None, Proximal(),
            "a learner on a GP model minimises cost, cost; give cost, alone or with information",
        ),
    ],
)  # fmt: skip
def test_a_row_without_a_meaning_is_refused_with_the_reason(
    source: TraceSource,
    objectives: tuple[Objective, ...],
    constraint: type[Constraint] | None,
    update: UpdateRule | Planning,
    message: str,
) -> None:
    with pytest.raises(UserError) as error:
        Learner(source, objectives, constraint, update)
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["ppo", "planet", "planet-rs"])
def test_exploration_cannot_be_added_where_there_is_no_gp_model(name: str) -> None:
    with pytest.raises(UserError, match="information"):
        LEARNERS[name].with_zeta(LeaveOneOut())


# Words ----------------------------------------------------------------------------------------------------------------

ROWS = {
    **LEARNERS,
    "without ζ": LEARNERS["samba"].with_zeta(None),
    "with entropy": LEARNERS["samba"].with_zeta(Entropy()),
    "with bootstrap": LEARNERS["samba"].with_zeta(Bootstrap()),
    "of one's own": Learner(GPModel(), SEEKING, Chance, TrustRegion()),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_survives_the_way_into_a_file_and_back(name: str) -> None:
    words = json.loads(json.dumps(to_words(ROWS[name])))
    assert from_words(words, "row") == ROWS[name]


def test_the_words_of_a_row() -> None:
    assert to_words(LEARNERS["samba"]) == {
        "traces": "model",
        "objectives": ["cost", "information"],
        "zeta": "information",
        "constraint": "cvar",
        "update": "proximal",
    }
    assert to_words(LEARNERS["planet-rs"]) == {
        "traces": "latent",
        "objectives": ["cost", "safety"],
        "zeta": "none",
        "constraint": "none",
        "update": "none",
    }
    assert to_words(LEARNERS["samba"].with_zeta(Entropy()))["zeta"] == "entropy"


GOOD = to_words(LEARNERS["samba"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("samba", "row is 'samba'; it must be a group of named values"),
        ([], r"row is \[\]; it must be a group of named values"),
        ({}, "row.traces is None; it must be one of model, real, latent"),
        ({**GOOD, "traces": "modle"}, "row.traces is 'modle'; it must be one of model, real, latent"),
        (
            {**GOOD, "objectives": ["cost", "fun"]},
            r"row.objectives\[1\] is 'fun'; it must be one of cost, safety, infor",
        ),
        (
            {**GOOD, "zeta": "lou"},
            "row.zeta is 'lou'; it must be one of loo, loo-observed, bootstrap, entropy, information, none",
        ),
        ({**GOOD, "zeta": None}, "row.zeta is None; it must be one of"),
        ({**GOOD, "zeta": "none"}, "row.zeta is 'none', but the learner seeks information; name a ζ"),
        ({**GOOD, "constraint": 3}, "row.constraint is 3; it must be one of cvar, expectation, chance, none"),
        ({**GOOD, "update": ["proximal"]}, r"row.update is \['proximal'\]; it must be one of proximal, trust-region"),
        ({**GOOD, "objectives": []}, "a learner on a GP model minimises nothing"),
        ({**GOOD, "traces": "real"}, "information on real trials"),
        ({**GOOD, "update": "none"}, "update 'none' on a GP model"),
    ],
)
def test_bad_words_are_refused_by_their_place(words: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_words(words, "row")


def test_a_zeta_needs_a_name_to_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    row = LEARNERS["samba"].with_zeta(Bootstrap(partitions=2))
    with pytest.raises(UserError, match=r"has no name to be stored under; give it one: samba_rl\.models\.zeta\.ZETAS"):
        to_words(row)
    monkeypatch.setitem(ZETAS, "two halves", Bootstrap(partitions=2))
    assert to_words(row)["zeta"] == "two halves"
    assert from_words(to_words(row), "row") == row
