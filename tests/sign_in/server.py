"""An identity provider as a process of its own on loopback: `python -m tests.sign_in.server`.

Prints its URL, and ends when its standard input does. It is Google, Microsoft and GitHub at once,
as each of them behaves on the wire, and has one person. What tests tell it comes as POST requests
to `/order`; `tests.sign_in.fixtures` knows how to say it.
"""

import base64
import hashlib
import hmac
import json
import secrets
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from tests.issuers.issuer import Issuer, as_json, rsa_key

CLIENT_ID, CLIENT_SECRET = "client-of-countersign", "client-secret-of-countersign"
TENANT = "3aa0d5a1-8f2b-4c6e-9d0a-5b7c1e2f3a4b"
DRIP_EVERY_S = 0.2


class Refused(Exception):
    """An answer of a token endpoint other than a token (RFC 6749, 5.2)."""


class ProviderServer(ThreadingHTTPServer):
    """One person's account at three providers, and what tests have changed about it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.issuer = Issuer(url=self.url)
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: set[str] = set()
        self.requests: list[str] = []
        self.state: dict[str, Any] = {}
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Be a good provider, whose person is Ada."""
        self.state = {
            "now": None,
            "claims": {},
            "without_claims": [],
            "header": {},
            "signed_by": None,
            "email": "ada@acme.example",
            "is_verified": True,
            "subject": "4711",
            "says_no": None,
            "token_answer": None,
            "outage": {},
        }
        self.issuer.key = rsa_key("first")
        self.issuer.publish(self.issuer.key)

    def authorize(self, endpoint: str, query: dict[str, str]) -> str:
        """Where the browser goes next: back, with a code or with an error."""
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        back = {"state": query["state"]}
        if self.state["says_no"] is not None:
            back |= {"error": self.state["says_no"], "error_description": "<b>no</b>"}
        else:
            back["code"] = secrets.token_urlsafe(16)
            self.codes[back["code"]] = {**query, "endpoint": endpoint}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def redeem(self, form: dict[str, str]) -> dict[str, str]:
        """The tokens for a code (RFC 6749, 4.1.3; RFC 7636, 4.6). Raises Refused."""
        asked = self.codes.pop(form.get("code", ""), None)
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != CLIENT_SECRET:
            raise Refused("invalid_client")
        if form.get("grant_type") != "authorization_code":
            raise Refused("unsupported_grant_type")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or asked["redirect_uri"] != form.get("redirect_uri")
            or not hmac.compare_digest(asked["code_challenge"], challenge)
        ):
            raise Refused("invalid_grant")
        token = secrets.token_urlsafe(16)
        self.tokens.add(token)
        if asked["endpoint"] == "github":
            return {"access_token": token, "token_type": "bearer", "scope": asked["scope"]}
        return {
            "access_token": token,
            "token_type": "Bearer",
            "id_token": self.id_token(asked["endpoint"], asked.get("nonce")),
        }

    def id_token(self, endpoint: str, nonce: str | None) -> str:
        """What `endpoint` says of the person, as Google and Microsoft word it."""
        state = self.state
        now = state["now"] or time.time()
        email = {"email": state["email"]} if state["email"] else {}
        claims: dict[str, Any] = {
            "aud": CLIENT_ID,
            "sub": state["subject"],
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now) + 3600,
            "nonce": nonce,
            **email,
        }
        if endpoint == "google":
            domain = (state["email"] or "").rpartition("@")[2]
            claims |= {
                "iss": self.url,
                "azp": CLIENT_ID,
                "email_verified": state["is_verified"],
                "hd": domain,
            }
        else:
            claims |= {"iss": f"{self.url}/{TENANT}/v2.0", "tid": TENANT, "ver": "2.0"}
            if state["is_verified"]:
                claims["xms_edov"] = True
        claims |= state["claims"]
        for name in (*state["without_claims"], "repository", "repository_owner", "jti"):
            claims.pop(name, None)
        if state["signed_by"] is not None:
            self.issuer.key = rsa_key(state["signed_by"])
            # Published still is only the first key, and that is what the header asks for.
            return self.issuer.sign_raw(
                as_json({"alg": "RS256", "kid": "first", **state["header"]}), as_json(claims)
            )
        header = {"alg": "RS256", "kid": self.issuer.key.kid, **state["header"]}
        return self.issuer.sign_raw(as_json(header), as_json(claims))


class _Handler(BaseHTTPRequestHandler):
    server: ProviderServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        with self.server.lock:
            self.server.requests.append(url.path)
        with suppress(ConnectionError):
            if self._has_outage(url.path):
                return
            self._get(url.path, query)

    def _get(self, path: str, query: dict[str, str]) -> None:
        server = self.server
        endpoints = {
            "/authorize": "google",
            "/login/oauth/authorize": "github",
            f"/{TENANT}/oauth2/v2.0/authorize": "microsoft",
            "/organizations/oauth2/v2.0/authorize": "microsoft",
        }
        if path in endpoints:
            self._answer(b"", 302, location=server.authorize(endpoints[path], query))
        elif path == "/.well-known/openid-configuration":
            self._json(
                {
                    "issuer": server.url,
                    "authorization_endpoint": f"{server.url}/authorize",
                    "token_endpoint": f"{server.url}/token",
                    "jwks_uri": f"{server.url}/keys",
                }
            )
        elif path == "/keys" or path.endswith("/discovery/v2.0/keys"):
            self._json(server.issuer.jwks)
        elif path in {"/api/v3/user", "/api/v3/user/emails"}:
            self._github(path)
        else:
            self._answer(b"", 404)

    def _github(self, path: str) -> None:
        server, state = self.server, self.server.state
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in server.tokens:
            self._json({"message": "Bad credentials"}, 401)
        elif path.endswith("/user"):
            self._json({"login": "ada", "id": int(state["subject"]), "email": "public@ada.example"})
        else:
            self._json(
                [
                    {"email": "other@ada.example", "primary": False, "verified": True},
                    {"email": state["email"], "primary": True, "verified": state["is_verified"]},
                ]
            )

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        with suppress(ConnectionError):
            if path == "/order":
                self._order(json.loads(body))
            elif not self._has_outage(path):
                self._token(path, {name: values[0] for name, values in parse_qs(body).items()})

    def _order(self, order: dict[str, Any]) -> None:
        server = self.server
        with server.lock:
            if order.get("reset"):
                server.reset()
            if "now" in order:
                order["now"] = datetime.fromisoformat(order["now"]).timestamp()
            server.state |= {name: order[name] for name in server.state if name in order}
            self._json({"requests": server.requests})

    def _token(self, path: str, form: dict[str, str]) -> None:
        if self.server.state["token_answer"] is not None:
            self._answer(self.server.state["token_answer"].encode())
            return
        try:
            with self.server.lock:
                answer = self.server.redeem(form)
        except Refused as refused:
            # GitHub says 200 whatever it answers.
            status = 200 if path.startswith("/login/") else 400
            self._json({"error": str(refused), "error_description": form.get("code")}, status)
        else:
            self._json(answer)

    def _has_outage(self, path: str) -> bool:
        """Do what is wrong with `path`, if anything is."""
        outages = self.server.state["outage"]
        kind = next((kind for end, kind in outages.items() if path.endswith(end)), None)
        match kind:
            case None:
                return False
            case "down":
                self._answer(b"", 503)
            case "slow":
                self._begin(200)
                for _ in range(60):
                    self.wfile.write(b" ")
                    time.sleep(DRIP_EVERY_S)
            case "oversized":
                self._answer(b'{"access_token": "' + b"x" * 200_000 + b'"}')
            case "moved":
                self._answer(b"", 307, location="http://localhost:1/elsewhere")
            case "not_json":
                self._answer(b"<html>down for maintenance</html>")
        return True

    def _json(self, value: object, status: int = 200) -> None:
        self._answer(as_json(value), status)

    def _answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self._begin(status, **headers)
        self.wfile.write(body)

    def _begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("set-cookie", "provider=1; Path=/")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Say nothing: the test that fails says what it missed."""


def main() -> None:
    """Serve until standard input ends: also when the test that started this was killed."""
    server = ProviderServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.url, flush=True)  # noqa: T201 - what the parent waits for
    sys.stdin.read()


if __name__ == "__main__":
    main()
