"""The name of a service that a pipeline run owns, known before the service exists.

An exit task can't read another task's output, so setup and teardown must come to the same name on
their own: from what the pipeline's author chose, else from the run. A run's name is free text
(spaces, any length, not unique), its id is unique; both together are readable and can't collide.
"""

from __future__ import annotations

import hashlib
import re

from cachew_core.errors import SettingsError

USUAL_STORE = "kubeflow-pipelines"
"""What services that are named after a run store lies here, so that later runs find it."""

MAX_CHARACTERS = 63
DIGEST_CHARACTERS = 8


def service_name(*, name: str, run_name: str, run_id: str) -> str:
    """The service's name for this run.

    Args:
        name: what the pipeline's author chose; taken as it is (the service checks it). Empty: made
            from the run.
        run_name: the run's display name, free text.
        run_id: the run's id, unique in its installation.

    Returns:
        For a name made from the run: 1 to 63 letters, digits, '.', '_' and '-', the same for the
        same run.

    Raises:
        SettingsError: there is neither a name nor a run to make one from.
    """
    if name:
        return name
    if not run_id:
        raise SettingsError(
            "the service has no name: pass name= to the component, or run it inside a pipeline, "
            "whose run gives it one"
        )
    # Cleaning and cutting can make two runs' names equal; the digest of the whole keeps them apart.
    digest = hashlib.sha256(f"{run_name}\n{run_id}".encode()).hexdigest()[:DIGEST_CHARACTERS]
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", run_name)[: MAX_CHARACTERS - DIGEST_CHARACTERS - 1]
    return f"{readable.strip('._-') or 'run'}-{digest}"
