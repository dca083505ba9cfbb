"""Rules about `spec.engine` and `spec.api` as containers: their arguments and environment."""

import re
from collections.abc import Iterator

from stoker_engine.config import EngineConfig, EngineSettings
from stoker_engine.settings import Settings, flags_of
from stoker_gateway.api.config import ApiConfig, ApiSettings
from stoker_operator.names import API, ENGINE
from stoker_operator.rule import Rule, spec_rule
from stoker_operator.v1alpha1 import ApiSpec, EngineSpec, InferenceDeployment

USERS_FLAGS = frozenset({"--profile-dir", "--api-keys-file"})
"""Flags without a field of their name that nothing else depends on."""


def generated_flags(config: type[Settings], settings: type[Settings]) -> list[str]:
    """The flags that a pod's parts must agree on: not the settings that the last one of two flags may decide."""
    return sorted(flags_of(config) - flags_of(settings) - USERS_FLAGS)


def _container(deployment: InferenceDeployment, component: str) -> EngineSpec | ApiSpec:
    return deployment.spec.engine if component == ENGINE else deployment.spec.api


def _args_rule(component: str, flags: list[str]) -> Rule:
    pattern = f"^({'|'.join(flags)})(=.*)?$"
    flag = re.compile(pattern)
    return spec_rule(
        f"{component}.args",
        cel=f"!self.{component}.args.exists(a, a.matches('{pattern}'))",
        message=f"must not have a flag that is generated ({', '.join(flags)}); remove it and set the field of that name, if there is one",
        holds=lambda deployment: not any(flag.match(argument) for argument in _container(deployment, component).args),
    )


def _names_differ(deployment: InferenceDeployment, component: str) -> bool:
    names = [variable.name for variable in _container(deployment, component).env]
    return len(set(names)) == len(names)


def _env_rules(component: str) -> Iterator[Rule]:
    yield spec_rule(
        f"{component}.env",
        cel=f"self.{component}.env.all(e, self.{component}.env.exists_one(other, other.name == e.name))",
        message="must have each name once; remove the repeated one",
        holds=lambda deployment: _names_differ(deployment, component),
    )
    yield spec_rule(
        f"{component}.env",
        cel=f"!self.{component}.env.exists(e, has(e.value) && has(e.valueFrom))",
        message="must give each variable a value or a valueFrom, not both",
        holds=lambda deployment: all(variable.value is None or variable.value_from is None for variable in _container(deployment, component).env),
    )


CONTAINER_RULES: tuple[Rule, ...] = (
    _args_rule(ENGINE, generated_flags(EngineConfig, EngineSettings)),
    *_env_rules(ENGINE),
    _args_rule(API, generated_flags(ApiConfig, ApiSettings)),
    *_env_rules(API),
)
