"""Files → InferenceDeployments, or one line that says what is wrong and where. Nothing starts before all of them are right."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import msgspec

from stoker_engine.errors import ConfigError
from stoker_engine.model_files import check_model
from stoker_engine.settings import explain, shown
from stoker_operator.documents import Document, read_documents
from stoker_operator.errors import ManifestError
from stoker_operator.local_limits import refused_field
from stoker_operator.names import API_VERSION, KIND
from stoker_operator.rule import Rule
from stoker_operator.rules import RULES
from stoker_operator.v1alpha1 import InferenceDeployment

SERVER_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""What an API server writes into metadata: `kubectl get -o yaml` prints it, and it is no one's input."""

Steps = tuple[str | int, ...]


def load_manifests(files: Sequence[str]) -> list[InferenceDeployment]:
    """All InferenceDeployments of `files`, in order, that this machine can run: their models are there. Raises ManifestError."""
    decoded = _decode_files(files)
    for document, deployment in decoded:
        if refused := refused_field(deployment):
            raise document.error(*refused)
        _check_model(document, deployment)
    return [deployment for _, deployment in decoded]


def decode_manifests(files: Sequence[str]) -> list[InferenceDeployment]:
    """The same without looking for the models: they may be on another machine. Raises ManifestError."""
    return [deployment for _, deployment in _decode_files(files)]


def _decode_files(files: Sequence[str]) -> list[tuple[Document, InferenceDeployment]]:
    documents = [document for file in files for read in read_documents(file) for document in _expand(read)]
    if not documents:
        raise ManifestError(f"{', '.join(files)}: no InferenceDeployment found")
    decoded = [(document, _decode(document)) for document in documents]
    _refuse_collisions(decoded)
    return decoded


def _expand(document: Document) -> Iterator[Document]:
    """The items of a v1 List, which `kubectl get -o yaml` prints for several objects; anything else is itself."""
    value = document.value
    if not (isinstance(value, dict) and value.get("kind") == "List" and value.get("apiVersion") == "v1"):
        yield document
        return
    items = value.get("items", [])
    if not isinstance(items, list):
        raise document.error(("items",), f"Expected array, got {items!r}")
    for index, item in enumerate(items):
        yield document.item(("items", index), item)


def _decode(document: Document) -> InferenceDeployment:
    value = document.value
    if not isinstance(value, dict):
        raise document.error((), f"Expected an {KIND}, got {type(value).__name__}")
    _check_kind(document, value)
    value = {key: item for key, item in value.items() if key != "status"}
    if isinstance(value.get("metadata"), dict):
        value["metadata"] = {key: item for key, item in value["metadata"].items() if key not in SERVER_METADATA}
    try:
        deployment = msgspec.convert(value, InferenceDeployment)
    except msgspec.ValidationError as error:
        raise _located(document, value, error) from error
    for rule in RULES:
        if not rule.holds(deployment):
            raise _violated(document, rule)
    return deployment


def _check_kind(document: Document, value: dict[str, object]) -> None:
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if key not in value:
            raise document.error((key,), f"is required: {expected}")
    if value["kind"] != KIND or value["apiVersion"] != API_VERSION:
        key = "kind" if value["kind"] != KIND else "apiVersion"
        raise document.error((key,), f"Expected {API_VERSION} {KIND}, got {value['apiVersion']} {value['kind']}")


def _violated(document: Document, rule: Rule) -> ManifestError:
    value: Any = document.value
    for step in rule.path:
        value = value.get(step) if isinstance(value, dict) else None
    return document.error(rule.path, rule.message if value is None else f"{rule.message}, got {shown(value)}")


def _located(document: Document, value: object, error: msgspec.ValidationError) -> ManifestError:
    """msgspec's error with file, line, path, value and what is allowed there."""
    text, _, where = str(error).partition(" - at ")
    steps, field_type, found = _follow(value, where)
    if unknown := re.search("unknown field `(.*)`", text):
        name = unknown[1]
        known = [field.encode_name for field in msgspec.structs.fields(_plain(field_type))]
        return document.error((*steps, name), f"unknown field; {_suggestion(name, known)}")
    if missing := re.search("missing required field `(.*)`", text):
        return document.error((*steps, missing[1]), "is required")
    if where.startswith("`key`"):
        return document.error(steps, f"{text.replace('`', '')} as key")
    return document.error(steps, explain(error, field_type, found))


def _follow(value: Any, where: str) -> tuple[Steps, Any, Any]:
    """The steps of a msgspec path, the type declared at its end and the value found there."""
    steps: list[str | int] = []
    field_type: Any = InferenceDeployment
    for name, index in re.findall(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]", where):
        step: str | int
        if name:
            step = name
            field_type = next(field.type for field in msgspec.structs.fields(_plain(field_type)) if field.encode_name == name)
        else:
            field_type = get_args(_plain(field_type))[1 if index == "..." else 0]
            step = _first_wrong(value, field_type) if index == "..." else int(index)
        steps.append(step)
        value = value[step]
    return tuple(steps), field_type, value


def _plain(field_type: Any) -> Any:
    """`Annotated[T, …]` and `T | None` → T."""
    while hasattr(field_type, "__metadata__") or type(None) in get_args(field_type):
        field_type = next(member for member in get_args(field_type) if member is not type(None))
    return field_type


def _first_wrong(entries: dict[str, object], value_type: Any) -> str:
    """The key of a mapping whose value is not of `value_type`: msgspec's path does not say which."""
    for key, entry in entries.items():
        try:
            msgspec.convert(entry, value_type)
        except msgspec.ValidationError:
            return key
    raise KeyError(f"no entry of {entries!r} is wrong")


def _suggestion(name: str, known: list[str]) -> str:
    by_lower_case = {field.lower(): field for field in known}
    spelled = name.replace("_", "").replace("-", "").lower()
    near = difflib.get_close_matches(spelled, by_lower_case, n=1, cutoff=0.7)
    return f"did you mean {by_lower_case[near[0]]}?" if near else "allowed: " + ", ".join(known)


def _refuse_collisions(decoded: Iterable[tuple[Document, InferenceDeployment]]) -> None:
    by_key: dict[tuple[str, str], Document] = {}
    by_served_name: dict[str, Document] = {}
    for document, deployment in decoded:
        key = (deployment.metadata.namespace, deployment.metadata.name)
        if key in by_key:
            raise document.error(("metadata", "name"), f"{'/'.join(key)} is already defined at {_place(by_key[key])}; choose another name")
        by_key[key] = document
        for served_name in (deployment.served_name, *deployment.spec.model.aliases):
            if served_name in by_served_name:
                other = by_served_name[served_name]
                raise document.error(("spec", "model"), f"{served_name!r} is already served by the one at {_place(other)}; choose another servedName or alias")
            by_served_name[served_name] = document


def _place(document: Document) -> str:
    return f"{document.file}:{document.node.start_mark.line + 1}"


def _check_model(document: Document, deployment: InferenceDeployment) -> None:
    try:
        check_model(deployment.spec.model.uri)
    except ConfigError as error:
        raise document.error(("spec", "model", "uri"), str(error).removeprefix("model.uri: ")) from error
