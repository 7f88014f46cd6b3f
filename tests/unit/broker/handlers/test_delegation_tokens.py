"""The four requests about delegation tokens on a broker alone, for sessions of several users."""

import asyncio

import pytest

from millrace.clock import SystemClock
from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation
from millrace.wire import cold
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction
from millrace_broker.broker import Broker
from millrace_broker.handlers.api import Request
from millrace_broker.security.client_session import ClientSession, Principal
from millrace_broker.startup.options import parse_options
from millrace_support.until import until

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
NOBODY = ClientSession("127.0.0.1")
KEY = ("--set", "delegation.token.secret.key=hush")


class Asking:
    """Sends requests to a broker's handlers, as somebody."""

    def __init__(self, broker):
        self.services = broker._services
        self.broker = broker

    async def ask(self, key, version, who, fields):
        session = who if isinstance(who, ClientSession) else ClientSession("127.0.0.1", principal=who)
        body = cold.encode(key, version, Direction.REQUEST, fields)
        reply = self.services.apis[key].handle(self.services, Request(version, "c", memoryview(body), session))
        parts = await reply if isinstance(reply, asyncio.Future) else reply
        return cold.decode(key, version, Direction.RESPONSE, b"".join(parts))

    async def create(self, who, *, version=3, owner=None, renewers=(), life_ms=-1):
        named = {"principal_type": "User", "principal_name": ""}
        fields = {
            "renewers": [{**named, "principal_type": one.type, "principal_name": one.name} for one in renewers],
            "max_lifetime": life_ms,
        }
        if version == 3:
            fields |= {
                "owner_principal_type": owner and owner.type,
                "owner_principal_name": owner and owner.name,
            }
        return await self.ask(ApiKey.CREATE_DELEGATION_TOKEN, version, who, fields)

    async def renew(self, who, hmac, period_ms=-1, version=2):
        fields = {"hmac": hmac, "renew_period": period_ms}
        return await self.ask(ApiKey.RENEW_DELEGATION_TOKEN, version, who, fields)

    async def expire(self, who, hmac, period_ms=-1, version=2):
        fields = {"hmac": hmac, "expiry_time_period": period_ms}
        return await self.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, version, who, fields)

    async def describe(self, who, owners=None, version=3):
        named = owners and [{"principal_type": one.type, "principal_name": one.name} for one in owners]
        fields = {"owners": named if owners is None else named or []}
        return await self.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, who, fields)


class Authorizer:
    """Lets Bob make tokens for Carol, and see hers."""

    def permits(self, session, operation, resource_type, name, request, *, tells_denied):
        allowed = (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS)
        return operation in allowed and (session.principal, name) == (BOB, str(CAROL))


@pytest.fixture
def play(tmp_path):
    """Run a scene on a broker."""

    def run(scene, settings=KEY):
        async def whole():
            options = ["--standalone", "--data", str(tmp_path), "--listen", "127.0.0.1:0", *settings]
            broker = Broker(parse_options(options), SystemClock())
            await broker.start()
            try:
                await asyncio.wait_for(scene(Asking(broker)), 30)
            finally:
                await broker.stop()

        asyncio.run(whole())

    return run


@pytest.mark.parametrize("version", range(4))
def test_a_token_is_made_renewed_seen_and_ended(play, version):
    async def scene(asking):
        made = await asking.create(ALICE, version=version, renewers=[BOB], life_ms=3_600_000)
        assert (made.error_code, made.principal_name, len(made.token_id), len(made.hmac)) == (0, "alice", 22, 64)
        assert made.max_timestamp - made.issue_timestamp == 3_600_000
        assert made.expiry_timestamp == made.max_timestamp
        [seen] = (await asking.describe(ALICE, version=version)).tokens
        assert (seen.token_id, seen.hmac) == (made.token_id, made.hmac)
        assert [one.principal_name for one in seen.renewers] == ["bob"]
        if version == 3:
            assert (made.token_requester_principal_name, seen.token_requester_principal_name) == ("alice", "alice")
        shorter = await asking.expire(BOB, made.hmac, 60_000, min(version, 2))
        assert shorter.error_code == 0
        assert shorter.expiry_timestamp < made.expiry_timestamp
        longer = await asking.renew(BOB, made.hmac, 10**9, min(version, 2))
        assert (longer.error_code, longer.expiry_timestamp) == (0, made.max_timestamp)
        assert (await asking.expire(ALICE, made.hmac, -1, min(version, 2))).error_code == 0
        assert (await asking.describe(ALICE)).tokens == ()
        assert asking.services.tokens.find(made.token_id) is None

    play(scene)


def test_a_token_outlives_a_restart(play):
    made = []

    async def first(asking):
        made.append(await asking.create(ALICE))

    async def second(asking):
        assert asking.services.tokens.find(made[0].token_id).hmac == made[0].hmac
        assert (await asking.renew(ALICE, made[0].hmac)).error_code == 0

    play(first)
    play(second)


def test_the_older_name_of_the_key_will_do(play):
    async def scene(asking):
        assert (await asking.create(ALICE)).error_code == 0

    play(scene, ("--set", "delegation.token.master.key=hush"))


def test_without_a_key_there_are_no_tokens(play):
    async def scene(asking):
        answers = [
            await asking.create(ALICE),
            await asking.renew(ALICE, b"x"),
            await asking.expire(ALICE, b"x"),
            await asking.describe(ALICE),
        ]
        assert {one.error_code for one in answers} == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
        assert answers[0].issue_timestamp == answers[1].expiry_timestamp == -1

    play(scene, ())


@pytest.mark.parametrize("who", [NOBODY, ClientSession("127.0.0.1", principal=ALICE, is_by_token=True)])
def test_who_is_not_known_or_by_a_token_alone_gets_nothing(play, who):
    async def scene(asking):
        made = await asking.create(ALICE)
        answers = [
            await asking.create(who),
            await asking.renew(who, made.hmac),
            await asking.expire(who, made.hmac),
            await asking.describe(who),
        ]
        assert {one.error_code for one in answers} == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
        assert len((await asking.describe(ALICE)).tokens) == 1

    play(scene)


def test_tokens_of_others_are_neither_seen_nor_changed(play):
    async def scene(asking):
        made = await asking.create(ALICE)
        assert (await asking.renew(CAROL, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await asking.expire(CAROL, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await asking.renew(ALICE, b"other")).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        asking.services.authorizer = Authorizer()
        assert (await asking.describe(CAROL)).tokens == ()
        assert (await asking.describe(ALICE, [CAROL])).tokens == ()
        assert len((await asking.describe(ALICE, [ALICE, CAROL])).tokens) == 1
        assert (await asking.describe(ALICE, [])).tokens == ()

    play(scene)


def test_a_token_for_somebody_else_needs_the_right_to_it(play):
    async def scene(asking):
        asking.services.authorizer = Authorizer()
        made = await asking.create(BOB, owner=CAROL)
        assert (made.principal_name, made.token_requester_principal_name) == ("carol", "bob")
        assert len((await asking.describe(BOB)).tokens) == len((await asking.describe(CAROL)).tokens) == 1
        assert (await asking.create(ALICE, owner=CAROL)).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (await asking.renew(BOB, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

    play(scene)


def test_renewers_are_users(play):
    async def scene(asking):
        refused = await asking.create(ALICE, renewers=[Principal("Group", "g")])
        assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    play(scene)


def test_an_expired_token_is_of_no_use_and_removed(play):
    async def scene(asking):
        made = await asking.create(ALICE)
        assert (await asking.expire(ALICE, made.hmac, 0)).error_code == 0
        await asyncio.sleep(0.002)  # until the clock has gone on
        assert asking.services.tokens.find(made.token_id) is None
        assert (await asking.renew(ALICE, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert len((await asking.describe(ALICE)).tokens) == 1
        await asking.services.tokens.remove_expired()
        assert (await asking.describe(ALICE)).tokens == ()

    play(scene)


def test_a_broker_removes_what_has_expired_by_itself(play):
    async def scene(asking):
        made = await asking.create(ALICE)
        assert (await asking.expire(ALICE, made.hmac, 0)).error_code == 0
        await asking.broker.start_admin()
        await until(lambda: not asking.services.tokens.describe(ALICE, None, lambda _: False))

    play(scene, (*KEY, "--set", "delegation.token.expiry.check.interval.ms=1"))
