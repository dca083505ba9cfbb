"""The api's page, as people use it."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.testing import Script
from stoker_engine.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:  # Its import takes as long as many tests, and all but these do without it.
    from playwright.sync_api import Locator, LocatorAssertions, Page

pytestmark = pytest.mark.stress

Open = Callable[..., Any]


def expect(what: "Locator") -> "LocatorAssertions":
    from playwright.sync_api import expect

    return expect(what)


@pytest.fixture(scope="module")
def replies(make_replies: Callable[..., Any], tokenizer: Tokenizer) -> list[Any]:
    words = {"words": "one two three four five six seven eight", "code": "See:\n```python\nprint(1)\n```\nDone & <b>well</b>."}
    return make_replies({prompt: [*tokenizer.encode(reply), *tokenizer.eos_token_ids] for prompt, reply in words.items()})


@pytest.fixture(scope="module")
def slow(make_api: Callable[..., Any], replies: list[Any]) -> Iterator[Any]:
    with make_api(Script(replies=replies, step_seconds=0.03, max_model_len=1024)) as api:
        yield api


def test_a_chat_streams(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        expect(visit.page.get_by_role("heading", name="m", exact=True)).to_be_visible()
        expect(visit.state).to_have_text("ready · context 1,024 tokens")
        visit.say("words")
        expect(visit.answer).to_have_attribute("aria-busy", "true")
        expect(visit.answer).to_contain_text("one two")
        assert "eight" not in visit.answer.inner_text()
        expect(visit.answer.locator(".text")).to_have_text("one two three four five six seven eight")
        expect(visit.answer.locator(".stats")).to_have_text(re.compile(r"^\d.* m?s to the first token · [\d.]+ tokens/s · 9 out, \d+ in.* · complete$"))
        expect(visit.page.get_by_role("button", name="Send")).to_be_visible()
        assert visit.errors == []


def test_the_next_turn_brings_the_chat_and_the_settings(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        visit.say("words")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        values = {"System prompt": "Be brief.", "Temperature": "0,5", "Top p": "0.9", "Max tokens": "3", "Seed": "7", "Stop strings": "END\nHALT"}
        for label, value in values.items():
            visit.page.get_by_label(label).fill(value)
        visit.page.get_by_label("More fields").fill('{"chat_template_kwargs": {"a": 1}}')
        visit.say("second")
        expect(visit.answer.locator(".stats")).to_contain_text("3 out")
        sent = visit.chats[-1]
        assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
        assert sent["messages"][2]["content"] == "one two three four five six seven eight"
        expected = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 3, "seed": 7, "stop": ["END", "HALT"], "chat_template_kwargs": {"a": 1}}
        assert expected.items() <= sent.items() and "top_k" not in sent
        assert visit.errors == []


def test_text_is_shown_as_it_is_and_code_in_a_box(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        visit.say("code")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        assert visit.answer.locator("pre").text_content() == "print(1)\n"
        expect(visit.answer.locator(".text")).to_contain_text("Done & <b>well</b>.")
        assert visit.answer.locator("b").count() == 0


def test_a_turn_can_be_edited_and_a_chat_begun_anew(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        visit.say("wrods")
        expect(visit.answer).to_have_attribute("aria-busy", "true")
        visit.page.get_by_role("button", name="Edit").click()
        expect(visit.page.locator("article")).to_have_count(0)
        expect(visit.page.get_by_label("Message")).to_have_value("wrods")
        visit.say("words")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        assert [message["content"] for message in visit.chats[-1]["messages"]] == ["words"]
        visit.page.get_by_role("button", name="New chat").click()
        expect(visit.page.get_by_text("Nothing said yet.")).to_be_visible()


def test_the_copied_command_sends_the_chat_as_it_stands(slow: Any, open_page: Open) -> None:
    with open_page(slow, permissions=["clipboard-read", "clipboard-write"]) as visit:
        visit.page.get_by_label("System prompt").fill("It's $HOME, \\n `x`")
        visit.page.get_by_label("Max tokens").fill("4")
        visit.say("hi")
        expect(visit.answer.locator(".stats")).to_contain_text("4 out")
        visit.page.get_by_role("button", name="Copy as curl").click()
        expect(visit.page.get_by_role("button", name="Copied")).to_be_visible()
        command = visit.page.evaluate("navigator.clipboard.readText()")
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout.rstrip().endswith("data: [DONE]") and '"completion_tokens":4' in done.stdout
        shown = subprocess.run(["sh", "-c", command.replace("curl", "printf '%s\\n'", 1)], capture_output=True, text=True, timeout=30, check=True)
        sent = json.loads(shown.stdout.splitlines()[-1])
        assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant"]
        assert sent["messages"][0]["content"] == "It's $HOME, \\n `x`"


def test_copying_works_where_the_browser_gives_no_clipboard(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        visit.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        visit.say("code")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        visit.answer.get_by_role("button", name="Copy").click()
        expect(visit.answer.get_by_role("button", name="Copied")).to_be_visible()
        visit.page.get_by_label("Message").press("Control+V")
        expect(visit.page.get_by_label("Message")).to_have_value("See:\n```python\nprint(1)\n```\nDone & <b>well</b>.")


def press_stop(page: "Page") -> None:
    page.get_by_role("button", name="Stop").click()


def press_escape(page: "Page") -> None:
    page.keyboard.press("Escape")


@pytest.mark.parametrize("press", [press_stop, press_escape])
def test_stop_ends_the_work_of_the_engine_too(
    start_api: Callable[..., Any], open_page: Open, wait_for: Callable[..., None], free_port: Callable[[], int], press: Callable[["Page"], None]
) -> None:
    port = free_port()
    api = start_api(Script(step_seconds=0.02, max_model_len=8192), engine={"health_host": "127.0.0.1", "health_port": port})

    def running_in_the_engine() -> float:
        lines = api.client.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("stoker_engine_num_requests_running")).rpartition(" ")[2])

    with open_page(api) as visit:
        visit.page.get_by_label("More fields").fill('{"ignore_eos": true}')
        visit.say("go on")
        expect(visit.answer.locator(".stats")).to_contain_text("tokens/s")
        wait_for(lambda: running_in_the_engine() == 1, "the engine runs the request")
        press(visit.page)
        expect(visit.answer.locator(".stats")).to_contain_text("stopped by you")
        wait_for(lambda: running_in_the_engine() == 0, "the engine has stopped")
        assert api.metric('stoker_request_success_total{finish_reason="abort"') == 1
        assert visit.answer.locator(".text").inner_text() and visit.answer.get_by_role("alert").count() == 0
        visit.page.get_by_label("Max tokens").fill("2")
        visit.say("and now")
        expect(visit.answer.locator(".stats")).to_contain_text("2 out")
        assert visit.errors == []


def test_a_wrong_key_is_explained(start_api: Callable[..., Any], open_page: Open, wait_for: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("right-key\n", encoding="utf-8")
    api = start_api(Script(default_reply=[28, 2]), api_keys_file=str(file))
    with open_page(api) as visit:
        field, says = visit.page.get_by_label("API key", exact=True), visit.page.locator("#key-says")
        expect(says).to_contain_text("This server asks for a key.")
        expect(visit.state).to_have_text("ready")
        visit.say("hi")
        expect(visit.answer.get_by_role("alert")).to_contain_text("This server asks for an API key")
        field.fill("wrong-key")
        field.press("Enter")
        expect(says).to_contain_text("That key is wrong")
        expect(field).to_be_focused()
        field.fill("right-key")
        field.press("Enter")
        expect(field).to_be_hidden()
        visit.page.get_by_role("button", name="Try again").click()
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        assert visit.page.evaluate("[{...sessionStorage}, {...localStorage}, document.cookie]") == [{"stoker-api-key": "right-key"}, {}, ""]
        file.write_text("another-key\n", encoding="utf-8")
        wait_for(lambda: api.client.get("/v1/models", headers={"x-api-key": "another-key"}).status_code == 200, "the keys have changed")
        visit.page.get_by_role("button", name="Try again").click()
        expect(visit.answer.get_by_role("alert")).to_contain_text("The API key is wrong")
        assert visit.errors and all("401" in text for text in visit.errors)


def test_a_start_is_followed(start_api: Callable[..., Any], open_page: Open) -> None:
    api = start_api(None)
    with open_page(api) as visit:
        expect(visit.state).to_have_text("absent · no engine has connected yet")
        visit.say("hi")
        expect(visit.answer.get_by_role("alert")).to_contain_text("The model is not ready")
        api.start_engine(Script(load_seconds=3.0, max_model_len=512))
        expect(visit.state).to_have_text(re.compile(r"^loading · \d+ %$"))
        expect(visit.page.get_by_role("progressbar")).to_be_visible()
        expect(visit.state).to_have_text("ready · context 512 tokens")
        expect(visit.page.get_by_role("progressbar")).to_be_hidden()
        api.process.kill()
        expect(visit.state).to_have_text("unreachable")
        visit.say("hello?")
        expect(visit.answer.get_by_role("alert")).to_contain_text("The server cannot be reached")
        visit.errors = [text for text in visit.errors if "net::ERR" not in text]


def test_a_setting_at_fault_is_marked(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        temperature, more = visit.page.get_by_label("Temperature"), visit.page.get_by_label("More fields")
        temperature.fill("9")
        visit.say("hi")
        expect(visit.answer.get_by_role("alert")).to_contain_text("The server refused temperature")
        expect(temperature).to_have_attribute("aria-invalid", "true")
        temperature.fill("")
        more.fill("{")
        visit.page.get_by_role("button", name="Try again").click()
        expect(visit.answer.get_by_role("alert")).to_contain_text("no JSON")
        expect(more).to_have_attribute("aria-invalid", "true")
        assert temperature.get_attribute("aria-invalid") is None


def test_reasoning_stands_apart(start_api: Callable[..., Any], marked_model: Path, open_page: Open) -> None:
    template = marked_model / "plain.jinja"
    template.write_text("{{ messages[-1].content }}", encoding="utf-8")
    tokenizer = load_tokenizer(marked_model)
    reply = [*tokenizer.encode_chat("<think>Two and two.</think>Four."), tokenizer.eos_token_ids[0]]
    model = ModelConfig(uri=f"file://{marked_model}", served_name="m")
    api = start_api(Script(default_reply=reply, vocab_size=tokenizer.vocab_size), model=model, chat_template=str(template), reasoning_parser="think")
    with open_page(api) as visit:
        visit.say("2 + 2?")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        expect(visit.answer.locator("details .text")).to_have_text("Two and two.")
        assert visit.answer.locator("> .text").inner_text() == "Four."
        assert visit.answer.locator("details").get_attribute("open") is None


def test_a_phone_has_all_of_it_in_its_width(slow: Any, open_page: Open) -> None:
    with open_page(slow, viewport={"width": 360, "height": 640}, has_touch=True) as visit:
        visit.say("words")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
        settings = visit.page.get_by_role("complementary", name="Settings")
        expect(settings).to_be_hidden()
        visit.page.get_by_role("button", name="Settings").click()
        expect(visit.page.get_by_label("System prompt")).to_be_focused()
        visit.page.keyboard.press("Escape")
        expect(settings).to_be_hidden()


def test_everything_that_takes_input_has_a_name(slow: Any, open_page: Open) -> None:
    with open_page(slow) as visit:
        visit.say("words")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        fields = visit.page.locator("input, textarea, button")
        names = fields.evaluate_all("fields => fields.map(field => field.labels?.[0]?.textContent || field.ariaLabel || field.textContent)")
        assert len(names) > 20 and all(names)


def test_a_script_from_elsewhere_and_a_request_to_elsewhere_are_not_possible(slow: Any, open_page: Open, free_port: Callable[[], int]) -> None:
    with open_page(slow) as visit:
        elsewhere = f"http://127.0.0.1:{free_port()}/"
        for code in ("address => fetch(address)", "() => { document.body.innerHTML = '<p>' }"):
            with pytest.raises(Exception, match=r"Failed to fetch|TrustedHTML"):
                visit.page.evaluate(code, elsewhere)
        assert any("violates the following Content Security Policy" in text for text in visit.errors)
        visit.errors.clear()
        visit.requests = [request for request in visit.requests if request.url != elsewhere]
