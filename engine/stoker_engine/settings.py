"""One struct, every spelling: command-line flags from and to frozen msgspec structs.

A field `max_model_len` is the flag `--max-model-len`; a bool is `--x` or `--no-x`; a list is the flag repeated. A nested struct adds its
fields to the same flat namespace; a field may name its flag by `Meta(extra={"flag": "model-uri"})` and bound its values by `Meta(extra={"bounds": …})`.
"""

import argparse
import functools
import re
import reprlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import inspect

from stoker_engine.errors import ConfigError
from stoker_engine.exit_codes import ExitCode


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of every settings struct: immutable, keyword-only, camelCase in files, strict about unknown names."""


SettingsT = TypeVar("SettingsT", bound=Settings)
StructT = TypeVar("StructT", bound=msgspec.Struct)


class Bounds(Protocol):
    """What of a field's values its type cannot say: `allowed` says which are, as in `must be at most 24h`."""

    @property
    def allowed(self) -> str: ...

    def holds(self, value: Any) -> bool: ...


def to_the_end(pattern: str) -> str:
    r"""A pattern that ends in `$` as Python must be told it, whose `$` lets a newline follow: with `\Z`."""
    return pattern.removesuffix("$") + r"\Z"


def in_schema(pattern: str) -> str:
    r"""The same pattern as other languages and people write it: with `$`."""
    return re.sub(r"\\+Z$", "$", pattern)


class _Field(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    flag: str
    type: Any
    description: str
    default: object
    required: bool
    is_bool: bool
    is_list: bool
    bounds: Bounds | None


def to_args(config: Settings) -> list[str]:
    """The flags that rebuild `config`: only what differs from the defaults, so that a new setting changes no one's arguments."""
    args: list[str] = []
    for field in _fields(type(config)):
        value: object = config
        for name in field.path:
            value = getattr(value, name)
        if value == field.default and not field.required:
            continue
        if field.is_bool:
            args.append(f"--{field.flag}" if value else f"--no-{field.flag}")
        elif isinstance(value, tuple):
            args.extend(f"--{field.flag}={item}" for item in value)
        else:
            args.append(f"--{field.flag}={value}")
    return args


def flags_of(config_type: type[Settings]) -> frozenset[str]:
    """The flags of `config_type`, such as `--max-model-len`."""
    return frozenset(f"--{field.flag}" for field in _fields(config_type))


def to_command(module: str, config: Settings) -> tuple[str, ...]:
    """The command that runs a program of ours with `config`."""
    # -P: a file in the current directory must not stand in for a module of ours or of Python's.
    return sys.executable, "-P", "-m", module, *to_args(config)


def from_values(config_type: type[SettingsT], values: Mapping[str, object]) -> SettingsT:
    """`config_type` from keyword arguments, named as the flags with underscores. Raises ConfigError with the name, the value and what is allowed."""
    fields = {field.flag.replace("-", "_"): field for field in _fields(config_type)}
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise ConfigError(f"there is no setting {name!r}; there are {', '.join(sorted(fields))}")
        node = nested
        for part in fields[name].path[:-1]:
            node = node.setdefault(part, {})
        node[fields[name].path[-1]] = _convert(fields[name], name, value)
    return _build(config_type, nested)


def from_args(config_type: type[SettingsT], args: Sequence[str], *, program: str) -> SettingsT:
    """Parses flags into `config_type`. Raises ConfigError with the flag, the value and what is allowed; `--help` prints and exits 0."""
    fields = _fields(config_type)
    raw = vars(_parser(fields, program).parse_args(args))
    values: dict[str, Any] = {}
    for field in fields:
        if field.flag not in raw:
            if field.required:
                raise ConfigError(f"--{field.flag} is required: {field.description}")
            continue
        node = values
        for name in field.path[:-1]:
            node = node.setdefault(name, {})
        node[field.path[-1]] = _convert(field, f"--{field.flag}", raw[field.flag])
    try:
        return _build(config_type, values)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def run_or_exit(config_type: type[SettingsT], *, program: str) -> SettingsT:
    """`from_args` for a program's entry point: a bad flag is one line on stderr and exit code 2."""
    try:
        return from_args(config_type, sys.argv[1:], program=program)
    except ConfigError as error:
        sys.stderr.write(f"{program}: {error}\n")
        raise SystemExit(ExitCode.BAD_CONFIG) from None


def _build(config_type: type[StructT], values: dict[str, Any]) -> StructT:
    arguments = {}
    for field in inspect.type_info(config_type).fields:  # type: ignore[attr-defined]
        node_type = _unwrap(field.type)
        if isinstance(node_type, inspect.StructType):
            arguments[field.name] = _build(node_type.cls, values.get(field.name, {}))
        elif field.name in values:
            arguments[field.name] = values[field.name]
    return config_type(**arguments)


def _convert(field: _Field, name: str, raw: object) -> object:
    try:
        value = msgspec.convert(raw, type=field.type, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {explain(error, field.type, raw)}") from error
    if field.bounds is not None and not field.bounds.holds(value):
        raise ConfigError(f"{name}: {field.bounds.allowed}, got {raw!r}")
    return value


def explain(error: msgspec.ValidationError, field_type: object, value: object) -> str:
    """What a field of `field_type` allows, and the value it got, for one line of an error message."""
    text = str(error).split(" - at `")[0].replace("`", "").replace(" | null", "").split(", got ")[0]
    declared = inspect.type_info(field_type)
    node = _unwrap(declared)
    if isinstance(node, inspect.LiteralType):
        text = "Expected one of " + ", ".join(str(allowed) for allowed in node.values)
    elif "matching regex" in text:
        text = re.sub(r"\\+Z'$", "$'", text)
        if examples := _examples(declared):
            text += " such as " + " or ".join(str(example) for example in examples)
    return f"{text}, got {shown(value)}"


def shown(value: object) -> str:
    """`value` as an error message shows it: at most 100 characters."""
    # reprlib bounds nested values: a few YAML aliases can stand for millions of items.
    text = repr(value) if isinstance(value, str | int | float | None) else reprlib.repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _unwrap(node: inspect.Type) -> inspect.Type:
    while isinstance(node, inspect.Metadata):
        node = node.type
    return node


def _examples(node: inspect.Type) -> list[object]:
    """The examples that the field's `Meta`, or an alternative of it, carries."""
    while isinstance(node, inspect.Metadata):
        if examples := (node.extra_json_schema or {}).get("examples"):
            return list(examples)
        node = node.type
    return [example for member in node.types for example in _examples(member)] if isinstance(node, inspect.UnionType) else []


def _describe(node: inspect.Type) -> tuple[str, dict[str, Any]]:
    """The description and the extras (flag, bounds) that a field's `Meta` carries."""
    description, extras = "", dict[str, Any]()
    while isinstance(node, inspect.Metadata):
        description = description or str((node.extra_json_schema or {}).get("description", ""))
        extras = (node.extra or {}) | extras
        node = node.type
    return description, extras


def bounds_of(config_type: type[msgspec.Struct]) -> dict[str, Bounds]:
    """The fields of `config_type` that have bounds, by the names that files use."""
    extras = {field.encode_name: _describe(field.type)[1] for field in inspect.type_info(config_type).fields}  # type: ignore[attr-defined]
    return {name: found["bounds"] for name, found in extras.items() if "bounds" in found}


@functools.cache
def _fields(config_type: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """Read once: an operator makes the arguments of thousands of pods, and reading takes 10 ms."""
    return tuple(_read_fields(config_type, ()))


def _read_fields(config_type: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[_Field]:
    annotations = {field.name: field.type for field in msgspec.structs.fields(config_type)}
    for field in inspect.type_info(config_type).fields:  # type: ignore[attr-defined]
        node = _unwrap(field.type)
        if isinstance(node, inspect.StructType):
            yield from _read_fields(node.cls, (*path, field.name))
            continue
        description, extras = _describe(field.type)
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield _Field(
            path=(*path, field.name),
            flag=extras.get("flag") or field.name.replace("_", "-"),
            type=annotations[field.name],
            description=description,
            default=default,
            required=field.required,
            is_bool=isinstance(node, inspect.BoolType),
            is_list=isinstance(node, inspect.VarTupleType),
            bounds=extras.get("bounds"),
        )


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (--help lists the flags)")


def _parser(fields: Sequence[_Field], program: str) -> argparse.ArgumentParser:
    parser = _OneLineParser(prog=program, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    for field in fields:
        text = field.description.replace("%", "%%")
        text += "" if field.required or field.default in (None, ()) else f" (default: {field.default})"
        if field.is_bool:
            parser.add_argument(f"--{field.flag}", dest=field.flag, action=argparse.BooleanOptionalAction, help=text)
        elif field.is_list:
            parser.add_argument(f"--{field.flag}", dest=field.flag, action="append", metavar="VALUE", help=text)
        else:
            parser.add_argument(f"--{field.flag}", dest=field.flag, metavar="VALUE", help=text)
    return parser
