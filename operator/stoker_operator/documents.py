"""YAML files → documents that know their file and lines. Kubernetes' reading of YAML: strings stay strings, null means absent, keys are unique."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from stoker_operator.errors import ManifestError

STDIN = "-"
NULL_TAG = "tag:yaml.org,2002:null"
TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Safe, and without YAML 1.1's timestamps: a date in an annotation stays the string it is to Kubernetes."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the attribute PyYAML reads
        first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP_TAG] for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document, or an item of one. `path` is where it stands in its document."""

    file: str
    path: str
    node: yaml.Node
    value: object

    def error(self, steps: Sequence[str | int], text: str) -> ManifestError:
        """One line that names file, line and path."""
        return ManifestError(f"{self.file}:{self._line(steps)}: {self._path(steps)}: {text}")

    def item(self, steps: Sequence[str | int], value: object) -> "Document":
        """The document nested at `steps`."""
        return Document(self.file, self._path(steps), self._node(steps)[0], value)

    def _path(self, steps: Sequence[str | int]) -> str:
        return self.path + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)

    def _line(self, steps: Sequence[str | int]) -> int:
        return self._node(steps)[1]

    def _node(self, steps: Sequence[str | int]) -> tuple[yaml.Node, int]:
        """The node at `steps`, or the nearest one above it that exists, and its line."""
        node, line = self.node, self.node.start_mark.line
        for step in steps:
            if isinstance(node, yaml.MappingNode):
                entry = next(((key, value) for key, value in node.value if key.value == step), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                entry = (node.value[step], node.value[step])
            else:
                entry = None
            if entry is None:
                break
            line, node = entry[0].start_mark.line, entry[1]
        return node, line + 1


def read_documents(file: str) -> list[Document]:
    """All documents of a file (`-` reads standard input); empty ones are left out. Raises ManifestError."""
    name = "<stdin>" if file == STDIN else file
    try:
        text = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise ManifestError(f"{name}: {error.strerror}; name a YAML file with one or more InferenceDeployments") from error
    try:
        return list(_parse(name, text))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ManifestError(f"{name}:{line}: invalid YAML: {_one_line(error.problem or str(error))}") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{name}: invalid YAML: {_one_line(str(error))}") from error
    except RecursionError:
        raise ManifestError(f"{name}: invalid YAML: nested too deep") from None


def _parse(name: str, text: bytes) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None or node.tag == NULL_TAG:
                continue
            _normalize(name, node)
            yield Document(name, "$", node, _construct(name, loader, node))
    finally:
        loader.dispose()


def _construct(name: str, loader: _Loader, node: yaml.Node) -> object:
    try:
        return loader.construct_document(node)
    except (ValueError, LookupError, AttributeError, ArithmeticError) as error:
        # What PyYAML raises for an explicit tag on text of another kind, such as `!!bool maybe` or `!!int ""`, and for a number too large for a float.
        raise ManifestError(f"{name}:{node.start_mark.line + 1}: invalid YAML: a tag (!!…) does not fit its value: {_one_line(str(error))}") from error


def _normalize(name: str, root: yaml.Node) -> None:
    """Refuses duplicate keys and drops keys whose value is null, as the API server does. Aliases are visited once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_duplicates(name, node)
            node.value = [(key, value) for key, value in node.value if value.tag != NULL_TAG]
            waiting.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)


def _refuse_duplicates(name: str, node: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            raise ManifestError(f"{name}:{line}: key {key.value!r} is already set on line {lines[key.value]}; keep one")
        lines[key.value] = line


def _one_line(text: str) -> str:
    return " ".join(text.split())
