"""One real service for all tests of this folder that don't need to break it."""

from collections.abc import Iterator

import pytest
from real_service import RealService


@pytest.fixture(scope="session")
def four_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """A service with four workers in one agent."""
    with RealService(tmp_path_factory.mktemp("service")) as service:
        service.add_agent(4)
        yield service


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """A service of the test's own, without workers yet."""
    with RealService(tmp_path_factory.mktemp("service")) as own:
        yield own
