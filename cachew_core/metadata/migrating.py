"""Brings a store's tables up to date when it is opened, and refuses those of a newer Cachew."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from cachew_core.errors import MetadataError
from cachew_core.version import __version__

# Not Alembic's usual name: the database may be another program's, too.
_VERSION_TABLE = "cachew_revision"
# Alembic hands the connection to revisions through variables of its modules.
_one_at_a_time = threading.Lock()


def is_current(connection: Connection) -> bool:
    """Whether the tables are those of this version of Cachew.

    Raises:
        MetadataError: they are a newer version's.
    """
    current = _current(connection)
    scripts = ScriptDirectory.from_config(_config(connection))
    if current is not None and current not in {each.revision for each in scripts.walk_revisions()}:
        raise MetadataError(
            f"the metadata store was made by a newer Cachew (its tables are at revision {current}, "
            f"which Cachew {__version__} does not know): install that version, or name another "
            "store_url"
        )
    return current == scripts.get_current_head()


def migrate(connection: Connection, *, revision: str = "head") -> None:
    """Brings the tables to a revision, inside the connection's transaction."""
    with _one_at_a_time:
        command.upgrade(_config(connection), revision)


def _current(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": _VERSION_TABLE})
    return context.get_current_revision()


def _config(connection: Connection) -> Config:
    config = Config()
    # The option's value is a template, in which % is special.
    folder = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.attributes["connection"] = connection
    config.attributes["version_table"] = _VERSION_TABLE
    return config
