"""Claim: a token costs about one signature check, then almost nothing; an invalid one costs less.

Everything that a request does with its token is measured: rules, keys, binding, counting and, for a
rejection, the log line. The peers are joserfc and PyJWT alone, which have neither bindings nor
counters, and OpenSSL's own verify, on the same tokens.
"""

import asyncio
import gc
import importlib
import os
import random
import statistics
import string
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jwt
from joserfc.jwk import RSAKey

from benchmarks.bench_bindings import fill
from benchmarks.results import record
from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.app.logs import configure_logs
from service.ci.issuers.issuers import load_issuers
from service.ci.verifier.claims import Claims
from service.ci.verifier.token_cache import VerifiedTokenCache
from service.ci.verifier.verifier import TokenRequest
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.organisations import get_org
from tests.issuers.issuer import Issuer, signature_of

BINDINGS = 10_000
TOKENS = 2_000
ROUNDS = 7
MANY = 250_000
SUB, REPOSITORY = "repo:acme/service-7:ref:refs/heads/main", "8"
ESTIMATES_US = {
    "OpenSSL's verify alone": 18,
    "joserfc's decode alone": 44,
    "PyJWT's decode alone": 50,
    "good, first seen": 90,
    "good, seen before": 10,
    "rejected: noise": 40,
    "rejected: unsigned, unknown issuer": 60,
    "rejected: bound, wrong signature": 90,
}

Work = Callable[[Sequence[str]], Awaitable[None]]


def main() -> None:
    """Print each figure with its unit, beside its estimate and the peers'."""
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        configure_logs("info")
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_measure(Path(folder)))


async def _measure(data_dir: Path) -> None:
    await fill(data_dir, BINDINGS)
    issuer = Issuer(now=utc_now())
    settings = await prepare(Settings(data_dir=data_dir))
    services = build_services(settings, utc_now, issuer.transport())
    good = [issuer.sign(sub=SUB, repository_id=REPOSITORY, jti=str(n)) for n in range(TOKENS)]
    verify = await _verifying(services, good[0])
    runs: dict[str, tuple[Work, Sequence[str]]] = {
        "OpenSSL's verify alone": (_by_openssl(issuer, good), good),
        "joserfc's decode alone": (_by_joserfc(issuer), good),
        **_by_pyjwt(issuer, good),
        "good, first seen": (verify, good),
        "good, seen before": (verify, [good[0]] * TOKENS),
        **{name: (verify, tokens) for name, tokens in _bad(issuer, good).items()},
    }
    us: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, (work, tokens) in runs.items():
            services.verifier._tokens = VerifiedTokenCache()
            await verify(good[:1])
            us[name].append(await _time_us(work, tokens))
    bare = statistics.median(us["joserfc's decode alone"])
    for name, figures in us.items():
        figure = statistics.median(figures)
        print(
            f"{name:34} {figure:7.1f} us {figure / bare:6.2f} x joserfc"
            f"   (estimated {ESTIMATES_US[name]} us)"
        )
    record(
        "verifier",
        {f"{name}, us": statistics.median(found) for name, found in us.items()}
        | {f"{MANY:,} different tokens leave behind, MB": _kept_mb(good[0])},
        estimated={f"{name}, us": us for name, us in ESTIMATES_US.items()},
    )
    await services.close()


async def _verifying(services: Services, warm_up: str) -> Work:
    """What each request does with its token when keys and bindings are in memory."""
    async with services.store.read() as session:
        request = TokenRequest(await get_org(session, "acme"), None, "req_0")
    attribute = services.verifier.attribute
    assert await attribute([warm_up], request) is not None

    async def verify(tokens: Sequence[str]) -> None:
        for token in tokens:
            await attribute([token], request)

    return verify


def _by_joserfc(issuer: Issuer) -> Work:
    public = RSAKey.import_key(issuer.jwks["keys"][0])

    async def decode(tokens: Sequence[str]) -> None:
        for token in tokens:
            jwt.decode(token, public, algorithms=["RS256"])

    return decode


def _by_pyjwt(issuer: Issuer, good: Sequence[str]) -> dict[str, tuple[Work, Sequence[str]]]:
    """The run of PyJWT, if it is installed."""
    try:
        pyjwt = importlib.import_module("jwt")
    except ModuleNotFoundError:
        print("PyJWT is not installed: left out")
        return {}
    public = pyjwt.PyJWK(issuer.jwks["keys"][0])
    audience = Settings().audience

    async def decode(tokens: Sequence[str]) -> None:
        for token in tokens:
            pyjwt.decode(token, public, algorithms=["RS256"], audience=audience)

    return {"PyJWT's decode alone": (decode, good)}


def _by_openssl(issuer: Issuer, good: Sequence[str]) -> Work:
    public = RSAKey.import_key(issuer.jwks["keys"][0]).public_key
    parts = [(signature_of(token), token.rpartition(".")[0].encode()) for token in good]

    async def check(_: Sequence[str]) -> None:
        for signature, signing_input in parts:
            public.verify(signature, signing_input, padding.PKCS1v15(), SHA256())

    return check


async def _time_us(work: Work, tokens: Sequence[str]) -> float:
    gc.collect()
    began = time.perf_counter()
    await work(tokens)
    return (time.perf_counter() - began) / len(tokens) * 1e6


def _bad(issuer: Issuer, good: Sequence[str]) -> dict[str, list[str]]:
    """Floods of invalid tokens by their fault; all tokens of a flood differ."""
    chance = random.Random(7)  # noqa: S311 - seeded on purpose, so that all runs are the same
    noise = ["".join(chance.choices(string.printable, k=len(good[0]))) for _ in range(TOKENS)]
    unsigned = [
        issuer.sign(header={"alg": "none"}, sub=f"repo:evil/{n}").rpartition(".")[0] + "."
        for n in range(TOKENS)
    ]
    forged = [
        f"{token.rpartition('.')[0]}.{good[number - 1].rpartition('.')[2]}"
        for number, token in enumerate(good)
    ]
    return {
        "rejected: noise": noise,
        "rejected: unsigned, unknown issuer": unsigned,
        "rejected: bound, wrong signature": forged,
    }


def _kept_mb(token: str) -> float:
    """The memory in use after MANY different tokens have passed through the cache."""
    seen, now = VerifiedTokenCache(), utc_now()
    (issuer,) = load_issuers(Settings().issuers_file).values()
    gc.collect()
    before = _resident_mb()
    for number in range(MANY):
        claims = Claims({"sub": f"{SUB}{number}", "jti": f"{token[:36]}{number}"})
        seen.keep(f"{token}{number}", claims, issuer, now)
    kept = _resident_mb() - before
    print(f"memory after {MANY:,} tokens    {kept:7.1f} MB   (estimated 32 MB)")
    return kept


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
