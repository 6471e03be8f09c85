from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import postgresql_server
import pytest
from postgresql_server import PostgresqlServer

from cachew_core.metadata import MetadataStore


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    if reason := postgresql_server.missing():
        pytest.skip(reason)
    with PostgresqlServer() as running:
        yield running


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def postgresql_url(server: PostgresqlServer) -> Iterator[str]:
    """An empty database."""
    name = f"test_{uuid4().hex}"
    server.run_sql(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.run_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def store(url: str) -> Iterator[MetadataStore]:
    with MetadataStore.open(url, store="photographs") as opened:
        yield opened
