import pytest

from stoker_gateway.router.model_field import with_model


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (b'{"model":"a/b"}', b'{"model":"m"}'),
        (b'{"n": 1.0e1, "model": "a/b", "x": [1, "\\u00e9\\ud83d\\ude00"]}', b'{"n":1.0e1,"model":"m","x":[1, "\\u00e9\\ud83d\\ude00"]}'),
        (b'{"model":"x","model":"a/b","messages":[{"model": "a/b"}]}', b'{"model":"m","messages":[{"model": "a/b"}]}'),
        (b'{"model":"a/b","\xff":1}', b'{"model":"a/b","\xff":1}'),
    ],
)
def test_only_the_name_of_the_model_changes(body: bytes, written: bytes) -> None:
    assert with_model(body, "m") == written
