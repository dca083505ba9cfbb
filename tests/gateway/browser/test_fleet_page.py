"""The gateway's page, before two models of scripted engines behind real apis."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from stoker_engine.config import ModelConfig
from stoker_engine.testing import Script
from stoker_engine.tokenizer import Tokenizer

if TYPE_CHECKING:  # Its import takes as long as many tests, and all but these do without it.
    from playwright.sync_api import Locator, LocatorAssertions, Page

pytestmark = pytest.mark.stress

Open = Callable[..., Any]
COUNT = "one two three four five six seven eight"


def expect(what: "Locator") -> "LocatorAssertions":
    from playwright.sync_api import expect

    return expect(what)


@dataclass
class Gateway:
    """A process of its own."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def run_gateway(port: int, *flags: str) -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory() as directory:
        common = ("--host=127.0.0.1", f"--port={port}", "--drain-delay=0s", "--log-level=warning", f"--termination-message-path={directory}/end")
        process = subprocess.Popen([sys.executable, "-m", "stoker_gateway.router", *common, *flags])
        gateway = Gateway(f"http://127.0.0.1:{port}", process)
        try:
            transport = httpx.HTTPTransport(retries=10)
            with httpx.Client(transport=transport, timeout=30) as client:
                while client.get(f"{gateway.url}/readyz").status_code != 200:
                    assert process.poll() is None
            yield gateway
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def start_gateway(free_port: Callable[[], int]) -> Iterator[Callable[..., Gateway]]:
    with ExitStack() as stack:
        yield lambda *flags: stack.enter_context(run_gateway(free_port(), *flags))


@pytest.fixture
def start_model(start_api: Callable[..., Any], make_replies: Callable[..., Any], tokenizer: Tokenizer, smollm2_path: Path) -> Callable[[str], Any]:
    """A replica of a model of this name that counts, slowly enough to be watched."""

    def start(name: str) -> Any:
        replies = make_replies({"count": [*tokenizer.encode(COUNT), *tokenizer.eos_token_ids]})
        return start_api(Script(replies=replies, step_seconds=0.05, max_model_len=8192), model=ModelConfig(uri=f"file://{smollm2_path}", served_name=name))

    return start


def box(page: "Page", model: str) -> "Locator":
    return page.locator("details.model").filter(has=page.locator(".name", has_text=re.compile(f"^{re.escape(model)}$")))


def pod(page: "Page", api: Any) -> "Locator":
    return page.locator("table.pods tbody tr").filter(has_text=f"127.0.0.1:{api.port}").first


def choose(page: "Page", model: str) -> None:
    box(page, model).get_by_role("button", name="Chat").click()


def test_two_models_are_shown_live_and_chatted_with(start_model: Any, start_gateway: Any, open_page: Open) -> None:
    first, second, third = start_model("alpha"), start_model("alpha"), start_model("beta")
    gateway = start_gateway(f"--static-model=alpha=127.0.0.1:{first.port},127.0.0.1:{second.port}", f"--static-model=beta=127.0.0.1:{third.port}")
    with open_page(gateway) as visit:
        page = visit.page
        expect(visit.state).to_have_text("live")
        expect(page.locator("#totals")).to_have_text("2 models · 3 of 3 replicas ready · 0 in flight · 0 waiting")
        expect(box(page, "alpha").locator(".facts")).to_have_text("2 of 2 ready · 0 in flight · 0 waiting · LeastRequest")
        assert page.locator("table.pods tbody tr").count() == 3
        choose(page, "beta")
        visit.say("count")
        expect(visit.answer).to_have_attribute("aria-busy", "true")
        expect(visit.answer.locator(".text")).to_have_text(COUNT)
        expect(visit.answer.locator(".stats")).to_have_text(re.compile(r"^\d.* m?s to the first token · [\d.]+ tokens/s · 9 out, \d+ in · complete$"))
        choose(page, "alpha")
        visit.say("go on")
        expect(box(page, "alpha").locator(".facts")).to_have_text(re.compile(r"^2 of 2 ready · 1 in flight · 0 waiting · [\d.]+ tokens/s · LeastRequest$"))
        expect(box(page, "alpha").locator("table.pods")).to_contain_text(re.compile(r"ready1101?[\d.]+ %[\d.]+"))
        page.get_by_role("button", name="Stop").click()
        expect(visit.answer.locator(".stats")).to_contain_text("stopped by you")
        expect(page.locator("#totals")).to_have_text(re.compile("2 models · 3 of 3 replicas ready · 0 in flight · 0 waiting"))
        assert [chat["model"] for chat in visit.chats] == ["beta", "alpha"]
        assert [message["role"] for message in visit.chats[1]["messages"]] == ["user", "assistant", "user"]
        assert visit.errors == []


def test_a_replica_that_fails_is_seen_and_so_is_its_end(start_model: Any, start_gateway: Any, open_page: Open) -> None:
    one, other = start_model("alpha"), start_model("alpha")
    gateway = start_gateway(f"--static-model=alpha=127.0.0.1:{one.port},127.0.0.1:{other.port}")
    with open_page(gateway) as visit:
        page = visit.page
        expect(page.locator("#no-failures")).to_be_visible()
        visit.say("go on")
        expect(visit.answer.locator(".text")).not_to_be_empty()
        expect(box(page, "alpha").locator(".facts")).to_contain_text("1 in flight")
        busy = one if pod(page, one).locator("td").nth(3).inner_text() == "1" else other
        busy.process.kill()
        expect(visit.answer.get_by_role("alert")).to_contain_text("The answer failed")
        expect(page.locator("#failures tr").first).to_contain_text(f"127.0.0.1:{busy.port}")
        expect(pod(page, busy)).to_contain_text("not ready")
        expect(box(page, "alpha").locator(".facts")).to_contain_text("1 of 2 ready")
        expect(page.locator("#changes tr").first).to_contain_text("not ready")
        page.get_by_role("button", name="New chat").click()
        visit.say("count")
        expect(visit.answer.locator(".text")).to_have_text(COUNT)
        expect(page.locator("#to-failures")).to_have_text(re.compile(r"Failures \d"))


def test_the_page_asks_for_a_key_where_the_gateway_does(start_model: Any, start_gateway: Any, open_page: Open, tmp_path: Path) -> None:
    api = start_model("alpha")
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "me", "sha256": sha256(b"right-key").hexdigest()}]}), encoding="utf-8")
    gateway = start_gateway(f"--static-model=alpha=127.0.0.1:{api.port}", f"--api-keys-file={keys}")
    with open_page(gateway) as visit:
        page = visit.page
        field, says = page.get_by_label("API key", exact=True).and_(page.locator("input")), page.locator("#key-says")
        expect(says).to_contain_text("This gateway asks for a key.")
        assert "alpha" not in page.locator("body").inner_text()
        field.fill("wrong-key")
        page.get_by_role("button", name="Use key").click()
        expect(says).to_contain_text("That key is wrong")
        field.fill("right-key")
        page.get_by_role("button", name="Use key").click()
        expect(visit.state).to_have_text("live")
        expect(field).to_be_hidden()
        visit.say("count")
        expect(visit.answer.locator(".text")).to_have_text(COUNT)
        assert all("right-key" not in request.url for request in visit.requests)
        page.reload()
        expect(box(page, "alpha")).to_be_visible()


def test_the_page_finds_the_gateway_again_and_looks_only_while_it_is_seen(start_gateway: Any, open_page: Open, free_port: Callable[[], int]) -> None:
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(run_gateway(port, "--static-model=alpha=127.0.0.1:9"))
        with open_page(Gateway(f"http://127.0.0.1:{port}", None)) as visit:  # type: ignore[arg-type]
            expect(visit.state).to_have_text("live")
            expect(visit.page.locator("#totals")).to_contain_text("1 model · 0 of 1 replica ready")
            stack.close()
            expect(visit.state).to_contain_text("trying again")
            stack.enter_context(run_gateway(port, "--static-model=beta=127.0.0.1:9"))
            expect(box(visit.page, "beta")).to_be_visible()
            expect(box(visit.page, "alpha")).to_have_count(0)
            visit.page.evaluate(
                "Object.defineProperty(document, 'hidden', {value: true, writable: true}); document.dispatchEvent(new Event('visibilitychange'))"
            )
            num_asked = len(visit.requests)
            visit.page.evaluate("document.hidden = false; document.dispatchEvent(new Event('visibilitychange'))")
            expect(visit.state).to_have_text("live")
            visit.page.wait_for_function("performance.now() > 0")
            assert len(visit.requests) == num_asked + 1
            visit.errors = [text for text in visit.errors if "net::ERR" not in text]


def test_a_thousand_models_are_listed_in_parts_and_found_by_a_filter(start_gateway: Any, open_page: Open) -> None:
    gateway = start_gateway(*(f"--static-model=m{index:04}=" for index in range(1000)))
    with open_page(gateway) as visit:
        page, models = visit.page, visit.page.locator("details.model")
        expect(page.locator("#shown")).to_have_text("50 of 1,000 models shown")
        expect(models).to_have_count(50)
        page.get_by_role("button", name="Show more").click()
        expect(models).to_have_count(100)
        page.get_by_label("Filter").fill("m0777")
        expect(models).to_have_count(1)
        models.locator("summary").click()
        expect(models.get_by_text("It has no replicas.")).to_be_visible()
        choose(page, "m0777")
        visit.say("hello?")
        expect(visit.answer.get_by_role("alert")).to_contain_text("m0777", timeout=90_000)
        page.get_by_label("Filter").fill("no such")
        expect(page.get_by_text("No model is like that.")).to_be_visible()


@pytest.fixture
def shown(start_gateway: Any, start_model: Any) -> Gateway:
    api = start_model("alpha")
    named = json.dumps({"name": "late", "servedName": "alpha", "endpoints": ["127.0.0.1:9"]})
    gateway: Gateway = start_gateway(f"--static-model=alpha=127.0.0.1:{api.port}", f"--static-model={named}")
    return gateway


def test_a_name_that_is_taken_is_marked(shown: Gateway, open_page: Open) -> None:
    with open_page(shown) as visit:
        late = box(visit.page, "default/late")
        expect(late.locator("summary")).to_contain_text("NameTaken")
        expect(late).to_contain_text("NameTaken: alpha belongs to default/alpha")
        expect(box(visit.page, "alpha").get_by_text("NameTaken", exact=True)).to_be_hidden()
        visit.page.get_by_label("Only those with trouble").check()
        expect(visit.page.locator("details.model")).to_have_count(1)


def test_a_phone_has_all_of_it_in_its_width(shown: Gateway, open_page: Open) -> None:
    with open_page(shown, viewport={"width": 360, "height": 640}, has_touch=True) as visit:
        expect(box(visit.page, "alpha")).to_be_visible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
        chat = visit.page.get_by_role("complementary", name="Chat")
        expect(chat).to_be_hidden()
        visit.page.locator("#open-chat").click()
        expect(visit.page.get_by_label("Message")).to_be_focused()
        visit.say("count")
        expect(visit.answer.locator(".stats")).to_contain_text("complete")
        visit.page.keyboard.press("Escape")
        expect(chat).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_ground_in_both_schemes(shown: Gateway, open_page: Open, scheme: str) -> None:
    with open_page(shown, color_scheme=scheme) as visit:
        expect(box(visit.page, "alpha")).to_be_visible()
        ratios = visit.page.evaluate(CONTRASTS)
        assert len(ratios) > 10 and min(ratios.values()) >= 4.5, ratios


CONTRASTS = """() => {
  const linear = (each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).reduce((sum, each, index) => sum + linear(each / 255) * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return /, 0\\)$/.test(color) && node.parentElement ? ground(node.parentElement) : color;
  };
  const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  const ratios = {};
  for (const node of [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() && hasText(node))) {
    const [bright, dark] = [light(getComputedStyle(node).color), light(ground(node))].sort((one, other) => other - one);
    ratios[`${node.tagName}.${node.className}#${node.id} ${node.textContent.slice(0, 20)}`] = (bright + 0.05) / (dark + 0.05);
  }
  return ratios;
}"""


def test_everything_that_takes_input_has_a_name(shown: Gateway, open_page: Open) -> None:
    with open_page(shown) as visit:
        expect(box(visit.page, "alpha")).to_be_visible()
        fields = visit.page.locator("input, textarea, button")
        names = fields.evaluate_all("fields => fields.map(field => field.labels?.[0]?.textContent || field.ariaLabel || field.textContent)")
        assert len(names) > 10 and all(names)


def test_a_script_from_elsewhere_and_a_request_to_elsewhere_are_not_possible(shown: Gateway, open_page: Open, free_port: Callable[[], int]) -> None:
    with open_page(shown) as visit:
        elsewhere = f"http://127.0.0.1:{free_port()}/"
        for code in ("address => fetch(address)", "() => { document.body.innerHTML = '<p>' }"):
            with pytest.raises(Exception, match=r"Failed to fetch|TrustedHTML"):
                visit.page.evaluate(code, elsewhere)
        assert any("violates the following Content Security Policy" in text for text in visit.errors)
        visit.errors.clear()
        visit.requests = [request for request in visit.requests if request.url != elsewhere]
