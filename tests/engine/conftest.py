"""Fixtures that the engine's tests share."""

from pathlib import Path

import pytest

from stoker_engine.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)
