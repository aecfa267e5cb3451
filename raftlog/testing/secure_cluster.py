"""A cluster with authentication and authorization: TLS, logins with SCRAM or PLAIN, and ACLs.

Clients and brokers share one listener (SASL_SSL); the controllers' listener uses TLS as well, and demands a
certificate. The cluster issues the certificates with an authority of its own. Its users exist from the first start, as
after `raftlog format --add-scram`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.base.disk import RealDisk, write_file
from raftlog.metadata.bootstrap import write_bootstrap
from raftlog.metadata.metadata_records import ScramCredentialChanged
from raftlog.security.scram import MIN_ITERATIONS, SALT_BYTES, credential
from raftlog.testing.certificates import Certificates
from raftlog.testing.cluster import PROTOCOLS, AdminCluster
from raftlog.testing.probe import Login

ADMIN: Final = "admin"
"""The super user."""

MECHANISM: Final = "SCRAM-SHA-512"
PLAIN: Final = "PLAIN"


class SecureCluster(AdminCluster):
    """A cluster with the super user `admin`, and with `other_users`, which need ACLs.

    Files are under `directory`: certificates in tls/, passwords in users.json, the HTTP API's token in admin.tokens. If
    the folder exists already, they are used again.
    """

    listener = "SASL_SSL"
    other_users: Sequence[str] = ("writer", "reader")

    @cached_property
    def certificates(self) -> Certificates:
        """The certificates, issued on first use. Raises CertificatesUnusable."""
        made = Certificates(self.directory / "tls")
        hosts = [[each.host, "localhost"] for each in self.addresses.values()]
        missing = [
            names
            for names in {names[0]: names for names in hosts}.values()
            if not made.node(names[0]).exists()
        ]
        if missing:
            made.make(missing)
        return made

    @cached_property
    def passwords(self) -> dict[str, str]:
        """The users' passwords, drawn on first use."""
        path = self.directory / "users.json"
        if not path.exists():
            users = (ADMIN, *self.other_users)
            passwords = {user: secrets.token_urlsafe(12) for user in users}
            write_file(path, json.dumps(passwords), secret=True)
        return dict(json.loads(path.read_text()))

    @property
    def token_file(self) -> Path:
        """The file of the HTTP API's token, which is its last word; written on first use."""
        path = self.directory / "admin.tokens"
        if not path.exists():
            write_file(path, f"operator {ADMIN} {secrets.token_urlsafe(24)}\n", secret=True)
        return path

    def settings_of(self, node_id: int) -> Mapping[str, str]:
        """Return the settings for TLS, authentication and authorization; write the users beside the metadata log."""
        self.login = Login(ADMIN, self.passwords[ADMIN], self.certificates.ca, MECHANISM)
        own = self.certificates.node_settings(self.addresses[node_id].host)
        write_bootstrap(RealDisk(), str(self.directory / f"node-{node_id}" / "data"), self._credentials)
        return {
            **own,
            PROTOCOLS: f"{self.listener}:{self.listener},CONTROLLER:SSL",
            "listener.name.controller.ssl.client.auth": "required",
            "raftlog.admin.ssl.certificate": own["ssl.keystore.location"],
            "raftlog.admin.tokens.file": str(self.token_file),
            "sasl.enabled.mechanisms": f"{MECHANISM},{PLAIN}",
            f"listener.name.{self.listener.lower()}.plain.sasl.jaas.config": self._plain_users,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN}",
        }

    @cached_property
    def _credentials(self) -> list[ScramCredentialChanged]:
        return [
            ScramCredentialChanged(
                user,
                MECHANISM,
                credential(MECHANISM, password, secrets.token_bytes(SALT_BYTES), MIN_ITERATIONS),
            )
            for user, password in self.passwords.items()
        ]

    @property
    def _plain_users(self) -> str:
        """The same users and passwords for PLAIN: the kcat of Debian 12 cannot log in with SCRAM (librdkafka 2.0.2)."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        users = " ".join(f'user_{user}="{password}"' for user, password in self.passwords.items())
        return f"{module} required {users};"

    def client_settings(self, user: str) -> dict[str, Any]:
        """Return the settings with which a client of librdkafka logs in."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.certificates.ca),
        }

    def java_settings(self, user: str) -> dict[str, str]:
        """Return the settings with which a client in Java logs in."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{module} required username="{user}" password="{self.passwords[user]}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
        }

    def admin_url(self, node_id: int = 1) -> str:
        """Return the URL of a node's admin API, which uses TLS."""
        return super().admin_url(node_id).replace("http://", "https://")

    def schema_registry_url(self, node_id: int = 1) -> str:
        """Return the URL of a node's schema registry: HTTPS too."""
        return super().schema_registry_url(node_id).replace("http://", "https://")
