"""The files of docs/deployment do what the page says: settings, units, proxy, image and scripts."""

import configparser
import gzip
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import httpx2
import pytest

from service.app.hypercorn_server import LAST_S
from service.app.process_end import KILL_AFTER_S
from service.core.errors import BodyTooLarge
from service.core.settings import PREFIX, REPOSITORY, Settings, load_settings
from service.packages.npm.audit_queries import QUERY_BYTES_MAX
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN
from tests.docs.programs import add_countersign
from tests.docs.shell_blocks import shell_blocks
from tests.nginx import NGINX, running_nginx
from tests.polling import HANG_S, eventually
from tests.processes.command_line import invoke
from tests.processes.homes import Home, Server, free_port, owner_cookie

pytestmark = pytest.mark.slow

FOLDER: Final = REPOSITORY / "docs" / "deployment"
WRAPPER: Final = "/usr/local/bin/countersign"
PROGRAM: Final = "/opt/countersign/.venv/bin/countersign"


def read(name: str) -> str:
    return (FOLDER / name).read_text()


def settings_lines() -> dict[str, str]:
    """The environment file as systemd reads it."""
    lines = [line for line in read("countersign.env").splitlines() if line[:1] not in {"", "#"}]
    return dict(line.split("=", 1) for line in lines)


def example() -> Settings:
    return load_settings(settings_lines())


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(read(name))
    return parser


def directive(name: str) -> str:
    """The arguments of an nginx directive, wherever it is; at its first place."""
    found = re.search(rf"^\s*{name} ([^;]+);", read("nginx.conf"), re.MULTILINE)
    assert found is not None, name
    return found[1]


def test_the_environment_file_has_known_settings_and_loads() -> None:
    named = re.findall(rf"^#?{PREFIX}(\w+)=", read("countersign.env"), re.MULTILINE)
    command = ["sh", "-c", f"set -a; . {FOLDER}/countersign.env; env"]
    shell = subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout

    assert {name.lower() for name in named} <= set(Settings.__struct_fields__)
    assert {line for line in shell.splitlines() if line.startswith(PREFIX)} == {
        f"{name}={value}" for name, value in settings_lines().items()
    }
    assert example().has_secure_cookies


def test_the_example_serves_packages_of_both_ecosystems() -> None:
    """Without an upstream the install proxy refuses every install."""
    settings = example()

    assert settings.package_registry("pypi") is not None
    assert settings.package_registry("npm") is not None


def test_the_run_book_copies_the_database_of_the_example() -> None:
    page = (REPOSITORY / "docs" / "run-book.md").read_text()

    assert f"--from sqlite:///{example().data_dir}/countersign.db\n" in page


def test_the_page_names_every_file() -> None:
    page = (REPOSITORY / "docs" / "deployment.md").read_text()

    for path in FOLDER.iterdir():
        assert f"deployment/{path.name})" in page


def test_every_command_on_the_page_exists_with_its_options() -> None:
    """Most of its blocks cannot be run by a test."""
    blocks = "".join(block.text for block in shell_blocks("docs/deployment.md"))
    lines = re.findall(r"^(?:docker exec countersign )?countersign (.+)$", blocks, re.MULTILINE)

    assert lines
    for line in lines:
        words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
        count = next(
            (number for number, word in enumerate(words) if not re.fullmatch(r"[a-z]+", word)),
            len(words),
        )
        options = {word for word in words if word.startswith("--")}
        # `org add example`: an argument may look like a command.
        helps = [invoke([*words[:end], "--help"], {}) for end in range(1, min(count, 2) + 1)]
        known = [helped.out for helped in helps if helped.code == 0]
        assert known, line
        assert all(re.search(rf"{option}\b", known[-1]) for option in options), line


def test_the_service_unit_starts_the_service_and_lets_it_end() -> None:
    service = unit("countersign.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    settings = example()

    assert program == PROGRAM
    assert invoke([*arguments, "--help"], {}).out.startswith("Usage: countersign serve")
    assert float(service["TimeoutStopSec"]) > settings.shutdown_grace_s + KILL_AFTER_S + LAST_S
    assert settings.data_dir.parent == Path(service["ReadWritePaths"])
    assert service["EnvironmentFile"] == "/etc/countersign/countersign.env"
    for name, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "KillSignal": "SIGTERM",
        "OOMPolicy": "continue",
        "MemoryMax": "80%",
        "Restart": "on-failure",
    }.items():
        assert service[name] == value


def test_the_backup_unit_runs_the_backup_script() -> None:
    service = unit("countersign-backup.service")["Service"]
    program, folder = shlex.split(service["ExecStart"])

    assert (FOLDER / Path(program).name).stat().st_mode & 0o111
    assert folder in service["ReadWritePaths"].split()
    assert unit("countersign-backup.timer")["Timer"]["OnCalendar"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in FOLDER.glob("countersign*.[st]*"):
        if path.suffix in {".service", ".timer"}:
            text = path.read_text().replace(PROGRAM, "/bin/true")
            text = text.replace("/usr/local/bin/countersign-backup", "/bin/true")
            (tmp_path / path.name).write_text(text)
    names = sorted(path.name for path in tmp_path.iterdir())

    verified = subprocess.run(
        ["systemd-analyze", "verify", *(f"./{name}" for name in names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(names) == 3
    complaints = [line for line in verified.stderr.splitlines() if "countersign" in line]
    assert (verified.returncode, complaints) == (0, [])


def test_the_limits_of_nginx_fit_those_of_the_service() -> None:
    settings = example()

    assert float(directive("keepalive_timeout").removesuffix("s")) < settings.keep_alive_s
    assert float(directive("proxy_read_timeout").removesuffix("s")) > settings.query_max_s
    bodies = re.findall(r"client_max_body_size (\w+);", read("nginx.conf"))
    assert bodies == [
        f"{settings.body_bytes_max // 2**10}k",
        f"{QUERY_BYTES_MAX // 2**20}m",
        f"{settings.ingest_bytes_max // 2**20}m",
    ]
    assert f'"error": "{BodyTooLarge.text}"' in read("nginx.conf")
    count, size = directive("large_client_header_buffers").split()
    assert int(size.removesuffix("k")) * 1024 > 16 * 1024
    assert int(count) >= 4
    assert directive("server") == f"{settings.host}:{settings.port}"
    assert settings.host in settings.trusted_proxies
    assert "$args" not in read("nginx.conf")


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_requests_through_nginx(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "nginx"
    folder.mkdir()
    cookie = home.change(owner_cookie)
    limits = {"keep_alive_s": "75", "trusted_proxies": "127.0.0.1"}
    https = free_port()
    server = home.serve(base_url=f"https://127.0.0.1:{https}", **limits)
    with running_nginx(folder, https, server.port) as certificates:
        _check_proxied(https, certificates.authority, cookie)
    log = (folder / "access.log").read_text()
    assert "GET /sign-in 200" in log
    assert "one-time-secret" not in log


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_a_refusal_before_the_body_passes_nginx(home: Home, tmp_path: Path) -> None:
    """While nginx still sends the body: closing the connection would become a 502."""
    https = free_port()
    server = home.serve(base_url=f"https://127.0.0.1:{https}", trusted_proxies="127.0.0.1")
    events = "/api/v1/admin/orgs/acme/audit/events"
    token = {"x-service-admin-token": ADMIN_TOKEN}
    changes = {"client_max_body_size 5m;": "client_max_body_size 8m;"}
    with running_nginx(tmp_path, https, server.port, changes) as certificates:
        trust = ssl.create_default_context(cafile=str(certificates.authority))
        url = f"https://127.0.0.1:{https}"
        with httpx2.Client(base_url=url, verify=trust, timeout=HANG_S) as client:
            answers = [
                client.post(events, content=b" " * 2**20 * size, headers=headers).status_code
                for headers, size in (({}, 5), (token, 7))
                for _ in range(20)
            ]

    assert answers == [401] * 20 + [413] * 20


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_nginx_accepts_no_weak_encryption(tmp_path: Path) -> None:
    http, https = free_port(), free_port()
    changes = {"listen 80;": f"listen 127.0.0.1:{http};"}
    with running_nginx(tmp_path, https, free_port(), changes) as certificates:
        plain = f"http://127.0.0.1:{http}"
        page = httpx2.get(f"{plain}/admin/ui/profile?a=b", headers={"host": "audit.example.com"})
        machines = [
            httpx2.get(f"{plain}{path}", headers={"host": "audit.example.com"})
            for path in ("/api/v1/session", "/proxy/acme/pypi/simple/")
        ]
        for cipher, is_accepted in {
            "ECDHE-ECDSA-AES128-GCM-SHA256": True,
            "ECDHE-ECDSA-AES128-SHA256": False,
        }.items():
            trust = ssl.create_default_context(cafile=str(certificates.authority))
            trust.maximum_version = ssl.TLSVersion.TLSv1_2
            trust.set_ciphers(cipher)
            outcome = nullcontext() if is_accepted else pytest.raises(ssl.SSLError)
            with socket.create_connection(("127.0.0.1", https), HANG_S) as connection, outcome:
                trust.wrap_socket(connection, server_hostname="127.0.0.1").close()

    assert page.status_code == 301
    assert page.headers["location"] == "https://audit.example.com/admin/ui/profile?a=b"
    assert [answer.status_code for answer in machines] == [403, 403]
    assert "use https" in machines[0].json()["error"]


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_nginx_limits_what_an_address_sends(home: Home, tmp_path: Path) -> None:
    https = free_port()
    words = ("apikey", "issue", "--org", "acme", "--name", "npm", "--scope", "packages:install")
    key = {"x-service-api-key": home.ask(*words)["secret"]}
    registry = "http://127.0.0.1:9"  # refuses connections; what is asked first is the body
    server = home.serve(base_url=f"https://127.0.0.1:{https}", proxy_npm_upstream=registry)
    audit_query = "/proxy/acme/npm/-/npm/v1/security/audits"
    changes = {
        "rate=50r/s": "rate=1r/m",
        "burst=500 ": "burst=2 ",
        "countersign_connections 512": "countersign_connections 1",
    }
    with running_nginx(tmp_path, https, server.port, changes) as certificates:
        trust = ssl.create_default_context(cafile=str(certificates.authority))
        with httpx2.Client(base_url=f"https://127.0.0.1:{https}", verify=trust) as client:
            # Not among those below: an install may have hundreds of requests.
            sizes = {700_000: 400, 1_100_000: 413}
            for size, status in sizes.items():
                answer = client.post(audit_query, content=b" " * size, headers=key)
                assert answer.status_code == status
            installs = [client.get("/proxy/acme/npm/a").status_code for _ in range(20)]
            answers = [client.get("/healthz") for _ in range(6)]
            plain = socket.create_connection(("127.0.0.1", https), HANG_S)
            with trust.wrap_socket(plain, server_hostname="127.0.0.1") as held:
                held.sendall(f"POST {audit_query} HTTP/1.1\r\nhost: a\r\n".encode())
                held.sendall(b"content-length: 9\r\n\r\n")  # whose body does not come
                eventually(
                    lambda: client.get("/proxy/acme/npm/a").status_code == 429,
                    "a second connection is refused",
                )

    assert installs == [401] * 20
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "5"
    assert list(answers[-1].json()) == ["error"]


def _check_proxied(https: int, authority: Path, cookie: str) -> None:
    audit = "/api/v1/admin/orgs/acme/audit"
    token = {"x-service-admin-token": ADMIN_TOKEN}
    trust = ssl.create_default_context(cafile=str(authority))
    elsewhere = httpx2.HTTPTransport(verify=trust, local_address="127.0.0.2")
    base_url = f"https://127.0.0.1:{https}"
    with httpx2.Client(base_url=base_url, transport=elsewhere, timeout=HANG_S) as client:
        assert "max-age" in client.get("/readyz").headers["strict-transport-security"]
        assert client.get("/metrics").status_code == 404
        assert client.get("/sign-in?token=one-time-secret").status_code == 200
        # Larger than nginx accepts by itself; the client's own entry comes before nginx's.
        row = {"event": "install_allowed", "packageName": "left-pad", "version": "1" * 250}
        forged = {"x-forwarded-for": "192.0.2.66", "x-service-ci-oidc": "x" * 16_000}
        sent = client.post(f"{audit}/events", json=[row] * 6_000, headers=token | forged)
        assert sent.json()["accepted"] == 6_000
        newest = client.get(f"{audit}?limit=1", headers=token).json()["entries"][0]
        assert newest["source_ip"] == "127.0.0.2"
        for path, size in ((audit, 70_000), (f"{audit}/events", 5_300_000)):
            for _ in range(5):
                refused = client.post(path, content=b" " * size, headers=token)
                assert (refused.status_code, refused.json()) == (413, {"error": BodyTooLarge.text})
        live = "/admin/ui/orgs/acme/audit/live"
        session = {"cookie": f"admin_session={cookie}"}
        with client.stream("GET", live, headers=session) as stream:
            assert stream.status_code == 200
            lines = stream.iter_lines()
            assert next(lines)
            sent = client.post(f"{audit}/events", json=[row], headers=token)
            assert sent.json()["accepted"] == 1
            assert next(line for line in lines if line == "event: row")
        exported = client.get(f"{audit}/export?format=ndjson&compress=gzip", headers=token)
        assert len(gzip.decompress(exported.content).splitlines()) > 6_000


def image_lines(instruction: str) -> list[str]:
    text = read("Containerfile").replace("\\\n", " ")
    return [line.split(" ", 1)[1] for line in text.splitlines() if line.startswith(instruction)]


@only_full
def test_the_image_has_all_that_the_service_needs(empty_home: Home, tmp_path: Path) -> None:
    root = tmp_path / "image"
    for line in image_lines("COPY "):
        *sources, target = shlex.split(line)
        for source in sources:
            path = REPOSITORY / source
            to_folder = target.endswith("/")
            destination = root / target / path.name if to_folder else root / target
            destination.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, destination, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, destination)
    (check,) = image_lines("HEALTHCHECK ")
    command = json.loads(check.partition(" CMD ")[2])
    (entry,), (arguments,) = image_lines("ENTRYPOINT "), image_lines("CMD ")
    given = dict(line.split("=", 1) for line in image_lines("ENV "))
    port = free_port()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) and name != "PYTHONPATH"
    } | given
    environment |= {
        "COUNTERSIGN_BASE_URL": "https://audit.example.com",
        "COUNTERSIGN_DATA_DIR": str(empty_home.data_dir),
        "COUNTERSIGN_PORT": str(port),
    }
    log = tmp_path / "image.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli.main", *json.loads(arguments)],
            cwd=root,
            env=environment | {"PYTHONPATH": str(root)},
            stderr=stderr,
        )
    server = Server(process, port, log)
    empty_home.servers.append(server)
    server.wait_ready()

    health = [part.replace(":8080", f":{port}") for part in command]
    assert json.loads(entry) == ["countersign"]
    assert given["COUNTERSIGN_HOST"] == "0.0.0.0"  # noqa: S104 - of a container, whose port is published
    assert health != command
    assert subprocess.run([sys.executable, *health[1:]], check=False).returncode == 0
    loaded = subprocess.run(
        [sys.executable, "-c", "import service; print(service.__file__)"],
        cwd=root,
        env=environment | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(loaded.stdout).is_relative_to(root)
    assert server.stop() == 0


@only_full
def test_the_scripts_back_up_and_keep_the_last_good_one(home: Home, tmp_path: Path) -> None:
    programs = add_countersign(tmp_path)
    script = read("countersign-backup").replace(WRAPPER, f"{programs}/countersign")
    backups = tmp_path / "backups"
    for name in ("2020-01-01T000000Z", "notes"):
        (backups / name).mkdir(parents=True)
        os.utime(backups / name, (0, 0))
    command = ["sh", "-eu", "-c", script, "countersign-backup", str(backups)]
    environment = home.environment() | {"PYTHONPATH": str(REPOSITORY)}

    nowhere = environment | {f"{PREFIX}DATA_DIR": str(tmp_path / "absent")}
    failed = subprocess.run(command, env=nowhere, capture_output=True, check=False)
    assert failed.returncode != 0
    assert (backups / "2020-01-01T000000Z").exists()
    subprocess.run(command, env=environment, capture_output=True, check=True)

    (made,) = [path for path in backups.iterdir() if path.name != "notes"]
    assert (made / "manifest.json").exists()


@only_full
def test_the_wrapper_reads_the_settings_of_the_service(home: Home, tmp_path: Path) -> None:
    lines = [f"{name}={value}" for name, value in home.environment().items() if PREFIX in name]
    (tmp_path / "countersign.env").write_text("\n".join(lines))
    script = read("countersign").replace("/etc/countersign/", f"{tmp_path}/")
    script = script.replace(PROGRAM, f"{add_countersign(tmp_path)}/countersign")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    script = script.replace('" = countersign ]', f'" = {user} ]')

    listed = subprocess.run(
        ["sh", "-c", script, "countersign", "org", "list", "--json"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert [org["slug"] for org in json.loads(listed.stdout)["organisations"]] == ["acme"]
