"""RouteTable: which endpoint a method and a path are for."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from starlette.routing import compile_path

from stoker_gateway.openai.errors import method_not_allowed, route_not_found

EndpointT = TypeVar("EndpointT")


@dataclass(slots=True, frozen=True)
class Found(Generic[EndpointT]):
    """`template` is the path with its placeholders, `parameters` what stands in their places."""

    endpoint: EndpointT
    template: str
    parameters: dict[str, str] = field(default_factory=dict)


class RouteTable(Generic[EndpointT]):
    """Method, path and endpoint of each; a path may have placeholders, as Starlette's do. HEAD is answered as GET is, its body left out by the server."""

    def __init__(self, routes: Iterable[tuple[str, str, EndpointT]]) -> None:
        self._by_path: dict[str, dict[str, Found[EndpointT]]] = {}
        self._patterns: dict[re.Pattern[str], dict[str, Found[EndpointT]]] = {}
        for method, path, endpoint in routes:
            pattern, template, parameters = compile_path(path)
            by_method = self._patterns.setdefault(pattern, {}) if parameters else self._by_path.setdefault(path, {})
            by_method[method] = Found(endpoint, template)
        for by_method in (*self._by_path.values(), *self._patterns.values()):
            if "GET" in by_method:
                by_method["HEAD"] = by_method["GET"]

    @property
    def operations(self) -> tuple[tuple[str, str], ...]:
        """Methods and templates, HEAD left out."""
        tables = (*self._by_path.values(), *self._patterns.values())
        return tuple(sorted((method, found.template) for by_method in tables for method, found in by_method.items() if method != "HEAD"))

    def find(self, method: str, path: str) -> Found[EndpointT]:
        """Raises ApiError: 404 for a path that there is none of, 405 for a method that it does not have."""
        by_method, parameters = self._by_path.get(path), dict[str, str]()
        if by_method is None:
            by_method, parameters = self._match(method, path)
        found = by_method.get(method)
        if found is None:
            raise method_not_allowed(method, path, ", ".join(sorted(by_method)))
        return Found(found.endpoint, found.template, parameters) if parameters else found

    def _match(self, method: str, path: str) -> tuple[dict[str, Found[EndpointT]], dict[str, str]]:
        for pattern, by_method in self._patterns.items():
            if match := pattern.match(path):
                return by_method, match.groupdict()
        raise route_not_found(method, path)
