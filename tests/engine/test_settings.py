from typing import Annotated, Literal

import pytest
from msgspec import Meta

from stoker_engine.errors import ConfigError
from stoker_engine.settings import Settings, from_args, to_args


class Inner(Settings, frozen=True, kw_only=True):
    uri: Annotated[str, Meta(pattern="^file:", description="Where it is.", extra={"flag": "inner-uri"})]
    aliases: Annotated[tuple[str, ...], Meta(max_length=2, extra={"flag": "alias"})] = ()


class Example(Settings, frozen=True, kw_only=True):
    inner: Inner
    max_things: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="100 % of them.")] = None
    kind: Literal["slow", "fast"] = "slow"
    enable_magic: bool = True


def parse(*args: str) -> Example:
    return from_args(Example, args, program="example")


EVERYTHING = Example(inner=Inner(uri="file:x", aliases=("a", "b c")), max_things=3, kind="fast", enable_magic=False)


def test_flags_give_back_the_settings_they_were_made_of() -> None:
    args = to_args(EVERYTHING)
    assert args == ["--inner-uri=file:x", "--alias=a", "--alias=b c", "--max-things=3", "--kind=fast", "--no-enable-magic"]
    assert parse(*args) == EVERYTHING


def test_defaults_are_not_written() -> None:
    assert to_args(Example(inner=Inner(uri="file:x"))) == ["--inner-uri=file:x"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], r"^--inner-uri is required: Where it is\.$"),
        (["--inner-uri=x"], r"^--inner-uri: .*'x'$"),
        (["--inner-uri=file:x", "--max-things=0"], r"^--max-things: Expected int >= 1, got '0'$"),
        (["--inner-uri=file:x", "--max-things=many"], r"^--max-things: .*'many'$"),
        (["--inner-uri=file:x", "--kind=odd"], r"^--kind: Expected one of fast, slow, got 'odd'$"),
        (["--inner-uri=file:x", "--alias=a", "--alias=b", "--alias=c"], r"^--alias: .*length <= 2, got"),
        (["--inner-uri=file:x", "--max-thing=1"], "unrecognized arguments: --max-thing=1"),
    ],
)
def test_a_wrong_flag_is_named_with_its_value_and_what_is_allowed(args: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*args)


def test_help_lists_every_flag_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(flag in text for flag in ("--inner-uri", "--alias", "--max-things", "100 % of them.", "--kind", "--no-enable-magic"))
