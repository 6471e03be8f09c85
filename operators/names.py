"""The name of the service that belongs to a DAG run, known to every task before the service exists.

A teardown must find its service even when setup died half-way and left no XCom, and a retried setup
must find what its first try started. So the name is made from the run alone, by a rule that gives
every task the same one.
"""

from __future__ import annotations

import hashlib
import re

from cachew_core.errors import SettingsError
from cachew_core.service_record import service_folder

DEFAULT_SERVICE_NAME = "{{ dag.dag_id }}/{{ run_id }}"
"""One service for each run. A DAG's id holds no slash, so no two runs give the same text."""

_SLUG_LENGTH = 54
"""A service's name has up to 63 characters; a hyphen and 8 digits of the hash take the others."""


def valid_service_name(text: str) -> str:
    """The service's name that a rendered template stands for.

    Args:
        text: any text. Run ids hold colons and plus signs, which a service's name can't.

    Returns:
        The text itself where it is a service's name already; else a readable form of it, in small
        letters, digits and hyphens, with a hash of the whole text, so that other texts give other
        names.

    Raises:
        SettingsError: the text is empty, as when a template's variable is not set.
    """
    if not text.strip():
        raise SettingsError(
            "service_name is empty: give the operator a name, or a template that renders to one"
        )
    return valid_name(text)


def valid_name(text: str) -> str:
    """The same for any text that stands for a service or a store; it must not be empty."""
    try:
        service_folder(text)
    except SettingsError:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_SLUG_LENGTH].rstrip("-")
        return f"{slug}-{digest}" if slug else digest
    return text
