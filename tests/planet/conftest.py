"""Fixtures for the tests of PlaNet."""

from collections.abc import Iterator

import pytest

from samba_rl.planet.policy import PlanningPolicy
from tests.line import spend
from tests.planet.examples import an_agent
from tests.threads import one_thread


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    """Small networks are faster on one thread."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def line_policy() -> PlanningPolicy:
    """A policy that has learned the line. Not to be changed."""
    with one_thread():
        policy = spend(an_agent())
    assert isinstance(policy, PlanningPolicy)
    return policy
