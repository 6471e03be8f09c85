"""What Airflow's provider manager is told about this package, on every start: cheap to import."""

from __future__ import annotations

from typing import Any

from cachew_core.version import __version__

INTEGRATION = "Cachew"


def get_provider_info() -> dict[str, Any]:
    """The provider's description, in the form that Airflow's provider schema asks for."""
    modules = ["cachew_operators.service", "cachew_operators.teardown", "cachew_operators.training"]
    return {
        "package-name": "cachew-service",
        "name": INTEGRATION,
        "description": "Input data processing as a service for tf.data pipelines.",
        "versions": [__version__],
        "integrations": [{"integration-name": INTEGRATION, "tags": ["software"]}],
        "operators": [{"integration-name": INTEGRATION, "python-modules": modules}],
    }
