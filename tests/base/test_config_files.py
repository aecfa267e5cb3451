"""Claims about the syntax of config files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.config.files import (
    environment_name,
    format_properties,
    parse_environment,
    parse_file,
    parse_override,
    parse_properties,
    parse_toml,
)


def test_toml_tables_dotted_keys_and_quoted_keys_mean_the_same():
    """People write TOML in all three ways."""
    text = """
    "num.partitions" = 3
    auto.create.topics.enable = false
    log.dirs = ["/a", "/b"]
    "log.dir.failure.timeout.ms" = 5
    [log.retention]
    ms = -1
    """
    assert parse_toml(text) == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.dirs": "/a,/b",
        "log.dir.failure.timeout.ms": "5",
        "log.retention.ms": "-1",
    }


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("num.partitions = x\n", "not TOML: .*line 1"),
        ('num.partitions = 1\n"num.partitions" = 2', "set twice"),
        ("num.partitions = 2020-01-01", "is a date"),
        ("listeners = [[1]]", "is a list"),
    ],
)
def test_broken_toml_is_said_with_its_place(text, rule):
    """A corrupt config file is a clear error."""
    with pytest.raises(ValueError, match=rule):
        parse_toml(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a\t=\t1 2 ", {"a": "1 2 "}),
        ("# a=1\n! b=2\n\n  # c=3\nd=4", {"d": "4"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1,\\\n#2", {"a": "1,#2"}),
        ("a\\=b\\ c=x\\ty\\u0041", {"a=b c": "x\tyA"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a", {"a": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("dir=C\\:\\\\x", {"dir": "C:\\x"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, values):
    """Each rule of java.util.Properties.load."""
    assert parse_properties(text) == values


def test_a_broken_unicode_escape_is_said():
    r"""Java throws "Malformed \uxxxx encoding"."""
    with pytest.raises(ValueError, match="u00g0"):
        parse_properties("a=\\u00g0")


def _escaped(text: str) -> str:
    out = "".join(f"\\u{ord(c):04x}" if not c.isalnum() or ord(c) > 126 else c for c in text)
    return out or ""


_BMP = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(_BMP.filter(bool), _BMP))
def test_properties_that_were_escaped_come_back(values):
    """Store and load are inverse for any text, as with java.util.Properties."""
    text = "\n".join(f"{_escaped(name)}={_escaped(value)}" for name, value in values.items())
    assert parse_properties(text) == values


def test_a_files_suffix_chooses_its_syntax():
    """server.properties and node.toml both just work."""
    assert (
        parse_file("a.b = 1", name="X.TOML") == parse_file("a.b=1", name="server.properties") == {"a.b": "1"}
    )


def test_environment_names_are_the_dotted_names_in_capitals():
    """RAFTLOG_NODE_ID and its like."""
    assert environment_name("node.id") == "RAFTLOG_NODE_ID"
    assert environment_name("raftlog.cluster.secret") == "RAFTLOG_CLUSTER_SECRET"


OF_LISTENERS = ("ssl.client.auth", "scram-sha-256.sasl.jaas.config", "a.b", "c.a.b")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("EXTERNAL_SSL_CLIENT_AUTH", "listener.name.external.ssl.client.auth"),
        ("SASL_SSL_SSL_CLIENT_AUTH", "listener.name.sasl_ssl.ssl.client.auth"),
        ("X_SCRAM_SHA_256_SASL_JAAS_CONFIG", "listener.name.x.scram-sha-256.sasl.jaas.config"),
        ("X_C_A_B", "listener.name.x.c.a.b"),
        ("X_A_B", "listener.name.x.a.b"),
        ("SSL_CLIENT_AUTH", None),
        ("_SSL_CLIENT_AUTH", None),
        ("EXTERNAL_SSL_CLIENT", None),
        ("", None),
    ],
)
def test_a_variable_of_one_listener_ends_with_the_setting(variable, name):
    """The listener's name comes before it, and may have underscores."""
    variable = f"RAFTLOG_LISTENER_NAME_{variable}"
    found = parse_environment({variable: "x"}, ("node.id",), OF_LISTENERS)
    assert found == (({}, [variable]) if name is None else ({name: "x"}, []))


def test_an_override_is_a_name_and_a_value():
    """The value may hold further equal signs."""
    assert parse_override("a.b = c=d ") == ("a.b", "c=d")
    with pytest.raises(ValueError, match="must be name=value"):
        parse_override("a.b")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_properties_that_are_written_are_read_as_they_were(values: dict[str, str]) -> None:
    """Backslashes, new lines, blanks and signs of comments included."""
    assert parse_properties(format_properties(values)) == values


def test_properties_are_written_as_plainly_as_they_can_be() -> None:
    """Other readers of such files know no escapes."""
    assert format_properties({"log.dirs": "/a b,/c", "n": "User:CN=a"}) == "log.dirs=/a b,/c\nn=User:CN=a\n"
    assert format_properties({"a b": " x\\", "#": "1\n2"}) == "a\\ b=\\ x\\\\\n\\#=1\\n2\n"


def test_a_character_that_java_writes_in_two_halves_is_one() -> None:
    """Java's strings have 16 bits a character; half of a surrogate pair is no text."""
    assert parse_properties("a=\\ud83d\\ude00") == {"a": "\U0001f600"}
    with pytest.raises(ValueError) as refused:
        parse_properties("a=\\ud83d")
    assert type(refused.value) is ValueError
