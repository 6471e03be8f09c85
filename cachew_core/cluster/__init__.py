"""Where the processes of a service run: on this machine, started and ended by name."""

from cachew_core.cluster.local import LocalService, down, list_services, status, up

__all__ = ["LocalService", "down", "list_services", "status", "up"]
