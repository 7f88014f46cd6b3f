"""The keys by which tokens are checked: fetched at the start, and again where a token names another."""

import asyncio
import json

from millrace_broker.net.json_web_keys import UNKNOWN_KEY_INTERVAL_S, JsonWebKeys
from millrace_broker.security.authentication.listener_security import TokenRules
from millrace_support.clock import ManualClock
from millrace_support.token_server import TokenServer
from millrace_support.until import until


def rules(url):
    return TokenRules(keys_url=url, retry_s=0.001, retry_max_s=0.002)


def test_keys_are_fetched_and_fetched_again_for_a_key_that_is_not_known():
    async def run(tokens):
        clock = ManualClock()
        keys = JsonWebKeys(rules(tokens.keys_url), clock)
        assert keys.find("key-0") is None
        keys.start()
        await until(lambda: keys.find("key-0"))
        assert keys.find(None) is keys.find("key-0")
        tokens.rotate()
        assert keys.find("key-1") is None  # too soon to ask again
        clock.advance(int(UNKNOWN_KEY_INTERVAL_S * 1000))
        await until(lambda: keys.find("key-1"))
        assert keys.find("key-0") is None
        await keys.stop()

    with TokenServer({}) as tokens:
        asyncio.run(run(tokens))


def test_a_fetch_that_fails_is_repeated_and_the_keys_stay(tmp_path, caplog):
    async def run(tokens):
        path = tmp_path / "keys"
        keys = JsonWebKeys(rules(path.as_uri()), ManualClock())
        keys.start()
        await until(lambda: "no keys by which to check tokens" in caplog.text)
        path.write_text("no keys", encoding="utf-8")
        path.with_suffix(".new").write_text(json.dumps(tokens.keys()), encoding="utf-8")
        path.with_suffix(".new").rename(path)
        await until(lambda: keys.find("key-0"))
        await keys.stop()

    with TokenServer({}) as tokens:
        asyncio.run(run(tokens))
