"""Hosts of a network of their own on this machine: a network namespace each, joined by a bridge. Linux, as root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

NETWORK = "10.77.0"
BRIDGE = "cloakwork0"
STORES = f"{NETWORK}.1"
"""Where this machine itself is in that network: database, object store and clients."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *arguments]

    def plug(self, *, in_: bool) -> None:
        """The cable."""
        _ip("link", "set", _cable(self.name), "up" if in_ else "down")


def reason_without() -> str | None:
    if os.geteuid():
        return "network namespaces need root"
    try:
        _ip("netns", "list")
    except (OSError, subprocess.CalledProcessError):
        return "this machine has no network namespaces (Debian's package iproute2, and the right to make them)"
    return None


@contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """So many hosts, gone afterwards with everything in them."""
    hosts = [Host(f"cloakwork-{number}", f"{NETWORK}.{10 + number}") for number in range(count)]
    try:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{STORES}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for host in hosts:
            inside = _cable(host.name) + "i"
            _ip("netns", "add", host.name)
            _ip("link", "add", _cable(host.name), "type", "veth", "peer", "name", inside)
            _ip("link", "set", inside, "netns", host.name)
            _ip("link", "set", _cable(host.name), "master", BRIDGE, "up")
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", inside)
            _ip("-n", host.name, "link", "set", inside, "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", host.name)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "delete", BRIDGE)


def _cable(host: str) -> str:
    return f"cw{host.rpartition('-')[2]}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)
