"""Kafka's `sasl.*` keys of a controller listener, as options of `[sasl]` and `[access]`.

| key | becomes |
|---|---|
| `sasl.mechanism.controller.protocol` | `mechanism` |
| `sasl.enabled.mechanisms`, also of the listener | `accept` |
| `listener.name.NAME.MECHANISM.sasl.jaas.config` | `username`, `password`; of PLAIN `user_NAME="PASSWORD"`: `users` |

Kafka's controllers share a user and are bound to no id: `[access]` lets this user speak as any replica and change
voters, and lets the other users of the file, which are brokers' and tools', read the log. The users of SCRAM stand in
Kafka's metadata log, where kraftlib does not look: over SCRAM only the user of the controllers may log in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.security.sasl import MECHANISMS, PLAIN, USER_PREFIX

OF_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
ENABLED: Final = "sasl.enabled.mechanisms"
JVM_DEFAULT: Final = "GSSAPI"
MODULES: Final = ("plain.PlainLoginModule", "scram.ScramLoginModule")


@attrs.define
class SaslProperties:
    """The tables of a listener with SASL, and the keys that were read."""

    sasl: dict[str, object]
    access: dict[str, object]
    read: set[str]

    @property
    def has_plain(self) -> bool:
        """Whether a password is sent or taken."""
        accepted = self.sasl["accept"]
        return isinstance(accepted, list) and PLAIN in (*accepted, self.sasl["mechanism"])


def sasl_properties(properties: Mapping[str, str], listener: str) -> SaslProperties:
    """Return the SASL of the listener with this name. Raises: ConfigError with a remedy for mechanisms that kraftlib
    lacks."""
    prefix = f"listener.name.{listener.lower()}."
    enabled_key = f"{prefix}{ENABLED}" if f"{prefix}{ENABLED}" in properties else ENABLED
    mechanism = properties.get(OF_CONTROLLERS, JVM_DEFAULT).strip()
    enabled = [part.strip() for part in properties.get(enabled_key, JVM_DEFAULT).split(",") if part.strip()]
    for key, name in ((OF_CONTROLLERS, mechanism), *((enabled_key, each) for each in enabled)):
        if name not in MECHANISMS:
            raise ConfigError(f"{key}={name}: kraftlib has {', '.join(MECHANISMS)}; set one of them on all controllers")
    read = {key for key in (OF_CONTROLLERS, enabled_key) if key in properties}
    users: dict[str, str] = {}
    own: tuple[str, str] | None = None
    for name in dict.fromkeys([mechanism, *enabled]):
        key = f"{prefix}{name.lower()}.sasl.jaas.config"
        if key not in properties:
            if name == mechanism:
                raise ConfigError(f"{key} is missing: it names user and password of the controllers")
            continue
        read.add(key)
        options = _login(key, properties[key])
        if name == mechanism:
            own = _own(key, options)
        if name == PLAIN:
            users |= {user.removeprefix("user_"): text for user, text in options.items() if user.startswith("user_")}
    username, password = own or ("", "")
    others = sorted(users.keys() - {username})
    sasl: dict[str, object] = {"mechanism": mechanism, "accept": enabled, "username": username, "password": password}
    if others:
        sasl["users"] = {username: password, **users}
    access: dict[str, object] = {"replicas": [USER_PREFIX + username], "admins": [USER_PREFIX + username]}
    if others:
        access["observers"] = [USER_PREFIX + each for each in others]
    return SaslProperties(sasl, access, read)


def _own(key: str, options: Mapping[str, str]) -> tuple[str, str]:
    if not options.get("username") or not options.get("password"):
        raise ConfigError(f"{key} names no username and password: kraftlib logs in as the controllers do")
    return options["username"], options["password"]


def _login(key: str, text: str) -> dict[str, str]:
    """Return the options of the login module. Errors do not show the text, which has passwords in it."""
    match = re.fullmatch(r"\s*([\w.]+)\s+required((?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s\";]+))*)\s*;\s*", text)
    if match is None or not match[1].endswith(MODULES):
        raise ConfigError(f"{key}: expected a PlainLoginModule or ScramLoginModule, required, options, a semicolon")
    found = re.findall(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))", match[2])
    return {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in found}
