"""Claims about the console's files: access to the page, its headers for browsers, and its maximum size."""

from __future__ import annotations

import http.client
import re

import pytest

from raftlog.admin.console_files import MAX_BYTES, PAGE, console_files
from tests.admin.conftest import Api

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def fetch(node: Api, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(node.host, node.port, timeout=30)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_browser_gets_the_console_and_a_program_gets_links(node: Api) -> None:
    """The same address serves both, by what they accept."""
    page, content = fetch(node, "/", **BROWSER)
    assert (page.status, page.headers.get_content_type()) == (200, "text/html")
    assert content == console_files()[PAGE].content
    assert node.get("/").body["openapi"].endswith("/openapi.json")


def test_no_page_of_the_console_takes_anything_from_elsewhere(node: Api) -> None:
    """The policy allows the console's own scripts, styles and requests. No other site can put the page into a frame."""
    for path in ("/", "/console/app.js", "/console/style.css"):
        answer, _ = fetch(node, path, **BROWSER)
        policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
        assert policy.pop("default-src") == "'none'"
        assert (
            policy.pop("frame-ancestors") == policy.pop("base-uri") == policy.pop("form-action") == "'none'"
        )
        assert set(policy.values()) == {"'self'"}
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_file_that_a_browser_has_is_not_sent_again(node: Api) -> None:
    """By its ETag; another one gets the file."""
    first, content = fetch(node, "/console/app.js")
    again, nothing = fetch(node, "/console/app.js", If_None_Match=first.headers["ETag"])
    other, whole = fetch(node, "/console/app.js", If_None_Match='"other"')
    assert (first.status, again.status, other.status) == (200, 304, 200)
    assert (nothing, whole) == (b"", content)
    assert again.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2Fserver.py", "%2e%2e/server.py", "app.py", "console_files.py"]
)
def test_only_the_files_of_the_console_are_served(node: Api, name: str) -> None:
    """No path of a request is a path of a disk."""
    assert fetch(node, f"/console/{name}")[0].status == 404


def test_name_that_leads_here_by_rebinding_gets_no_console(node: Api) -> None:
    """As with the rest of the API of a node without tokens."""
    for path in ("/", "/console/app.js"):
        assert fetch(node, path, Host="evil.example", **BROWSER)[0].status == 403


def test_scripts_and_styles_stay_small() -> None:
    """Uncompressed, together."""
    sizes = [len(each.content) for name, each in console_files().items() if name != PAGE]
    assert 10_000 < sum(sizes) <= MAX_BYTES


def test_no_text_can_become_a_script() -> None:
    """Neither the page nor a script has a way to make HTML or code of a string, or a place outside of this node."""
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc|"
        r"createContextualFragment|setHTML|javascript:|https?://(?!www\.w3\.org/)"
    )
    for name, each in console_files().items():
        assert not sinks.findall(each.content.decode()), name
    page = console_files()[PAGE].content.decode()
    assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]* src=)", page)
