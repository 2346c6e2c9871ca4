"""``docs/contracts.md``, generated from the Struct definitions so that it cannot drift.

``python -m lineside.contracts.document > docs/contracts.md``
"""

import inspect
import sys
from collections.abc import Iterator
from enum import EnumType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from lineside.contracts.collectives import Op, ProgressTiming
from lineside.contracts.columns import column_specs
from lineside.contracts.faults import CloudEvent
from lineside.contracts.steps import Phase, Timing
from lineside.contracts.topics import TOPICS, Topic

_INTRO = """# Wire contracts

Generated from `shared/lineside/contracts` by `make docs`; edit the types, not this page.

* Topic names carry a prefix (default `lineside.`), one per tenant. Partition = murmur2(`job_id`) mod
  partitions, the same number for every topic. All topics use `LogAppendTime`.
* Headers: `content-type` and `schema` (for example `steps.1`). A record with another schema, undecodable
  bytes, columns of unequal length, a negative duration or an infinity goes to `dead-letters.v1` with the
  reason.
* Plans and requests also carry `key-id` (the first 16 hex digits of SHA-256 of the raw public key) and
  `signature` (base64 of an Ed25519 signature over the record's value). Agents that know no key take them
  unsigned; others refuse what no known key has signed.
* `*_ns` are integer nanoseconds, `*_s` float seconds, `*_bytes` bytes. Unknown is NaN for floats (null in
  JSON), -1 for integers and times, null for objects; never zero.
* MessagePack types are arrays: the tag first, then the fields in the order below. A *column* is one binary
  blob of little-endian values, the element type as shown; all columns of one record have equally many rows.
* Changes are additive: new fields at the end, with defaults. A breaking change is a new topic version.
"""


def markdown() -> str:
    """The whole page."""
    parts = [_INTRO, "## Topics\n", _topic_table()]
    parts += [_topic_section(topic) for topic in TOPICS.values()]
    parts += ["## Nested types\n"]
    parts += [_type_section(kind, "###") for kind in _nested_types()]
    return "\n".join(parts).rstrip() + "\n"


def _topic_table() -> str:
    rows = [
        "| topic | format | kept | key | written by | read by |",
        "|---|---|---|---|---|---|",
    ]
    for topic in TOPICS.values():
        days = topic.retention_ms and topic.retention_ms // 86_400_000
        kept = "newest of each key" if days is None else f"{days} day{'s' if days > 1 else ''}"
        rows.append(
            f"| `{topic.name}` | {topic.content_type} | {kept} | {topic.key} "
            f"| {topic.written_by} | {topic.read_by} |"
        )
    return "\n".join(rows) + "\n"


def _topic_section(topic: Topic) -> str:
    if topic.type is bytes:
        headers = "`service`, `reason`, `source-topic`, `source-partition`, `source-offset`"
        return f"## `{topic.name}`\n\nThe record's bytes as received; headers {headers}.\n"
    origin = get_origin(topic.type)
    if origin is CloudEvent:
        (kind,) = get_args(topic.type)
        lead = f"A CloudEvents 1.0 envelope (`CloudEvent`) whose `data` is `{kind.__name__}`.\n"
        return f"## `{topic.name}`\n\n{lead}\n{_type_body(kind)}"
    return f"## `{topic.name}`\n\n{_type_body(topic.type)}"


def _type_section(kind: Any, level: str) -> str:
    if isinstance(kind, EnumType):
        members: list[Any] = list(kind)
        values = ", ".join(
            f"{m.value} {m.name.lower()}" if issubclass(kind, int) else f"`{m.value}`"
            for m in members
        )
        return f"{level} {kind.__name__}\n\n{values}\n"
    return f"{level} {kind.__name__}\n\n{_type_body(kind)}"


def _type_body(kind: type[msgspec.Struct]) -> str:
    config = kind.__struct_config__
    lead = f"`{kind.__name__}`, schema tag `{config.tag}`. " if config.tag else ""
    prose = (inspect.getdoc(kind) or "").split("\n>>>")[0].strip().replace("``", "`")
    lines = [f"{lead}{prose}\n"] if lead or prose else []
    lines += ["| field | type | default |", "|---|---|---|"]
    hints = get_type_hints(kind, include_extras=True)
    specs = column_specs(kind)
    for field in msgspec.structs.fields(kind):
        shown = f"column of {specs[field.name].dtype}" if field.name in specs else None
        lines.append(
            f"| `{field.name}` | {shown or _type_name(hints[field.name])} | {_default(field)} |"
        )
    return "\n".join(lines) + "\n"


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        plain = msgspec.to_builtins(field.default)
        return f"`{msgspec.json.encode(plain).decode()}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(msgspec.to_builtins(field.default_factory())).decode()}`"
    return "required"


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _type_name(get_args(hint)[0])
    if args := get_args(hint):
        names = [_type_name(arg) for arg in args]
        if get_origin(hint) in (list, dict):
            return f"{get_origin(hint).__name__}[{', '.join(names)}]"
        return " or ".join(names)
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _nested_types() -> Iterator[Any]:
    """Structs and enums that the topics' types mention, each once, in reading order."""
    tops = [
        kind
        for topic in TOPICS.values()
        for kind in (topic.type, *get_args(topic.type))
        if isinstance(kind, type)
    ]
    seen = {kind for kind in tops if issubclass(kind, msgspec.Struct)}
    queue = [kind for kind in tops if kind in seen]
    yield from (
        CloudEvent,
        Phase,
        Timing,
        Op,
        ProgressTiming,
    )  # the last four travel as plain values
    while queue:
        for hint in get_type_hints(queue.pop(0), include_extras=False).values():
            for kind in _leaves(hint):
                if kind not in seen:
                    seen.add(kind)
                    yield kind
                    if issubclass(kind, msgspec.Struct):
                        queue.append(kind)


def _leaves(hint: Any) -> Iterator[Any]:
    for arg in get_args(hint):
        yield from _leaves(arg)
    if isinstance(hint, EnumType) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        yield hint


if __name__ == "__main__":
    sys.stdout.write(markdown())
