"""Changes to other programs' settings, in place: bytes in, bytes out. What is not named stays as it is.

The entry points for the host modules. Nothing here reads or writes a file: `file` only names it in errors.
"""

from harken.hosts.connect.edits.jsonc import (
    Where,
    json_append,
    json_put_item,
    json_remove,
    json_remove_items,
    json_set,
    json_value,
)
from harken.hosts.connect.edits.text import block_put, block_remove, block_text
from harken.hosts.connect.edits.toml import toml_remove, toml_set, toml_value

__all__ = [
    "Where",
    "block_put",
    "block_remove",
    "block_text",
    "json_append",
    "json_put_item",
    "json_remove",
    "json_remove_items",
    "json_set",
    "json_value",
    "toml_remove",
    "toml_set",
    "toml_value",
]
