"""Addresses as users write them: whether they are of this machine, and how they are shown.

What is typed in the place of an address or of a model's name may hold a password or a key. Whatever
shows such a text shows it through `hide_secrets`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

KEY_FORM = re.compile(
    r"\b(sk|pk|rk|xox[abps]|gh[pousr]|glpat|hf|github_pat|gsk)[-_]\w[-\w]{14,}|\bAIza[-\w]{30,}"
    r"|\beyJ[-\w]{8,}\.eyJ"
)
"""The forms of the keys of some providers, and of tokens."""
_USER = re.compile(r"(?<=://)[^\"'\n]*@")
_QUERY = re.compile(r"(://[^\s\"'?#]*)\?[^\s\"'#]*")


def hide_secrets(text: str) -> str:
    """Return a text whose addresses have no user, password or query, and whose keys are masked."""
    return KEY_FORM.sub("***", _QUERY.sub(r"\1", _USER.sub("", text)))


def is_loopback(address: str, *, listening: bool = False) -> bool:
    """Return whether an address is of this machine, however it is written.

    `listening`: it is an address that a server listens at. There 0.0.0.0 means every network, while
    a connection to it stays on this machine.
    """
    try:
        host = (urlsplit(address.strip()).hostname or "").rstrip(".")
    except ValueError:
        return False

    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        # Connections take short forms of addresses, such as 127.1, too.
        if host and re.fullmatch(r"[0-9a-fx.]+", host) and host[0].isdigit():
            try:
                return ipaddress.IPv4Address(socket.inet_aton(host)).is_loopback
            except OSError:
                return False
        return host == "localhost" or host.endswith(".localhost")

    mapped = getattr(ip, "ipv4_mapped", None) or ip
    return mapped.is_loopback or (mapped.is_unspecified and not listening)
