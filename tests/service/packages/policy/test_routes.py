"""The admin API of policies: reading, replacing, checking, trying."""

from datetime import timedelta
from typing import Any

import pytest

from analytics.model.envelopes import InstallAllowed
from analytics.model.rows import audit_row
from service.packages.policy import preview as limits
from service.packages.policy.document import DOCUMENT_EXAMPLE
from tests.conftest import BY_OPERATOR, World, grant
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load

DENY = {"deny": [{"ecosystem": "npm", "package": "left-pad", "versions": ["<1.3.0"]}]}


async def ask(
    world: World, method: str, path: str = "", body: Any = None, slug: str = "acme", **headers: str
) -> Any:
    """A request with the admin token; the response."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await world.client.open(
        f"/api/v1/admin/orgs/{slug}/policy{path}",
        method=method,
        json=body,
        headers=world.admin | named,
    )


async def put(world: World, document: Any, if_match: str = "*") -> Any:
    """PUT a policy; its form."""
    response = await ask(world, "PUT", body=document, if_match=if_match)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


async def refusal(response: Any) -> tuple[int, str]:
    return response.status_code, (await response.get_json())["error"]


async def test_an_organisation_begins_without_a_policy(world: World) -> None:
    """Revision 0: the blocklist alone is in force."""
    response = await ask(world, "GET")

    assert response.headers["etag"] == '"0"'
    shown = await response.get_json()
    assert (shown["revision"], shown["sha256"]) == (0, None)
    assert shown["policy"]["deny"] == []


async def test_a_policy_is_shown_as_it_was_put(world: World) -> None:
    stored = await put(world, DOCUMENT_EXAMPLE, '"0"')
    response = await ask(world, "GET")
    shown = await response.get_json()

    again = await put(world, shown["policy"], response.headers["etag"])

    assert shown == stored == again
    assert response.headers["etag"] == '"1"'
    assert shown["changed_by"] == "system:admin-token"
    assert shown["policy"]["allow"][0]["id"] == "pypi:requests@==2.32.3"


async def test_every_change_is_one_row_with_what_was_before(world: World) -> None:
    await put(world, DENY)
    await put(world, DENY)
    await put(world, {"mode": "audit", "cooldown": {"min_age_days": 7}})

    second, first = await world.audit(event="policy_changed")

    assert first["payload"]["before"] == {}
    assert first["payload"]["after"] == {
        "deny": ["npm:left-pad@<1.3.0: npm:left-pad <1.3.0"],
    }
    assert first["payload"]["sha256_before"] is None
    assert second["payload"]["before"] == {
        "mode": ["enforce"],
        "deny": ["npm:left-pad@<1.3.0: npm:left-pad <1.3.0"],
    }
    assert second["payload"]["after"] == {"mode": ["audit"], "cooldown": ["7 days"]}
    assert second["payload"]["sha256_before"] == first["payload"]["sha256_after"]
    assert second["payload"]["revision"] == 2
    assert second["actor"] == "system:admin-token"


async def test_a_large_change_is_a_bounded_row(world: World) -> None:
    """A hundred lines of each part; the rest is counted, and the revision has it all."""
    rules = [{"ecosystem": "npm", "package": f"package-{number}"} for number in range(300)]

    await put(world, {"deny": rules})

    (row,) = await world.audit(event="policy_changed")
    assert len(row["payload"]["after"]["deny"]) == 100
    assert row["payload"]["omitted"] == 200
    assert len(row["decision_reason"]) <= 256


async def test_older_revisions_can_be_read(world: World) -> None:
    await put(world, DENY)
    await put(world, {})

    first = await (await ask(world, "GET", "?revision=1")).get_json()

    assert first["policy"]["deny"][0]["package"] == "left-pad"
    assert (await ask(world, "GET", "?revision=3")).status_code == 404
    for text in ("0", "x", "1&revision=2"):
        assert (await ask(world, "GET", f"?revision={text}")).status_code == 400


async def test_two_who_edit_at_once_do_not_overwrite_each_other(world: World) -> None:
    await put(world, DENY, '"0"')

    late = await refusal(await ask(world, "PUT", body={}, if_match='"0"'))

    assert late == (
        412,
        "the policy is at revision 1 by now: read it again, and apply your change to that",
    )
    assert len(await world.audit(event="policy_changed")) == 1
    await put(world, {}, 'W/"1"')


async def test_a_change_says_what_it_replaces(world: World) -> None:
    """Without that, a script would overwrite what a person has just saved."""
    for headers in (
        {},
        {"if_match": "x"},
        {"if_match": '"1", "2"'},
        {"if_match": ""},
    ):
        assert (await ask(world, "PUT", body={}, **headers)).status_code == 400, headers


async def test_a_wrong_policy_changes_nothing(world: World) -> None:
    document = {"deny": [{"ecosystem": "npm", "package": "left-pad", "versions": "latest"}]}

    refused = await refusal(await ask(world, "PUT", body=document, if_match="*"))

    assert refused[0] == 400
    assert refused[1].startswith("deny[0].versions: not a range")
    assert await world.audit(event="policy_changed") == []


@pytest.mark.parametrize("role", ["admin", "auditor", "member"])
async def test_owners_alone_read_and_change_policies(world: World, role: str) -> None:
    path = "/api/v1/admin/orgs/acme/policy"
    read = await world.client.get(path, headers=world.session(role))
    await grant(world, role, "policy:r")
    granted = await world.client.get(path, headers=world.session(role))
    changed = await world.client.put(path, json={}, headers=world.session(role) | {"if-match": "*"})

    assert (read.status_code, granted.status_code) == (403, 200)
    assert await refusal(changed) == (403, "missing capability: policy:w")


async def checked(world: World, **body: Any) -> Any:
    response = await ask(world, "POST", "/check", body)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


@pytest.mark.parametrize(
    ("body", "name", "version"),
    [
        ({"ecosystem": "pypi", "package": "Requests==2.32.3"}, "requests", "2.32.3"),
        ({"ecosystem": "pypi", "package": "requests[socks] == 2.32.3"}, "requests", "2.32.3"),
        ({"ecosystem": "pypi", "package": "requests", "version": "2.32.3"}, "requests", "2.32.3"),
        ({"ecosystem": "npm", "package": "left-pad@1.3.0"}, "left-pad", "1.3.0"),
        ({"ecosystem": "npm", "package": "@acme/a@1.0.0-rc.1"}, "@acme/a", "1.0.0-rc.1"),
    ],
)
async def test_a_release_is_named_as_its_users_write_it(
    world: World, body: dict[str, str], name: str, version: str
) -> None:
    verdict = await checked(world, **body)

    assert (verdict["package"], verdict["version"]) == (name, version)
    assert (verdict["decision"], verdict["event"]) == ("ALLOWED", "install_allowed")


async def test_why_a_release_would_be_blocked(world: World) -> None:
    await load(world.services.store, osv_zip([osv_record("MAL-7", "evil")]))
    await put(world, DENY | {"cooldown": {"min_age_days": 7}})
    yesterday = (world.clock() - timedelta(days=1)).isoformat()

    evil = await checked(world, ecosystem="npm", package="evil@9.9.9")
    denied = await checked(world, ecosystem="npm", package="left-pad@1.2.9+build")
    young = await checked(world, ecosystem="npm", package="a@1.0.0", published_at=yesterday)
    ageless = await checked(world, ecosystem="npm", package="a@1.0.0")

    assert [(one["decision"], one["rule_id"], one["source"]) for one in (evil, denied, young)] == [
        ("BLOCKED", "MAL-7", "osv"),
        ("BLOCKED", "npm:left-pad@<1.3.0", "operator"),
        ("BLOCKED", None, None),
    ]
    assert young["event"] == "cooldown_active"
    assert (ageless["decision"], ageless["is_refused"]) == (None, None)
    assert "7 days" in ageless["reason"]


async def test_a_first_party_name_and_audit_mode(world: World) -> None:
    first = {"ecosystem": "npm", "package": "@acme/*", "registry": "npm.acme.example"}
    await put(world, DENY | {"mode": "audit", "first_party": [first]})

    denied = await checked(world, ecosystem="npm", package="left-pad@1.0.0")
    own = await checked(world, ecosystem="npm", package="@acme/a@1.0.0")

    assert (denied["decision"], denied["is_refused"], denied["mode"]) == ("BLOCKED", False, "audit")
    assert own["event"] == "oss_first_party"
    assert "npm.acme.example" in own["reason"]


async def test_a_wrong_question_names_the_field(world: World) -> None:
    for body, said in (
        ({}, "ecosystem must be one of pypi, npm"),
        ({"ecosystem": "gem", "package": "a==1"}, "ecosystem must be one of pypi, npm"),
        ({"ecosystem": "npm", "package": 1}, "package is required"),
        ({"ecosystem": "npm", "package": "left-pad"}, "version is required"),
        ({"ecosystem": "npm", "package": "@acme/a"}, "version is required"),
        ({"ecosystem": "pypi", "package": "requests>=2"}, "version is required"),
        ({"ecosystem": "pypi", "package": "../x==1"}, "package: "),
        ({"ecosystem": "npm", "package": "a" * 513, "version": "1"}, "at most 512"),
        ({"ecosystem": "npm", "package": "a", "version": ""}, "version must be"),
        ({"ecosystem": "npm", "package": "a", "version": "1" * 257}, "version must be"),
        ({"ecosystem": "npm", "package": "a@1", "published_at": "x"}, "published_at: "),
        ({"ecosystem": "npm", "package": "a@1", "who": "x"}, "unknown field: who"),
    ):
        status, text = await refusal(await ask(world, "POST", "/check", body))
        assert status == 400, body
        assert said in text


async def send(world: World, *installs: tuple[str, str, str]) -> None:
    """Install rows (ecosystem, package, version), as a proxy reports them."""
    items = [
        {
            "event": "install_allowed",
            "ecosystem": ecosystem,
            "packageName": name,
            "version": version,
        }
        for ecosystem, name, version in installs
    ]
    response = await world.client.post(
        "/api/v1/admin/orgs/acme/audit/events", headers=world.admin, json=items
    )
    assert response.status_code == 200, await response.get_data(as_text=True)


async def previewed(world: World, document: Any) -> Any:
    response = await ask(world, "POST", "/preview", document)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


async def test_a_policy_is_tried_on_the_last_thirty_days(world: World) -> None:
    await send(world, ("npm", "left-pad", "1.0.0"))
    world.clock.advance(days=31)
    await send(
        world,
        ("npm", "left-pad", "1.0.0"),
        ("npm", "left-pad", "v1.2.0"),
        ("npm", "left-pad", "1.3.0"),
        ("pypi", "Flask_Login", "0.6"),
        ("pypi", "requests", "2.32.3"),
    )
    document = {
        "deny": [*DENY["deny"], {"ecosystem": "pypi", "package": "flask.login", "id": "no"}],
        "cooldown": {"min_age_days": 3},
    }

    shown = await previewed(world, document)

    assert shown["summary"] == "In the last 30 days this would have blocked 3 installs."
    assert (shown["installs"], shown["blocked"], shown["unattributed"]) == (5, 3, 3)
    assert shown["undated"] == 2
    assert shown["top_packages"][0] == {"ecosystem": "npm", "package": "left-pad", "installs": 2}
    assert shown["top_rules"][1] == {"name": "no", "installs": 1}
    assert shown["is_complete"]
    assert await world.audit(event="policy_changed") == []


async def test_a_preview_tells_what_would_have_to_come_from_inside(world: World) -> None:
    """A name that is made first-party is no longer fetched from outside."""
    await send(world, ("npm", "@acme/a", "1.0.0"), ("npm", "left-pad", "1.0.0"))
    first = {"ecosystem": "npm", "package": "@acme/*", "registry": "npm.acme.example"}

    shown = await previewed(world, {"first_party": [first]})

    assert (shown["first_party"], shown["blocked"]) == (1, 0)


async def test_a_preview_needs_a_policy(world: World) -> None:
    status, text = await refusal(await ask(world, "POST", "/preview", {"mode": "x"}))

    assert (status, text.startswith("mode: ")) == (400, True)


async def test_a_preview_counts_the_jobs_that_would_have_failed(world: World) -> None:
    installs = [("repo:a", "1.0.0"), ("repo:a", "1.1.0"), ("repo:b", "1.0.0"), (None, "1.0.0"),
                ("repo:c", "1.3.0")]  # fmt: skip
    async with world.services.store.write() as work:
        rows = [
            audit_row(
                InstallAllowed(),
                BY_OPERATOR,
                work.now,
                subject=subject,
                package_name="left-pad",
                version=version,
                ecosystem="npm",
            )
            for subject, version in installs
        ]
        work.journal.add(world.acme.id, rows)

    shown = await previewed(world, DENY)

    assert shown["summary"] == "In the last 30 days this would have blocked 4 installs by 2 jobs."
    assert (shown["jobs"], shown["unattributed"]) == (2, 1)
    assert shown["top_jobs"] == [
        {"name": "repo:a", "installs": 2},
        {"name": "repo:b", "installs": 1},
    ]


async def test_a_preview_is_bounded_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RELEASES_MAX", 2)
    await send(world, *(("npm", "left-pad", f"1.{number}.0") for number in range(3)))

    shown = await previewed(world, {"deny": [{"ecosystem": "npm", "package": "*"}]})

    assert not shown["is_complete"]
    assert shown["blocked"] == 2
    assert "at least 2 installs" in shown["summary"]
