"""The JSON Schemas of docs/schema, and a check of a value against one.

The check knows the keywords that `offload.operations.result_json` writes, and refuses any other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["SCHEMAS", "mismatches"]

SCHEMAS: dict[str, Any] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((Path(__file__).parent.parent / "docs" / "schema").glob("*.json"))
}
_ABOUT = {"$schema", "title", "description", "contentEncoding"}
_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def mismatches(value: Any, schema: dict[str, Any], at: str = "") -> list[str]:
    """Return what of the value does not fit the schema."""
    found: list[str] = []
    if value is None and schema.get("type", "null") != "null":
        return [f"{at}: null"]
    for keyword, wanted in schema.items():
        match keyword:
            case "type":
                fits = isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
                found += [] if fits else [f"{at}: {value!r} is no {wanted}"]
            case "const":
                found += [] if value == wanted else [f"{at}: {value!r} is not {wanted!r}"]
            case "enum":
                found += [] if value in wanted else [f"{at}: {value!r} is not among {wanted}"]
            case "minimum":
                found += [] if value >= wanted else [f"{at}: {value} is below {wanted}"]
            case "anyOf":
                found += [] if any(not mismatches(value, each) for each in wanted) else [f"{at}: {value!r} fits none"]
            case "items":
                for number, item in enumerate(value if isinstance(value, list) else ()):
                    found += mismatches(item, wanted, f"{at}[{number}]")
            case "required":
                found += [f"{at}: no {name}" for name in wanted if name not in value]
            case "properties":
                for name, inner in wanted.items():
                    found += mismatches(value[name], inner, f"{at}.{name}") if name in value else []
            case "additionalProperties":
                for name in value.keys() - schema.get("properties", {}).keys():
                    found += [f"{at}: {name} is unknown"] if wanted is False else []
                    found += mismatches(value[name], wanted, f"{at}.{name}") if isinstance(wanted, dict) else []
            case _:
                assert keyword in _ABOUT, keyword
    return found
