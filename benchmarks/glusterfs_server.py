"""GlusterFS volumes in namespaces of their own, of which this is the first process: when it ends,
the kernel ends and unmounts all that it has started.

It ends when its standard input does. The volumes of one server lie on one address, so what limits
one of them is told apart by its brick's port.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

ADDRESS = "127.0.0.2"
"""GlusterFS refuses 127.0.0.1 for a brick; this one is the same machine, too."""

_STATE = Path("/var/lib/glusterd")
_LOGS = Path("/var/log/glusterfs")

_READY_S = 60.0
_POLL_S = 0.1

_BURST = "256k"
"""What may pass at once after a pause: some milliseconds' worth."""

_CONFIGURATION = f"""\
volume management
    type mgmt/glusterd
    option working-directory {_STATE}
    option transport-type socket
    option transport.address-family inet
    option transport.socket.bind-address {ADDRESS}
    option transport.socket.listen-port 24007
    option ping-timeout 0
    option max-port 60999
end-volume
"""


def main() -> None:
    """Serves `{volume: bytes/s, or 0 for no limit}`, the second argument, below a folder, the
    first; says "ready", and waits for the end of its input.
    """
    folder, volumes = Path(sys.argv[1]), json.loads(sys.argv[2])
    try:
        _serve(folder, volumes)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}: {error.stderr.strip() or error.stdout.strip()}")
    except (TimeoutError, OSError) as error:
        sys.exit(str(error))
    # Servers that are killed later are nobody's children but ours.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


def _serve(folder: Path, volumes: Mapping[str, int]) -> None:
    _run("ip", "link", "set", "lo", "up")
    _hide_the_machines_own(folder)
    configuration = folder / "glusterd.vol"
    configuration.write_text(_CONFIGURATION)
    _run("glusterd", "-f", str(configuration))
    _await_server()
    _run("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
    for number, (name, bytes_per_s) in enumerate(volumes.items(), 1):
        _make_volume(folder, name, cached=not bytes_per_s)
        if bytes_per_s:
            _limit(name, bytes_per_s, number)


def _hide_the_machines_own(folder: Path) -> None:
    # Two servers that share these break each other.
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/gluster").mkdir()
    for path in (_STATE, _LOGS):
        own = folder / path.name
        own.mkdir()
        path.mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(own), str(path))


def _await_server() -> None:
    end = time.monotonic() + _READY_S
    while subprocess.run(
        ["gluster", "--mode=script", "pool", "list"], capture_output=True
    ).returncode:
        if time.monotonic() > end:
            raise TimeoutError(f"glusterd did not answer within {_READY_S:g} s")
        time.sleep(_POLL_S)


def _make_volume(folder: Path, name: str, *, cached: bool) -> None:
    mount_point = folder / name
    mount_point.mkdir()
    _gluster("create", name, f"{ADDRESS}:{folder / f'brick-{name}'}", "force")
    options = []
    if not cached:
        # All that is read comes over the network.
        for option in ("performance.io-cache", "performance.quick-read"):
            _gluster("set", name, option, "off")
        options = ["-o", "direct-io-mode=enable"]
    _gluster("start", name)
    _run("mount", "-t", "glusterfs", *options, f"{ADDRESS}:/{name}", str(mount_point))


def _limit(name: str, bytes_per_s: int, number: int) -> None:
    status = ElementTree.fromstring(_gluster("status", name, "--xml"))
    port = next(found.text for found in status.iter("port") if (found.text or "").isdigit())
    for direction, side in enumerate(("sport", "dport")):
        group = f"1:{10 * number + direction}"
        rate = [str(8 * bytes_per_s), "burst", _BURST, "cburst", _BURST, "quantum", "65536"]
        _run(
            "tc",
            "class",
            "add",
            "dev",
            "lo",
            "parent",
            "1:",
            "classid",
            group,
            "htb",
            "rate",
            *rate,
        )
        match = ["u32", "match", "ip", side, str(port), "0xffff", "flowid", group]
        _run("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", *match)


def _gluster(*arguments: str) -> str:
    return _run("gluster", "--mode=script", "volume", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
