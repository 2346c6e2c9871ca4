"""Keys by command: made once, shown again, never replaced."""

import json
from pathlib import Path

from typer.testing import CliRunner

from lineside.cli.main import build
from lineside.contracts.signatures import Trust


def keys(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(["keys"]), ["keys", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def test_a_key_is_made_shown_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "plans.pem"
    code, out, err = keys("create", path)
    assert code == 0 and out.startswith("LINESIDE_TRUSTED_KEYS=") and "key " in err
    assert Trust(out.strip().partition("=")[2])
    assert keys("show", path) == (0, out, err)
    shown = json.loads(keys("show", path, "--json")[1])
    assert shown["public"] in out and shown["key_id"] in err
    code, _, err = keys("create", path)
    assert code == 73 and "exists already" in err


def test_what_is_no_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plans.pem"
    path.write_text("no key")
    assert keys("show", path)[0] == 1
    code, _, err = keys("create", tmp_path / "none" / "plans.pem")
    assert code == 73 and "cannot be written" in err
