"""What filters find: the real reader against the rules said again in plain Python."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.model.filters import FILTER_COLUMNS, PREFIX_PARAMETERS, parse_query
from analytics.model.rows import AuditRow
from tests.analytics.samples import SampleLake, open_lake, sample_row
from tests.budgets import budget

VALUES = [
    *(None, "", "a", "A", "ab", "abc", "b", "!a", "a*", "*", "!", "\\", "a\\", "a%", "a_", "%"),
    *("é", "e\u0301", "😀", "a\x00b", "' OR true --", "$f0"),
]
"""What the columns hold: near misses of each other and of the syntax."""


@dataclass(frozen=True)
class Wish:
    """One value of a filter, before it is written down as text."""

    text: str
    is_prefix: bool
    is_negated: bool

    def written(self) -> str:
        """As the caller writes it, all that has a meaning escaped."""
        text = self.text.replace("\\", "\\\\").replace("!", "\\!").replace("*", "\\*")
        return f"{'!' if self.is_negated else ''}{text}{'*' if self.is_prefix else ''}"

    def is_met(self, value: str | None) -> bool:
        if value is None:
            return self.is_negated
        is_alike = value.startswith(self.text) if self.is_prefix else value == self.text
        return is_alike is not self.is_negated


def is_wanted(row: AuditRow, wishes: dict[str, list[Wish]]) -> bool:
    """Different parameters AND; of one, any positive wish and every negative one."""
    for parameter, alternatives in wishes.items():
        value = getattr(row, FILTER_COLUMNS[parameter])
        positive = [wish for wish in alternatives if not wish.is_negated]
        negative = [wish for wish in alternatives if wish.is_negated]
        if positive and not any(wish.is_met(value) for wish in positive):
            return False
        if not all(wish.is_met(value) for wish in negative):
            return False
    return True


ROWS = [
    sample_row(package_name=package, subject=subject, version=package, actor=subject or "someone")
    for package in VALUES
    for subject in (None, "", "a", "ab", "b", "😀")
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleLake]:
    """ROWS, half of them sealed, half in the journal."""
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    lake.add(ROWS[: len(ROWS) // 2], is_sealed=True)
    lake.add(ROWS[len(ROWS) // 2 :], is_sealed=False)
    yield lake
    lake.reader.resources.engine.close()


def found(lake: SampleLake, parameters: dict[str, list[str]]) -> list[int]:
    """The seq of every row that `parameters` ask for, ascending."""
    rows = lake.reader.page(lake.snapshot(), parse_query(parameters), len(ROWS))
    assert lake.reader.count(lake.snapshot(), parse_query(parameters)) == rows.num_rows
    return sorted(rows.column("seq").to_pylist())


TEXTS = st.sampled_from([value for value in VALUES if value])
WISHES = st.builds(Wish, TEXTS, st.booleans(), st.booleans())
EXACT_WISHES = st.builds(Wish, TEXTS, st.just(False), st.booleans())
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        name: st.lists(
            WISHES if name in PREFIX_PARAMETERS else EXACT_WISHES, min_size=1, max_size=4
        )
        for name in ("package", "version", "actor", "subject")
    },
)


@settings(max_examples=budget(10, 50))
@given(wishes=PARAMETERS)
def test_the_reader_finds_what_the_rules_say(stored, wishes):
    parameters = {name: [wish.written() for wish in some] for name, some in wishes.items()}

    expected = [seq for seq, row in enumerate(ROWS, start=1) if is_wanted(row, wishes)]

    assert found(stored, parameters) == expected


@pytest.mark.parametrize(
    ("parameters", "packages"),
    [
        ({"package": ["a"]}, {"a"}),
        ({"package": ["a", "b"]}, {"a", "b"}),
        ({"package": ["a", "zzz"]}, {"a"}),
        ({"package": ["a"], "version": ["b"]}, set()),
        ({"package": ["a"], "version": ["a"]}, {"a"}),
        ({"package": ["ab*"]}, {"ab", "abc"}),
        ({"package": ["ab*", "!abc"]}, {"ab"}),
        ({"package": ["*"]}, set(VALUES) - {None}),
        ({"package": ["!*"]}, {None}),
        ({"package": ["!a"]}, set(VALUES) - {"a"}),
        ({"package": ["!a", "!b"]}, set(VALUES) - {"a", "b"}),
        ({"package": ["!a*"]}, {v for v in VALUES if v is None or not v.startswith("a")}),
        ({"package": [r"\!a"]}, {"!a"}),
        ({"package": [r"a\*"]}, {"a*"}),
        ({"package": ["\\"]}, {"\\"}),
        ({"package": ["a%*"]}, {"a%"}),
        ({"package": ["é"]}, {"é"}),
    ],
)
def test_the_rules_by_example(stored, parameters, packages):
    expected = [seq for seq, row in enumerate(ROWS, start=1) if row.package_name in packages]

    assert found(stored, parameters) == expected
