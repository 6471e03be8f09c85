"""Where the processes of a service run: on this machine, started and ended by name."""

from cachew_core.cluster.local import (
    READY_TIMEOUT_S,
    LocalService,
    down,
    list_services,
    scale,
    status,
    up,
)

__all__ = ["READY_TIMEOUT_S", "LocalService", "down", "list_services", "scale", "status", "up"]
