"""What can be wrong with a record.

    ContractError
    ├── UndecodableRecord   the bytes are no message of that type (or of a version we cannot read)
    └── InvalidRecord       decoded, but its values break the contract (lengths, ranges)

Both mean poison: the record goes to the dead-letter topic with the reason and processing goes on.
"""


class ContractError(Exception):
    """A record that the contract does not allow."""


class UndecodableRecord(ContractError):
    """Bytes that cannot be read as the topic's type."""


class InvalidRecord(ContractError):
    """A well-formed message whose values are impossible, e.g. a negative duration."""
