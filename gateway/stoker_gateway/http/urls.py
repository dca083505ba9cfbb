"""Addresses in settings, as patterns that a flag and a CRD alike can check."""

from typing import Annotated

from msgspec import Meta

from stoker_engine.settings import to_the_end

_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
HOST = rf"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:({_PORT}))?"
Origin = Annotated[str, Meta(pattern=to_the_end(rf"^(\*|https?://{HOST})$"), max_length=253, examples=["https://chat.example.org"])]
Endpoint = Annotated[str, Meta(pattern=to_the_end(rf"^https?://{HOST}(/\S*)?$"), max_length=1024, examples=["http://collector.monitoring:4318"])]
