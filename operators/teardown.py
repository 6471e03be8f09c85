"""The operator that ends a service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cachew_core import cluster
from cachew_operators.base import CachewOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CachewTeardownOperator(CachewOperator):
    """Ends a service on the task's machine; a service that is gone, or never was, is a success.

    Needs nothing but the service's name, so it also cleans up after a setup that died half-way.

    :param service_name: the service's name; templated. Default: that of the DAG run, as in
        :class:`CachewServiceOperator`.
    :param drain: wait until the epochs that are being read have ended. Off: they fail with one
        clear error.
    """

    template_fields: Sequence[str] = ("service_name",)

    def __init__(self, *, drain: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drain = drain

    def execute(self, context: Context) -> None:
        """Ends the service; returns when no process of it is left.

        Raises:
            ServiceError: it could not be ended.
        """
        name = self._name()
        cluster.down(name, drain=self.drain)
        self._refuse_if_killed()
        self.log.info("Service %s is down", name)

    def on_kill(self) -> None:
        """Ends the service at once: what a killed teardown leaves, nobody takes down."""
        self._killed = True
        self._take_down_in_the_background()
