"""Who asks: proxies are believed where the operator says so, and only as far as they are his."""

from __future__ import annotations

import pytest

from cloakwork.api.http.client_addresses import ClientAddresses


def found(peer: str | None, *forwarded: str, proxies: str = "10.0.0.0/8 fd00::/8") -> str | None:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    client = None if peer is None else (peer, 40_000)
    return ClientAddresses(proxies.split()).of({"client": client, "headers": headers})


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", (), "203.0.113.9"),
        ("203.0.113.9", ("192.0.2.1",), "203.0.113.9"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.7, 192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.1, 10.0.0.2",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.7", "192.0.2.1"), "192.0.2.1"),
        ("10.0.0.1", ("10.9.9.9, 10.0.0.2",), "10.9.9.9"),
        ("10.0.0.1", ("192.0.2.1:1234",), "192.0.2.1"),
        ("10.0.0.1", ("[2001:db8::1]:1234",), "2001:db8::1"),
        ("10.0.0.1", ("2001:db8::1",), "2001:db8::1"),
        ("::ffff:10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("fd00::1", ("2001:DB8::0:1",), "2001:db8::1"),
        ("10.0.0.1", ('192.0.2.1, "} made up {',), "10.0.0.1"),
        ("10.0.0.1", ("unknown",), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1, unknown, 10.0.0.2",), "10.0.0.2"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("," * 5000,), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1," + "10.0.0.2," * 14 + "10.0.0.2",), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.1," + "10.0.0.3," * 3000 + "10.0.0.2",), "10.0.0.3"),
        ("fe80::1%eth0", (), "fe80::1"),
        (None, ("192.0.2.1",), None),
        ("", ("192.0.2.1",), None),
    ],
)
def test_addresses(peer: str | None, forwarded: tuple[str, ...], client: str | None):
    assert found(peer, *forwarded) == client


def test_without_trusted_proxies_nobody_is_believed():
    assert found("10.0.0.1", "192.0.2.1", proxies="") == "10.0.0.1"
