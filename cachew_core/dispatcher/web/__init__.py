"""What people and Prometheus see of a service: a page, and metrics."""

from cachew_core.dispatcher.web.server import WebServer

__all__ = ["WebServer"]
