"""pyiceberg's REST catalog, with limits to how long the server may take, and its errors in words."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from requests import ConnectionError as RefusedError
from requests import PreparedRequest, Response, Session, Timeout

from raftlog.tables import patience

TIMEOUT: Final = "timeout"


class PatientCatalog(RestCatalog):  # type: ignore[misc] # pyiceberg's types are not read here
    """A REST catalog that raises TimeoutError if its server does not answer, and ConnectionError if it is not there."""

    asking = ""
    """The server that has not answered yet, for people; "" while no request is under way."""

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        self._limit(session)
        return session

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        self._limit(session)  # before it asks for a token
        return super()._create_legacy_oauth2_auth_manager(session)

    def _limit(self, session: Session) -> None:
        """Limit the requests of a session. `send` is below all of them, and above adapters that sign."""
        send = Session.send.__get__(session)

        def limited(request: PreparedRequest, **options: Any) -> Response:
            options[TIMEOUT] = options.get(TIMEOUT) or (patience.CONNECT_S, patience.ANSWER_S)
            server = f"the catalog at {origin(request.url or self.uri)}"
            self.asking = server
            try:
                response: Response = send(request, **options)
                return response
            except Timeout:
                raise TimeoutError(f"{server} did not answer within {patience.ANSWER_S:g} s") from None
            except RefusedError as error:
                raise ConnectionError(f"{server} cannot be reached: {_root(error)}") from error
            finally:
                self.asking = ""

        session.send = limited  # type: ignore[method-assign] # a session has no other place for a default


def origin(url: str) -> str:
    """Return a URL without login, path and parameters."""
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def _root(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
