"""Passwords, proofs and their kin are compared by `hmac.compare_digest` only, which takes the same time for all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import every_module, nodes_of

SECRET = re.compile(
    r"(?:\w*_)?(?:passwords?|proofs?|hmacs?|macs?|signatures?|secrets?|nonces?|verifiers?|(?:hex)?digest|bearer"
    r"|(?:client|server|stored|secret|salted)_(?:key|password))"
)
"""The names of what a stranger must not guess byte by byte."""

PUBLIC_ALL_THE_SAME: frozenset[str] = frozenset(
    {"raftlog/base/config/tls.py: tls.ssl_key_password not in ('', tls.ssl_keystore_password)"}
)
"""Comparisons that no stranger can try, here of one file's own settings. The list only shrinks."""


def leaky_comparisons(tree: ast.Module) -> Iterator[str]:
    """Yield comparisons of secrets that take longer the more bytes agree. A constant is no secret to compare with."""
    for node in nodes_of(tree, ast.Compare):
        operands = (node.left, *node.comparators)
        exact = any(isinstance(each, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for each in node.ops)
        if exact and not any(map(_is_constant, operands)) and any(map(_is_secret, operands)):
            yield ast.unparse(node)


def _is_constant(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(map(_is_constant, parts))
        case _:
            return False


def _is_secret(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return SECRET.fullmatch(name.lower().strip("_")) is not None
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            return SECRET.fullmatch(name) is not None or _is_secret(value)
        case ast.Call(func=function, args=arguments):
            name = ast.unparse(function)
            wraps = name.rsplit(".", 1)[-1] in ("bytes", "str", "encode", "decode", "strip", "hex")
            inner = [*arguments, function.value] if isinstance(function, ast.Attribute) else arguments
            return _is_secret(function) or (wraps and any(map(_is_secret, inner)))
        case _:
            return False


def test_secrets_are_compared_in_constant_time() -> None:
    """CVE-2021-38153: with `==` the response time reveals how much of a guess is right."""
    found = {
        f"{module.name}: {comparison}"
        for module in every_module()
        if module.name.startswith("raftlog/")
        for comparison in leaky_comparisons(module.tree)
    }
    assert found == PUBLIC_ALL_THE_SAME


@pytest.mark.parametrize(
    "line",
    [
        "password == kept",
        "self._secret != given",
        "proof in proofs",
        "parts['nonce'] == self._nonce",
        "hmac.digest(key, said, name) == proven",
        "hashlib.sha256(x).hexdigest() == known",
        "bytes(message.hmac) == expected",
        "credential.stored_key == other.stored_key",
        "given.encode() == password.encode()",
    ],
)
def test_the_rule_sees_comparisons_of_secrets(line: str) -> None:
    """As attributes, calls, parts of mappings, and behind conversions."""
    assert list(leaky_comparisons(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "hmac.compare_digest(password, kept)",
        "password == ''",
        "secret is None",
        "len(nonce) == size",
        "name == 'password'",
        "mechanism in MECHANISMS",
    ],
)
def test_the_rule_lets_other_comparisons_be(line: str) -> None:
    """Lengths, constants and identity reveal no byte of a secret."""
    assert not list(leaky_comparisons(ast.parse(line)))
