from typing import Annotated, Literal

import pytest
from msgspec import Meta

from stoker_engine.config import EngineConfig, LifecycleConfig
from stoker_engine.errors import ConfigError
from stoker_engine.settings import Settings, from_args, in_schema, to_args, to_the_end
from stoker_gateway.api.config import ApiConfig


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


@pytest.mark.parametrize("config_type", [EngineConfig, ApiConfig])
@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("startup-timeout", "0s", "must be more than 0s and at most 24h, got '0s'"),
        ("startup-timeout", "25h", "must be more than 0s and at most 24h, got '25h'"),
        ("engine-hang-timeout", "0ms0h", "must be more than 0s and at most 24h, got '0ms0h'"),
        ("engine-hang-timeout", "86400001ms", "must be more than 0s and at most 24h, got '86400001ms'"),
        ("engine-hang-timeout", "9" * 30 + "h", "must be more than 0s and at most 24h, got '9999"),
        ("drain-timeout", "24h1s", "must be at most 24h, got '24h1s'"),
        ("drain-timeout", "-1s", "Expected str matching regex '^([0-9]+(ms|s|m|h))+$' such as 90s or 1h30m, got '-1s'"),
    ],
)
def test_a_duration_out_of_bounds_is_refused_as_a_flag(config_type: type[EngineConfig] | type[ApiConfig], flag: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_args(config_type, ["--model-uri=file:///model", f"--{flag}={value}"], program="example")
    assert str(error.value).startswith(f"--{flag}: {message}")


def test_durations_at_their_bounds_are_taken() -> None:
    args = ["--model-uri=file:///model", "--startup-timeout=24h", "--engine-hang-timeout=1ms", "--drain-timeout=0s"]
    lifecycle = from_args(EngineConfig, args, program="example").lifecycle
    assert lifecycle == LifecycleConfig(startup_timeout="24h", engine_hang_timeout="1ms", drain_timeout="0s")


@pytest.mark.parametrize("flag", ["model-uri=file:///model", "served-name=a", "alias=a", "drain-timeout=1s"])
def test_a_newline_at_the_end_of_a_value_is_refused_and_the_pattern_shown_as_written(flag: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_args(EngineConfig, ["--model-uri=file:///model", f"--{flag}\n"], program="example")
    assert str(error.value).startswith(f"--{flag.partition('=')[0]}: Expected ")
    assert "$'" in str(error.value)
    assert "\\n'" in str(error.value)


def test_a_pattern_means_the_whole_value_in_python_and_keeps_its_dollar_in_a_schema() -> None:
    assert to_the_end("^a+$") == r"^a+\Z"
    assert in_schema(r"^a+\Z") == "^a+$"


def test_help_lists_every_flag_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(flag in text for flag in ("--inner-uri", "--alias", "--max-things", "100 % of them.", "--kind", "--no-enable-magic"))
