"""``lineside keys``: the key pair by which agents know remediation's plans and requests from forged ones."""

import base64
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from lineside.contracts.signatures import BadKey, Signer, create_key, key_id

keys = typer.Typer(help="Create keys that sign plans and requests.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@keys.command()
def create(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; it must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Make a key pair: the private key into FILE, the public one on stdout.

    Give the file to remediation (LINESIDE_SIGNING_KEY_FILE), the public key to every agent
    (LINESIDE_TRUSTED_KEYS; several, apart by commas, while one replaces another). Exit code 73: the file
    exists already or cannot be written.

    Example: lineside keys create plans.pem
    """
    try:
        public = create_key(file)
    except FileExistsError:
        typer.echo(f"{file} exists already; a key is never replaced", err=True)
        raise typer.Exit(os.EX_CANTCREAT) from None
    except OSError as error:
        typer.echo(f"{file} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(os.EX_CANTCREAT) from error
    _show(public, file, as_json)


@keys.command()
def show(
    file: Annotated[Path, typer.Argument(help="A private key's file.")], as_json: AsJson = False
) -> None:
    """Print the public key that belongs to a private one. Exit code 1: the file holds none.

    Example: lineside keys show plans.pem
    """
    try:
        _show(Signer.load(file).public, file, as_json)
    except BadKey as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def _show(public: bytes, file: Path, as_json: bool) -> None:
    text = base64.b64encode(public).decode()
    if as_json:
        typer.echo(json.dumps({"key_id": key_id(public), "public": text, "file": str(file)}))
        return
    typer.echo(f"key {key_id(public)}; agents trust it by", err=True)
    typer.echo(f"LINESIDE_TRUSTED_KEYS={text}")
