"""Ports that stay free for whoever is told their numbers."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def lasting_port() -> int:
    """A free port that Linux gives to nobody who asks for any port: not to servers of other tests,
    and not to outgoing connections.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(first_given // 2, first_given)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
