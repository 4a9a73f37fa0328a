"""The JSON Schema (2020-12) of the published reports, made from their types.

msgspec's own generator refuses defaults that are facts, and knows no generic class, so this one
walks the types itself: a ``Fact[T]`` is a ``T`` or null.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

import msgspec

from hwtune.changes import kinds
from hwtune.diagnosis.verdict import Finding
from hwtune.fact import Fact
from hwtune.report.published import SCHEMA_VERSION, DoctorReport

_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def schema(report: str = "doctor") -> dict[str, Any]:
    """The schema of ``doctor --format json``, or of another command's."""
    definitions: dict[str, Any] = {}
    top = _of(_type_of(report), definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hwtune {report} report, schema version {SCHEMA_VERSION}",
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def _type_of(report: str) -> Any:
    if report == "validate":
        from hwtune.report.validation.published import ValidateReport

        return ValidateReport
    if report == "jitter":
        from hwtune.jitter.results import JitterReport

        return JitterReport
    if report == "nvme-latency":
        from hwtune.report.drive_published import NvmeLatencyReport

        return NvmeLatencyReport
    from hwtune.report.changes import REPORTS

    return {"doctor": DoctorReport, **REPORTS}[report]


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Fact:
        return _either([arguments[0], type(None)], definitions)
    if origin in (typing.Union, types.UnionType):
        return _either(list(arguments), definitions)
    if origin is list:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", "items": _of(arguments[0], definitions)}
        items = [_of(a, definitions) for a in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind, definitions)
    raise TypeError(f"{kind!r} has no JSON Schema")


def _either(kinds_: list[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    options = [_of(k, definitions) for k in kinds_]
    return {} if {} in options else {"anyOf": options}


def _struct(kind: type[msgspec.Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a place holder, for types that hold themselves
        hints = typing.get_type_hints(kind, vars(sys.modules[kind.__module__]))
        properties: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            if kind is Finding and field.name == "changes":
                properties[field.encode_name] = {"type": "array", "items": _of(kinds.Change, definitions)}
            else:
                properties[field.encode_name] = _of(hints[field.name], definitions)
        required = sorted(properties)
        tag = kind.__struct_config__.tag
        if tag is not None and kind.__struct_config__.tag_field is not None:
            properties = {kind.__struct_config__.tag_field: {"const": tag}, **properties}
            required.append(kind.__struct_config__.tag_field)
        definitions[name] = {"type": "object", "properties": properties, "required": required}
        if kind.__doc__:
            definitions[name]["description"] = " ".join(kind.__doc__.split())
    return {"$ref": f"#/$defs/{name}"}
