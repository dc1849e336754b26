"""What the tests of the commands share."""

from collections.abc import Iterator

import pytest

from tests.threads import one_thread


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield
