"""`openai` for Python before a gateway with two replicas: each keeps the responses that it has made."""

import openai
import pytest
from openai import OpenAI

pytestmark = pytest.mark.stress

QUESTION = "What is the capital of France?"


def test_a_response_is_found_wherever_it_was_made(gateway_url: str) -> None:
    with OpenAI(base_url=f"{gateway_url}/v1", api_key="none") as client:
        made = [client.responses.create(model="smollm2", input=QUESTION, temperature=0) for _ in range(4)]
        for response in made:
            assert client.responses.retrieve(response.id).output_text == response.output_text == "The capital of France is Paris."
            assert len(list(client.responses.input_items.list(response.id))) == 1
            turn = client.responses.create(model="smollm2", input="And of Italy?", previous_response_id=response.id, temperature=0)
            assert "Rome" in turn.output_text and len(list(client.responses.input_items.list(turn.id))) == 3
            client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError, match="not found"):
            client.responses.retrieve(made[0].id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.create(model="smollm2", input="more", previous_response_id=made[0].id)


def test_a_background_response_can_be_followed_and_cancelled(gateway_url: str) -> None:
    with OpenAI(base_url=f"{gateway_url}/v1", api_key="none") as client:
        for _ in range(2):
            begun = client.responses.create(model="smollm2", input="Go on.", background=True, extra_body={"ignore_eos": True})
            assert client.responses.cancel(begun.id).status == client.responses.retrieve(begun.id).status == "cancelled"
        events = list(client.responses.create(model="smollm2", input="Hello", background=True, stream=True, max_output_tokens=5))
        assert events[0].type == "response.created"
        later = list(client.responses.retrieve(events[0].response.id, stream=True, starting_after=3))
        assert [event.type for event in later] == [event.type for event in events[4:]]
