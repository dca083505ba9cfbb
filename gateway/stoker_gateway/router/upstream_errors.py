"""How a replica can fail to answer."""


class UpstreamError(Exception):
    """A replica did not answer, or not to the end.

    UpstreamError
    ├── ConnectError          there is no connection, or the request does not arrive over it
    ├── NoSocketError         this process has no connection left to make, to whichever replica
    ├── UpstreamClosedError   the connection ended before the answer did
    ├── UpstreamSilentError   nothing came for too long
    └── UpstreamBrokenError   what came is no HTTP
    """


class ConnectError(UpstreamError): ...


class NoSocketError(UpstreamError): ...


class UpstreamClosedError(UpstreamError): ...


class UpstreamSilentError(UpstreamError): ...


class UpstreamBrokenError(UpstreamError): ...
