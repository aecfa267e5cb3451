"""Claims about values and their JSON Schemas: a check finds what another library finds, and stays within its bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import validators

from raftlog.schemas.json_payloads import MAX_REQUEST_STEPS, MAX_STEPS, STEPS_AT_ONCE, Fit, StepsLeft, check
from raftlog.schemas.json_schemas import parse
from raftlog.schemas.schema import Named

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
EXAMPLES = 40
NAMES = st.sampled_from(["a", "b", "ab"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.5]) | NAMES
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3)
)
KINDS = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
COUNTS = st.integers(0, 3)
PATTERNS = st.sampled_from(["a", "^b", "b$", "^a?b+$"])


def schemas(draft: int) -> st.SearchStrategy[Any]:
    """Return schemas of a draft, with references to a definition."""

    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(inner, min_size=1, max_size=3)
        by_name = st.dictionaries(NAMES, inner, max_size=2)
        bound = st.integers(-2, 2)
        keywords: dict[str, Any] = {
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=json.dumps),
            **dict.fromkeys(("minimum", "maximum"), bound),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), COUNTS),
            **dict.fromkeys(("minProperties", "maxProperties"), COUNTS),
            "pattern": PATTERNS,
            "uniqueItems": st.booleans(),
            "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
            "properties": by_name,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "additionalProperties": inner,
            "items": inner if draft == 2020 else inner | some,
            **dict.fromkeys(("allOf", "anyOf", "oneOf"), some),
            "not": inner,
        }
        if draft > 4:
            keywords |= {"const": VALUES, "contains": inner, "propertyNames": inner}
            keywords |= dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), bound)
        if draft >= 7:
            keywords |= dict.fromkeys(("if", "then", "else"), inner)
        if draft < 2020:
            keywords["additionalItems"] = inner
        if draft >= 2019:
            keywords |= dict.fromkeys(("minContains", "maxContains"), COUNTS)
            keywords["dependentSchemas"] = by_name
            keywords["dependentRequired"] = st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True))
        else:
            keywords["dependencies"] = by_name
        if draft == 2020:
            keywords["prefixItems"] = some
        return st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: keywords[name] for name in names})
        )

    simple = st.just({}) | st.just({"$ref": "#/definitions/x"})
    if draft > 4:
        simple |= st.booleans()
    return st.recursive(simple, around, max_leaves=8)


def run(payload: bytes, schema: Any, *named: Named, left: StepsLeft | None = None) -> tuple[Fit, int]:
    """Return what a check finds, and after how many slices."""
    steps = check(payload, parse(json.dumps(schema), named), left or StepsLeft())
    slices = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, slices
        slices += 1


def fit(value: Any, schema: Any, *named: Named) -> Fit:
    return run(json.dumps(value).encode(), schema, *named)[0]


@pytest.mark.parametrize("draft", DRAFTS)
@given(drawn=st.data())
@settings(max_examples=EXAMPLES)
def test_check_agrees_with_another_library(draft: int, drawn: st.DataObject) -> None:
    """The package `jsonschema` finds the same values wrong, in each draft. What is not checked is not compared."""
    schema = drawn.draw(schemas(draft))
    assume(isinstance(schema, dict) and "$ref" not in schema)
    schema |= {
        "$schema": DRAFTS[draft],
        "definitions": {"x": drawn.draw(st.sampled_from([{"type": "string"}]))},
    }
    value = drawn.draw(VALUES)
    found = fit(value, schema)
    assert found.unchecked == ""
    assert (found.mismatch == "") == validators.validator_for(schema)(schema).is_valid(value), found


ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "state": {"enum": ["open", "paid"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}, "uniqueItems": True},
        "note": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"text": {"type": "string"}}}]},
    },
    "required": ["id"],
    "additionalProperties": False,
    "definitions": {"line": {"properties": {"price": {"multipleOf": 0.01}, "sku": {"pattern": "^[A-Z]+$"}}}},
}


@pytest.mark.parametrize(
    ("value", "mismatch"),
    [
        ({"id": 1, "lines": [{"price": 19.99, "sku": "A"}], "note": None}, ""),
        ([], "an array is not of type object"),
        ({}, "the required property 'id' is missing"),
        ({"id": "7"}, 'at /id: "7" is not of type integer'),
        ({"id": 0}, "at /id: 0 is less than the minimum 1"),
        ({"id": 1, "more": 2}, "the property 'more' is not allowed"),
        ({"id": 1, "state": "lost"}, 'at /state: "lost" is not one of "open", "paid"'),
        ({"id": 1, "lines": [{"price": 0.005}]}, "at /lines/0/price: 0.005 is no multiple of 0.01"),
        ({"id": 1, "lines": [{"sku": "a"}]}, "at /lines/0/sku: \"a\" does not match the pattern '^[A-Z]+$'"),
        ({"id": 1, "lines": [{}, {}]}, "at /lines/1: an earlier item is equal, and all must be different"),
        (
            {"id": 1, "note": {"text": 5}},
            "at /note/text: it fits none of 2 alternatives, as 5 is not of type string",
        ),
    ],
)
def test_first_misfit_is_named_with_its_place(value: Any, mismatch: str) -> None:
    """In words for people who know the schema."""
    assert fit(value, ORDER) == Fit(mismatch, "")


@pytest.mark.parametrize(("value", "fits"), [(1, False), (2, True), (3, True), (4, False), ("x", True)])
def test_bounds_of_draft_4_may_be_exclusive(value: Any, fits: bool) -> None:
    """By a boolean beside the bound."""
    schema = {
        "$schema": DRAFTS[4],
        "minimum": 1,
        "exclusiveMinimum": True,
        "maximum": 4,
        "exclusiveMaximum": True,
    }
    assert (fit(value, schema).mismatch == "") == fits


@pytest.mark.parametrize(
    ("keywords", "fits"),
    [({}, True), ({"minContains": 3}, False), ({"minContains": 0}, True), ({"maxContains": 1}, False)],
)
def test_contained_items_are_counted(keywords: dict[str, int], fits: bool) -> None:
    """A single item is enough unless the schema has another bound."""
    schema = {"$schema": DRAFTS[2019], "contains": {"type": "string"}, **keywords}
    assert (fit([1, "a", "b"], schema).mismatch == "") == fits
    assert (fit([1, "a"], schema).mismatch == "") == (keywords.get("minContains", 1) < 2)
    assert (fit([1], schema).mismatch == "") == (keywords.get("minContains") == 0)


def test_schemas_of_other_names_are_followed() -> None:
    """As the registry knows them, by the end of a URL, too."""
    line = Named(
        "line.json",
        json.dumps(
            {"properties": {"n": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}}
        ),
    )
    for reference in ("line.json", "https://shop.example/line.json"):
        assert fit({"n": "1"}, {"allOf": [{"$ref": reference}]}, line).mismatch == (
            'at /n: "1" is not of type integer'
        )


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (4, Fit("at /p: 1 is not of type string", "")),
        (7, Fit("at /p: 1 is not of type string", "")),
        (2019, Fit("", "the reference '#/definitions/a' is not followed")),
    ],
)
def test_id_beside_a_reference_counts_since_2019(draft: int, expected: Fit) -> None:
    """Then the reference points into the schema of that id, which has no such place."""
    name = "id" if draft == 4 else "$id"
    schema = {
        "$schema": DRAFTS[draft],
        "definitions": {"a": {"type": "string"}},
        "properties": {"p": {"$ref": "#/definitions/a", name: "http://shop.example/p"}},
    }
    assert fit({"p": 1}, schema) == expected


DEEP = {f"d{n}": {"allOf": 2 * [{"$ref": f"#/definitions/d{n + 1}"}]} for n in range(30)} | {"d30": {}}


@pytest.mark.parametrize(
    ("payload", "schema", "unchecked"),
    [
        (b"1", {"$ref": "#"}, "more than 80 deep"),
        (b"1", {"definitions": {"a": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"}, "80 deep"),
        (b"1", {"definitions": DEEP, "$ref": "#/definitions/d0"}, f"more than {MAX_STEPS} steps"),
        (b"[" * 60 + b"]" * 60, {"items": {"$ref": "#"}}, "more than 80 deep"),
        (b"[" * 9_000 + b"]" * 9_000, {"items": {}}, "nested too deeply"),
        (b"9" * 9_000, {"type": "integer"}, "too many digits"),
        (b"[" + b"1," * 99_999 + b"1]", {"items": {"type": "integer"}}, f"more than {MAX_STEPS} steps"),
        (b'"' + b"a" * 200_000 + b'"', {"pattern": "^(a|aa)+b{40}$"}, "takes too many steps"),
        (b'"' + b"a" * 50 + b'!"', {"pattern": "(?=(a+)+$)"}, "not one that RE2 searches"),
        (b'"x"', {"pattern": "(x{99}){99}"}, "not one that RE2 searches"),
        ('"Zo\u00eb"'.encode(), {"pattern": r"^\w+$"}, "means different things beyond ASCII"),
        (b"{}", {"$schema": DRAFTS[2020], "unevaluatedProperties": False}, "unevaluatedProperties is not"),
        (
            b"1",
            {"$schema": "http://json-schema.org/draft/" + "9" * 5_000, "$recursiveRef": "#", "$ref": "#"},
            "80 deep",
        ),
        (b"1e999", {"multipleOf": 2}, "too large to be divided"),
        (b'"x"', {"not": {"pattern": "(?=x)"}}, "not one that RE2 searches"),
        (b'"x"', {"oneOf": [{"pattern": "(?=x)"}, {}]}, "not one that RE2 searches"),
    ],
)
def test_hostile_schemas_and_values_end_as_unchecked(payload: bytes, schema: Any, unchecked: str) -> None:
    """Within a bound of steps, and never as a misfit that was not found."""
    found, slices = run(payload, schema)
    assert found.mismatch == ""
    assert unchecked in found.unchecked
    assert slices <= MAX_STEPS / 100


NAMED = {f"n{n}": n for n in range(4_000)}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (list(NAMED), {"items": {"type": "string"}}),
        (list(NAMED), {"uniqueItems": True}),
        (list(NAMED), {"contains": {"type": "integer"}, "minContains": 0, "$schema": DRAFTS[2019]}),
        (NAMED, {"properties": {name: {"type": "integer"} for name in NAMED}}),
        (NAMED, {"patternProperties": {"^m": {}}}),
        (NAMED, {"additionalProperties": False, "properties": dict.fromkeys(NAMED, True)}),
        (NAMED, {"additionalProperties": {}, "patternProperties": {"^m": {}}}),
        (NAMED, {"propertyNames": {"maxLength": 5}}),
    ],
)
def test_check_yields_each_few_steps(value: Any, schema: Any) -> None:
    """A node's loop is held for a slice of them."""
    left = StepsLeft()
    found, slices = run(json.dumps(value).encode(), schema, left=left)
    assert found == Fit("", "")
    taken = MAX_REQUEST_STEPS - left.count
    assert slices > taken / (4 * STEPS_AT_ONCE)


def test_checks_of_a_request_have_a_bound_together() -> None:
    """A page may have a thousand values. The bound is far from what they need."""
    left = StepsLeft()
    for _ in range(50):
        assert run(b'{"id": 1, "state": "paid"}', ORDER, left=left)[0] == Fit("", "")
    assert left.count > MAX_REQUEST_STEPS * 0.99
    deep = {"definitions": DEEP, "$ref": "#/definitions/d0"}
    left.count = 1
    assert [run(b"1", deep, left=left)[0].unchecked for _ in range(2)] == [
        f"it takes more than {MAX_STEPS} steps",
        f"the checks of values before it took {MAX_REQUEST_STEPS} steps",
    ]


def test_compiling_an_expression_ends_a_slice() -> None:
    """However many there are for one property: some milliseconds each."""
    patterns = {f"^x([a-z]{{1,20}}[0-9]){{1,8}}x{n}$": {} for n in range(200)}
    for schema in (
        {"patternProperties": patterns},
        {"patternProperties": patterns, "additionalProperties": False},
    ):
        _, slices = run(b'{"y": 1}', schema)
        assert slices >= len(patterns) - 1


def test_schema_with_very_many_expressions_ends() -> None:
    """Few expressions are remembered, so each value compiles them anew."""
    patterns = [{"not": {"pattern": f"([a-z]{{1,20}}[0-9]){{1,8}}y{n}"}} for n in range(200)]
    found, _ = run(json.dumps(["y"] * 60).encode(), {"items": {"allOf": patterns}})
    assert found == Fit("", f"it takes more than {MAX_STEPS} steps")


def test_expression_that_backtracks_is_searched_in_linear_time() -> None:
    """For a backtracking engine this takes longer than the universe is old."""
    assert "does not match" in fit("a" * 100 + "!", {"pattern": "^(a+)+$"}).mismatch


def test_what_is_not_checked_does_not_hide_what_is_wrong() -> None:
    """A pattern beyond RE2 is skipped, and the rest of the schema is checked."""
    schema = {"properties": {"a": {"pattern": "(?=x)"}, "b": {"type": "string"}}}
    found = fit({"a": "x", "b": 1}, schema)
    assert found.mismatch == "at /b: 1 is not of type string"
    assert "(?=x)" in found.unchecked


@pytest.mark.parametrize(
    ("value", "mismatch"), [(10**400, "at /b"), (10**400 + 1, "is no multiple of 2")], ids=["even", "odd"]
)
def test_integer_beyond_floats_is_divided(value: int, mismatch: str) -> None:
    """And what is wrong after it is found."""
    found = fit({"a": value, "b": 1}, {"properties": {"a": {"multipleOf": 2}, "b": {"type": "string"}}})
    assert mismatch in found.mismatch and found.unchecked == ""


def test_half_of_a_surrogate_pair_in_a_message_is_replaced() -> None:
    """Such a text has no UTF-8, and the message has."""
    found, _ = run(b'{"\\ud800": 1}', {"additionalProperties": {"type": "string"}})
    assert found.mismatch == "at /?: 1 is not of type string"
