"""Ids of advisories and of the policy's rules in the search of the audit log."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from analytics.model.ecosystems import Ecosystem
from analytics.model.filters import InvalidQuery, literal
from service.access.roles import Capability
from service.audit.readings import VERSION, Reading, Searcher
from service.core.threads import in_thread
from service.packages.policy.advisories import PackageAdvisories
from service.packages.policy.document import decode_document
from service.packages.policy.model import ReleaseRule
from service.packages.policy.repository import (
    decode_advisories,
    find_revision,
    list_advisories_named,
)
from service.packages.versions import find_version, parse_range
from service.store.store import Store

_ID: Final = r"GHSA(?:-[0-9a-z]{4}){3}|[A-Z]{2,12}-[0-9]{4}-[0-9]{1,9}|SNYK-[A-Z]+-[A-Z0-9-]+"
_ADVISORY: Final = re.compile(_ID, re.ASCII | re.IGNORECASE)
_ADDRESS: Final = re.compile(rf"https?://\S*/(?P<id>{_ID})/?(?:[?#]\S*)?", re.ASCII | re.IGNORECASE)
_DATABASES: Final = frozenset({"GHSA", "CVE", "MAL", "PYSEC", "OSV", "SNYK", "RUSTSEC", "GO"})
"""Their ids name no package, whichever rows there are."""

PACKAGES_MAX: Final = 50
"""How many packages of an advisory become filters: each costs a query."""
RECORDS_MAX: Final = 4 * PACKAGES_MAX
"""How many records of one name are read: several may have the same alias.

One of more is refused: what it affects may be in a record that was not read.
"""

_Affected = Mapping[str, Sequence[tuple[Ecosystem, PackageAdvisories | None]]]
"""The advisories on each package, by its filter; None for one that affects all versions."""

_RULE: Final = re.compile(r"[^\s\"\\]{3,200}")


async def read_advisory(searcher: Searcher, text: str) -> Sequence[Reading]:
    """The releases that an advisory names. Raises InvalidQuery for one that is not known.

    The organisation's own rules have ids of advisories, too: those may see them who may read the
    policy.
    """
    address = _ADDRESS.fullmatch(text)
    advisory_id = address["id"] if address else text
    if not _ADVISORY.fullmatch(advisory_id):
        return []
    names = _spellings(advisory_id)
    of_rules = await _of_rules(searcher, names)
    readings = [*of_rules, *await _of_advisories(searcher.store, names)]
    if not readings and advisory_id.partition("-")[0].upper() in _DATABASES:
        raise InvalidQuery(
            f"{advisory_id} is in no rule of the policy and in no imported advisory: search for the"
            " package that it is about",
            field="q",
        )
    return readings


async def read_rule(searcher: Searcher, text: str) -> Sequence[Reading]:
    """The releases that a rule of the policy denies or allows, by the rule's id as rows show it."""
    if not _RULE.fullmatch(text) or _ADVISORY.fullmatch(text):
        return []
    return await _of_rules(searcher, [text])


def _spellings(advisory_id: str) -> list[str]:
    """The id as it is, and as its database writes it: only GHSA has letters behind its name."""
    database, _, rest = advisory_id.partition("-")
    proper = f"{database.upper()}-{rest.lower() if database.upper() == 'GHSA' else rest.upper()}"
    return [*dict.fromkeys((advisory_id, proper))]


async def _of_advisories(store: Store, names: Sequence[str]) -> list[Reading]:
    """The releases that imported advisories with these ids or aliases affect."""
    async with store.read() as session:
        stored = await list_advisories_named(session, names, RECORDS_MAX + 1)
    if len(stored) > PACKAGES_MAX or sum(map(len, stored.values())) > RECORDS_MAX:
        raise InvalidQuery(
            f"{names[0]} is about more than {PACKAGES_MAX} packages or in more than {RECORDS_MAX}"
            " advisories: search for one of its packages",
            field="q",
        )
    if not stored:
        return []
    affected = await in_thread(_compiled, stored)
    ecosystems = dict.fromkeys(str(ecosystem) for ecosystem, _ in stored)
    filters = {"ecosystem": tuple(ecosystems), "package": tuple(affected)}
    if all(each is None for advisories in affected.values() for _, each in advisories):
        return [Reading(filters)]
    version = literal(f"affected by {names[0]}")
    return [Reading(filters | {VERSION: (version,)}, partial(_is_affected, affected))]


def _compiled(stored: Mapping[tuple[Ecosystem, str], Sequence[tuple[str, bytes]]]) -> _Affected:
    affected: dict[str, list[tuple[Ecosystem, PackageAdvisories | None]]] = {}
    for (ecosystem, package), specs in stored.items():
        advisories = decode_advisories(ecosystem, specs)
        is_on_all = any(each.is_on_all_versions for each in advisories)
        on_package = None if is_on_all else PackageAdvisories(advisories)
        affected.setdefault(literal(package), []).append((ecosystem, on_package))
    return affected


def _is_affected(affected: _Affected, package: str, text: str) -> bool:
    return any(
        advisories is None
        or advisories.first(text, find_version(ecosystem, text), frozenset()) is not None
        for ecosystem, advisories in affected[package]
    )


async def _of_rules(searcher: Searcher, ids: Sequence[str]) -> list[Reading]:
    """None for a caller who may not read the policy."""
    if not searcher.may(Capability.POLICY_READ):
        return []
    async with searcher.store.read() as session:
        revision = await find_revision(session, searcher.org.id)
    # Most words are in no policy, and to decode one takes a hundred times as long.
    if revision is None or not any(f'"{each}"'.encode() in revision.document for each in ids):
        return []
    policy = decode_document(revision.document)
    rules = (rule for rule in (*policy.deny, *policy.allow) if rule.rule_id in ids)
    return [reading for rule in rules for reading in _of_rule(rule)]


def _of_rule(rule: ReleaseRule) -> Iterable[Reading]:
    """None for a rule whose pattern is no beginning of names: no filter means the same."""
    ecosystem, pattern = rule.packages.ecosystem, rule.packages.pattern
    if pattern.is_exact:
        package = literal(pattern.text)
    elif pattern.pieces[1:] == ("",):
        package = f"{literal(pattern.pieces[0])}*"
    else:
        return
    filters = {"ecosystem": (str(ecosystem),), "package": (package,)}
    if not rule.texts:
        yield Reading(filters)
        return
    ranges = [parse_range(ecosystem, text) for text in rule.texts]

    def includes(_: str, text: str) -> bool:
        version = find_version(ecosystem, text)
        return version is not None and any(each.contains(version) for each in ranges)

    yield Reading(filters | {VERSION: (literal(" || ".join(rule.texts)),)}, includes)
