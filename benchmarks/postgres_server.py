"""A private PostgreSQL 15: a cluster and its socket in a folder; nothing else is changed."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.postgres_programs import VERSION, find_program, give_away, run_as

__all__ = ["VERSION", "PostgresServer"]


class PostgresServer:
    """The cluster in `folder`, created on the first start.

    Raises FileNotFoundError if PostgreSQL 15 is not installed.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is what the server has beside ours."""
        find_program("initdb")
        self._environment = {**os.environ, **(environment or {})}
        # The socket needs a short path: at most 107 characters.
        self.data, self.socket = folder / "data", folder
        self._folder = folder

    def start(self) -> None:
        """Start it on the socket. Raises CalledProcessError, FileNotFoundError."""
        if not (self.data / "PG_VERSION").exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            give_away(self._folder)
            self._run(
                "initdb", "-D", self.data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale"
            )
            options = "\n".join(f"{name} = {value}" for name, value in self._options().items())
            (self.data / "postgresql.auto.conf").write_text(options + "\n")
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self.data, "-l", log, "-w", "-t", "300", "start")

    def stop(self) -> None:
        """Stop it; transactions under way are aborted."""
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "300", "-m", "fast", "stop")

    @property
    def pid(self) -> int:
        """The server's parent process."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def _options(self) -> dict[str, str]:
        """Settings for a dedicated machine: a quarter of its memory, and so on."""
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        return {
            "listen_addresses": "''",
            "unix_socket_directories": f"'{self.socket}'",
            "shared_buffers": f"{memory_mb // 4}MB",
            "effective_cache_size": f"{memory_mb * 3 // 4}MB",
            "work_mem": "256MB",
            "maintenance_work_mem": f"{min(2048, memory_mb // 12)}MB",
            "max_parallel_maintenance_workers": str(os.cpu_count()),
            "max_parallel_workers_per_gather": str(os.cpu_count()),
            "max_wal_size": "16GB",
            "checkpoint_timeout": "30min",
            # It is not replicated, so COPY into a table of the same transaction writes no log.
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "wal_compression": "lz4",
            "random_page_cost": "1.1",
            "effective_io_concurrency": "200",
            # Queries here take less time than compiling them, or do not profit from it.
            "jit": "off",
            "fsync": "on",
            "synchronous_commit": "on",
            "timezone": "'UTC'",
        }

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(find_program(program)), *map(str, arguments)]
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=self._environment,
            **run_as(),
        )
