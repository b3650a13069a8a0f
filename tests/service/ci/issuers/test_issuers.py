"""The issuers file: what it means, and the line that is wrong with it."""

from pathlib import Path

import pytest

from service.ci.issuers.issuers import Issuer, load_issuers
from service.core.settings import REPOSITORY, InvalidSetting

GOOD = """\
# Line 1.
[github]
url = "https://token.example"
provider = "github"
accepted = true
algorithms = ["RS256"]
requires_repository_id = true
repository_id_claim = "repository_id"

[other]
url = "https://other.example"
provider = "gitlab"
accepted = false
algorithms = ["RS256"]
requires_repository_id = true
repository_id_claim = "project_id"
"""
URL, PROVIDER, ACCEPTED, ALGORITHMS, CLAIM = 3, 4, 5, 6, 8
LINES = GOOD.split("\n")
HTTPS = "must be https (http only on this machine)"


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "issuers.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    """Why the file at `path` is refused, without the words every refusal begins with."""
    with pytest.raises(InvalidSetting) as refused:
        load_issuers(path)
    said = str(refused.value)
    assert "\n" not in said
    assert said.startswith(f"COUNTERSIGN_ISSUERS_FILE {path}")
    return said.removeprefix(f"COUNTERSIGN_ISSUERS_FILE {path}")


def with_line(number: int, line: str) -> str:
    """The good file with `line` in the place of that `number`."""
    return "\n".join([*LINES[: number - 1], line, *LINES[number:]])


def test_only_accepted_issuers_are_there_by_their_url(tmp_path):
    issuers = load_issuers(write(tmp_path, GOOD))

    assert issuers == {
        "https://token.example": Issuer(
            name="github",
            url="https://token.example",
            provider="github",
            accepted=True,
            algorithms=("RS256",),
            requires_repository_id=True,
            repository_id_claim="repository_id",
        )
    }


def test_as_shipped_github_alone_is_accepted():
    """Trust in another provider is the operator's decision."""
    (issuer,) = load_issuers(REPOSITORY / "data" / "issuers.toml").values()

    assert (issuer.name, issuer.url) == ("github", "https://token.actions.githubusercontent.com")
    assert issuer.algorithms == ("RS256",)
    assert issuer.jwks_uri is None
    assert (issuer.repository_id_claim, issuer.event_name_claim) == ("repository_id", "event_name")
    assert (issuer.run_id_claim, issuer.owner_claim) == ("run_id", "repository_owner")
    assert issuer.token_id_claim == "jti"


def test_what_is_shipped_but_not_accepted_can_be_switched_on(tmp_path):
    shipped = (REPOSITORY / "data" / "issuers.toml").read_text()
    issuers = load_issuers(write(tmp_path, shipped.replace("accepted = false", "accepted = true")))

    by_name = {issuer.name: issuer for issuer in issuers.values()}
    gitlab, circleci = by_name["gitlab"], by_name["circleci"]
    assert gitlab.jwks_uri == "https://gitlab.com/oauth/discovery/keys"
    assert (gitlab.repository_id_claim, gitlab.event_name_claim) == (
        "project_id",
        "pipeline_source",
    )
    assert (gitlab.run_id_claim, gitlab.owner_claim) == ("pipeline_id", "namespace_path")
    assert gitlab.token_id_claim == "jti"
    assert not circleci.requires_repository_id
    assert circleci.event_name_claim is None
    assert circleci.run_id_claim == "oidc.circleci.com/workflow-id"


@pytest.mark.parametrize(
    ("number", "line", "wrong"),
    [
        (PROVIDER, "provider =", "Invalid value"),
        (PROVIDER, "provider github", "Expected '=' after a key in a key/value pair"),
        (10, "[github]", "Cannot declare ('github',) twice"),
        (16, 'repository_id_claim = "project', "Illegal character '\\n'"),
        (9, "oops", "Expected '=' after a key in a key/value pair"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(tmp_path, number, line, wrong):
    assert refusal(write(tmp_path, with_line(number, line))) == f", line {number}: {wrong}"


def test_a_file_that_breaks_off_is_refused_with_its_last_line(tmp_path):
    """The parser only says that it ended."""
    assert refusal(write(tmp_path, GOOD + "algorithm")) == (
        ", line 17: Expected '=' after a key in a key/value pair"
    )


@pytest.mark.parametrize(
    ("number", "line", "wrong"),
    [
        (9, 'colour = "blue"', "github.colour: unknown key"),
        (9, 'name = "mine"', "github.name: unknown key"),
        (URL, "url = 7", "github.url: Expected `str`, got `int`"),
        (ACCEPTED, 'accepted = "true"', "github.accepted: Expected `bool`, got `str`"),
        (ACCEPTED, "accepted = 1", "github.accepted: Expected `bool`, got `int`"),
        (
            PROVIDER,
            'provider = "jenkins"',
            "github.provider: Invalid enum value 'jenkins', must be one of"
            " github, gitlab, circleci",
        ),
        (
            ALGORITHMS,
            'algorithms = ["RS256", "HS256"]',
            "github.algorithms: Invalid enum value 'HS256', must be one of"
            " RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, Ed25519",
        ),
        (ALGORITHMS, "algorithms = []", "github.algorithms: Expected `array` of length >= 1"),
        (ALGORITHMS, 'algorithms = "RS256"', "github.algorithms: Expected `array`, got `str`"),
        (
            ALGORITHMS,
            'algorithms = ["RS256", "RS256"]',
            "github.algorithms: an algorithm is named twice",
        ),
        (
            CLAIM,
            'repository_id_claim = ""',
            "github.repository_id_claim: Expected `str` of length >= 1",
        ),
        (9, 'event_name_claim = ""', "github.event_name_claim: Expected `str` of length >= 1"),
        (9, 'run_id_claim = ""', "github.run_id_claim: Expected `str` of length >= 1"),
        (9, 'token_id_claim = ""', "github.token_id_claim: Expected `str` of length >= 1"),
        (9, 'owner_claim = ""', "github.owner_claim: Expected `str` of length >= 1"),
        (URL, 'url = "http://token.example"', f"github.url: {HTTPS}"),
        (URL, 'url = "http://127.0.0.1.example"', f"github.url: {HTTPS}"),
        (URL, 'url = "http://128.0.0.1"', f"github.url: {HTTPS}"),
        (URL, 'url = "http://0x7f000001"', f"github.url: {HTTPS}"),
        (URL, 'url = "http://[::2]"', f"github.url: {HTTPS}"),
        (URL, 'url = "ftp://token.example"', f"github.url: {HTTPS}"),
        (URL, 'url = "token.example"', "github.url: names no host"),
        (URL, 'url = "https://"', "github.url: names no host"),
        (URL, 'url = "https://token.example?"', "github.url: has a query"),
        (URL, 'url = "https://token.example/?a=b"', "github.url: has a query"),
        (URL, 'url = "https://token.example#"', "github.url: has a fragment"),
        (
            URL,
            'url = "https://ada@token.example"',
            "github.url: has a user's name or password",
        ),
        (
            URL,
            'url = "https://token.example "',
            "github.url: is empty, or has a character that no URL has",
        ),
        (URL, 'url = ""', "github.url: is empty, or has a character that no URL has"),
        (
            URL,
            'url = "https://t\u043eken.example"',  # a Cyrillic o
            "github.url: is empty, or has a character that no URL has",
        ),
        (
            URL,
            'url = "https://token.example:99999"',
            "github.url: is not a URL: Port out of range 0-65535",
        ),
        (11, 'url = "https://token.example"', "other.url: is the same as that of github"),
        (9, 'jwks_uri = "http://token.example/keys"', f"github.jwks_uri: {HTTPS}"),
        (9, 'jwks_uri = "http://169.254.169.254/"', f"github.jwks_uri: {HTTPS}"),
        (9, 'jwks_uri = "https://token.example/#a"', "github.jwks_uri: has a fragment"),
        (1, 'url = "https://token.example"', "url: is not a table"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(tmp_path, number, line, wrong):
    assert refusal(write(tmp_path, with_line(number, line))) == f", line {number}: {wrong}"


@pytest.mark.parametrize("number", range(3, 9))
def test_a_missing_key_is_refused_with_the_line_of_its_table(tmp_path, number):
    key = LINES[number - 1].split(" ")[0]

    assert refusal(write(tmp_path, with_line(number, ""))) == f", line 2: github.{key}: missing"


@pytest.mark.parametrize("header", ["[ github ]", '["github"]', "['github'] # ours"])
def test_a_table_is_found_however_its_name_is_spelt(tmp_path, header):
    file = with_line(2, header).replace("accepted = true", '"accepted" = 1')

    assert refusal(write(tmp_path, file)).startswith(", line 5: github.accepted: ")


def test_a_line_is_of_the_table_that_is_wrong(tmp_path):
    """Two tables have the same keys."""
    assert refusal(write(tmp_path, with_line(13, "accepted = 0"))).startswith(", line 13: other.")


def test_a_table_written_in_one_line_has_that_line(tmp_path):
    assert refusal(write(tmp_path, "# one\ngithub = {accepted = true}\n")) == (
        ", line 2: github.url: missing"
    )


def test_a_key_in_another_spelling_has_the_line_of_its_table(tmp_path):
    assert refusal(write(tmp_path, with_line(9, '"a\\nb" = 1'))) == (
        ', line 2: github."a\\nb": unknown key'
    )


def test_what_is_found_nowhere_is_refused_without_a_line(tmp_path):
    """A wrong line would be worse than none."""
    assert refusal(write(tmp_path, '["git\\u0068ub"]\n')) == ": github.url: missing"


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("", ": no issuer in it: at least one table is needed"),
        ("# nothing\n", ": no issuer in it: at least one table is needed"),
        (GOOD.encode("utf-16"), ", line 1: not UTF-8"),
        (b"[github]\n# \xff\n", ", line 2: not UTF-8"),
        ("\ufeff" + GOOD, ", line 1: Invalid statement"),
        ("x = " + "[" * 3000 + "]" * 3000, ": nested too deeply"),
        ("x = " + "9" * 5000, ": an integer is too long"),
    ],
)
def test_a_file_that_holds_no_issuers_is_refused(tmp_path, content, wrong):
    assert refusal(write(tmp_path, content)) == wrong


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    assert refusal(tmp_path / "absent.toml") == ": No such file or directory"
    assert refusal(tmp_path) == ": Is a directory"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000",
        "http://127.9.9.9",
        "http://localhost:8000/tenant",
        "http://[::1]:8000",
        "https://token.example/tenant/",
    ],
)
def test_plain_http_is_for_this_machine(tmp_path, url):
    """Tests and trials run there; no network is involved."""
    assert url in load_issuers(write(tmp_path, with_line(URL, f'url = "{url}"')))


def test_keys_may_come_from_another_address_than_the_issuer(tmp_path):
    """Its URL is a name, and need not answer from here."""
    uri = "http://127.0.0.1:8000/keys?all=1"
    (issuer,) = load_issuers(write(tmp_path, with_line(9, f'jwks_uri = "{uri}"'))).values()

    assert issuer.jwks_uri == uri
