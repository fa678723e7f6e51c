"""The proxy through which an address is reached, by the rules that curl and Go have.

All connections to other machines ask here: those of endpoints and services, of weights, of spans,
and of data sets. The libraries that open some of them read the variables by rules of their own.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from textevolve.addresses import is_loopback
from textevolve.errors import SettingsError
from textevolve.ledger import log


@dataclass(frozen=True)
class Proxy:
    """A proxy. As text it is its host and port, and the variable that names it.

    Attributes:
        url: The address with user and password.
        place: Its host and port.
        secrets: The password, as it is written and as it is sent.
    """

    url: str
    place: str
    variable: str
    secrets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place} (from {self.variable})"


def find_proxy(address: str) -> Proxy | None:
    """Return the proxy for an address; None if it is reached directly, as this machine is.

    Raises:
        SettingsError: the variable holds no address of an HTTP proxy. The message does not have
            the value, which may hold a password.
    """
    parts = urlsplit(address)
    if not parts.hostname or is_loopback(address):
        return None
    proxies = getproxies()
    if _is_exempt(parts, proxies.get("no", "")):
        return None
    if not getproxies_environment() and proxy_bypass(parts.hostname):
        return None  # the system's own exemptions
    for scheme in (parts.scheme, "all"):
        if value := proxies.get(scheme, "").strip():
            return _read_proxy(value, _name_variable(scheme))

    return None


def name_exemption(address: str) -> None:
    """Add the host of an address to NO_PROXY if it is reached without a proxy, for a library that
    reads networks, patterns and ports in the variable by fewer rules, or would send what is for
    this machine to a proxy.

    Raises:
        SettingsError: as `find_proxy`.
    """
    host = urlsplit(address).hostname
    if not host or not getproxies_environment() or find_proxy(address) is not None:
        return
    exemptions = getproxies().get("no", "")
    if host not in exemptions.split(","):
        # The variable in small letters counts where both are set.
        os.environ["no_proxy"] = f"{exemptions},{host}".strip(",")


def _name_variable(scheme: str) -> str:
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), "the system's settings")


def _read_proxy(value: str, variable: str) -> Proxy:
    scheme, mark, _ = value.partition("://")
    scheme = scheme.lower() if mark else "http"
    if scheme.startswith("socks"):
        raise SettingsError(
            f"{variable} names a SOCKS proxy, which is not supported; name an HTTP proxy, or exempt"
            " the host with NO_PROXY"
        )
    try:
        parts = urlsplit(value if mark else f"http://{value}")
        usable = scheme in ("http", "https") and parts.path in ("", "/")
        usable = usable and not parts.query and not parts.fragment
        if usable and parts.hostname and parts.port != 0:
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            place = f"{host}:{parts.port or (443 if scheme == 'https' else 80)}"
            words = [word for word in (parts.username, parts.password) if word is not None]
            sent = [quote(unquote(word), safe="") for word in words]
            secrets: tuple[str, ...] = ()
            if parts.password:
                secrets = (parts.password, unquote(parts.password), sent[-1])
            user = f"{':'.join(sent)}@" if sent else ""
            return Proxy(
                f"{scheme}://{user}{place}", place, variable, tuple(dict.fromkeys(secrets))
            )
    except ValueError:
        pass  # raised below, so that no error of ours refers to one that holds the password

    raise SettingsError(
        f"{variable} is not a proxy's address; write http://USER:PASSWORD@HOST:PORT, with special"
        " characters of the password as %23 (#), %2F (/), %3F (?) or %40 (@)"
    )


def _is_exempt(parts: SplitResult, no_proxy: str) -> bool:
    """Return whether NO_PROXY exempts a host, by the rules that curl and Go have: a name stands for
    its subdomains, too; an entry may be a network, or have a port."""
    host = (parts.hostname or "").lower().rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        ip = None

    for entry, entry_port in _exemptions(no_proxy):
        if entry_port is not None and entry_port != port:
            continue
        if isinstance(entry, str):
            if entry == "*" or host == entry or host.endswith(f".{entry}"):
                return True
        elif ip is not None and ip in entry:
            return True

    return False


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(maxsize=8)
def _exemptions(no_proxy: str) -> tuple[tuple[str | Network, int | None], ...]:
    """Read the entries of NO_PROXY, each with its port. An entry that cannot be read is reported,
    once, as calls that it was to exempt go to the proxy."""
    exemptions: list[tuple[str | Network, int | None]] = []

    for text in no_proxy.lower().replace(",", " ").split():
        port = None
        name = text
        host, colon, digits = text.rpartition(":")
        if colon and digits.isdigit() and (host.endswith("]") or ":" not in host):
            name = host
            port = int(digits)
        name = name.replace("[", "").replace("]", "").rstrip(".")

        try:
            exemptions.append((ipaddress.ip_network(name, strict=False), port))
            continue
        except ValueError:
            name = name.removeprefix("*").removeprefix(".") or "*"
        if re.search(r"[/*@:\s]", name) and name != "*":
            log.warning("NO_PROXY: %r cannot be read and exempts no host", text)
            continue
        exemptions.append((name, port))

    return tuple(exemptions)
