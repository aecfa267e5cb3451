"""A token of an identity provider, for a login with OAUTHBEARER: OAuth's client credentials grant (RFC 6749, 4.4)."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Final, NamedTuple

from raftlog.client.errors import Refused

ANSWER_S: Final = 10.0
MAX_BYTES: Final = 1 << 20
"""The maximum size of a provider's response."""


class Provider(NamedTuple):
    """An identity provider's token endpoint, and the client that asks it. `ca`: a file of authorities, or None."""

    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    ca: str | None = None


def fetch_token(provider: Provider) -> str:
    """Return an access token. Raise Refused if the provider does not return a token, OSError if it does not answer."""
    fields = {"grant_type": "client_credentials", **({"scope": provider.scope} if provider.scope else {})}
    # Not URL-encoded: that is off by default in KIP-768's clients.
    secret = base64.b64encode(f"{provider.client_id}:{provider.client_secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked where the setting is read
        provider.url,
        data=urllib.parse.urlencode(fields).encode(),
        headers={"Authorization": f"Basic {secret}", "Accept": "application/json"},
    )
    context = ssl.create_default_context(cafile=provider.ca)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=context) as answer:  # noqa: S310
            return str(json.loads(answer.read(MAX_BYTES))["access_token"])
    except urllib.error.HTTPError as error:
        error.close()
        raise Refused(provider.url, f"the identity provider returned {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise OSError(f"the identity provider is unreachable: {error.reason}") from None
    except (ValueError, LookupError, TypeError):
        raise Refused(provider.url, "the identity provider's response has no access_token") from None
