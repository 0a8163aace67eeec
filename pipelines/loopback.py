"""Does a host name stand for this machine alone? Decided from the name; nothing is looked up."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether nobody outside this machine is meant: a loopback address, ``localhost``, or a name under it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
