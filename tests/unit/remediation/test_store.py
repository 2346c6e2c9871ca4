"""Tables, migrations, sessions."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from lineside.remediation.store import Store, StoreError, TransitionRow


@pytest.fixture
def store(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'new folder' / 'history.db'}")
    store.upgrade()
    yield store
    store.close()


def test_the_migrations_make_what_the_models_say(store):
    assert store.differences() == []
    assert store.revision() == store.head() is not None


def test_upgrading_again_changes_nothing(store):
    store.upgrade()
    assert store.differences() == []


def test_a_missing_column_is_seen(store):
    with store.writing() as session:
        session.execute(text("ALTER TABLE incidents DROP COLUMN summary"))
    assert "summary" in str(store.differences())


def test_foreign_keys_are_enforced(store):
    with pytest.raises(IntegrityError), store.writing() as session:
        session.add(
            TransitionRow(
                incident_id="none",
                sequence=0,
                at_ns=0,
                to_state="open",
                actor="policy",
                reason="",
            )
        )


def test_readers_see_the_last_commit_while_a_writer_works(store):
    with store.writing() as writer:
        writer.execute(text("CREATE TABLE more (n INTEGER)"))
        with store.reading() as reader:
            assert not reader.execute(text("SELECT * FROM sqlite_master WHERE name = 'more'")).all()


@pytest.mark.parametrize(
    "url", ["postgresql+nodriver://me:secret@host/db", "postgresql://me:secret@host:port/db"]
)
def test_a_password_is_never_shown(url):
    with pytest.raises(StoreError) as refused:
        Store(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["nonsense", "oracle+none://x", "sqlite:////proc/none/x.db"])
def test_a_url_that_cannot_be_used_is_named(url):
    with pytest.raises(StoreError, match=r"LINESIDE_DATABASE_URL|cannot be used"):
        Store(url).upgrade()
