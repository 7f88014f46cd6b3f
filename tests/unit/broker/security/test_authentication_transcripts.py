"""Transcripts of one connection that authenticates: events on lines that begin with `>`, what follows indented below.

    set mechanisms=PLAIN,SCRAM-SHA-256 reauth=0 token_life=0      (these are the defaults; milliseconds)

    > versions 3                  ApiVersions of that version; the broker serves 0 to 4
    > handshake 1 PLAIN           SaslHandshake of that version, for a mechanism
    > plain alice secret          a token of PLAIN, with name and password
    > first alice                 the first message of SCRAM, and with the password
    > final pencil                the last one
    > bearer alice                a token of OAUTHBEARER that is good; `bearer -` is bad
    > token 01                    these bytes
    > request 3                   any other request, by its API key
    > wait 1000                   milliseconds pass

alice and bob are known, with the passwords `secret` of PLAIN and `pencil` of SCRAM. The last line of each event is the
state, with the user that has authenticated.
"""

from functools import partial

from millrace.errors import MillraceError, SaslAuthenticationError
from millrace.security.sasl.names import Authenticated
from millrace.security.sasl.scram import ScramClient, credential_text, new_credential
from millrace.wire.api import ApiKey, VersionRange
from millrace_broker.security.authentication.authentication import Authentication, new_mechanism
from millrace_broker.security.authentication.credentials import Credentials
from millrace_broker.security.authentication.listener_security import ListenerSecurity
from millrace_support import transcripts
from millrace_support.clock import ManualClock
from millrace_support.transcripts import plays

DEFAULTS = {"mechanisms": "PLAIN,SCRAM-SHA-256", "reauth": "0", "token_life": "0"}
CREDENTIAL = credential_text(new_credential("SCRAM-SHA-256", "pencil"))
CONFIGS = {f"users/{user}": {"SCRAM-SHA-256": CREDENTIAL} for user in ("alice", "bob")}


class Stage(transcripts.Stage):
    """Plays one transcript."""

    def __init__(self, settings):
        super().__init__()
        settings = DEFAULTS | settings
        self.clock = ManualClock()
        self.token_life_ms = int(settings["token_life"])
        mechanisms = tuple(settings["mechanisms"].split(","))
        security = ListenerSecurity(
            listener="EXTERNAL",
            mechanisms=mechanisms,
            passwords={"alice": "secret", "bob": "secret"},
            max_reauth_ms=dict.fromkeys(mechanisms, int(settings["reauth"])),
        )
        new = partial(
            new_mechanism, security=security, credentials=Credentials(lambda: CONFIGS), check_token=self.check_token
        )
        self.table = Authentication(security, new, self.clock, VersionRange(0, 4))
        self.client = None
        self.challenge = b""

    def check_token(self, text):
        if text == "bad":
            raise SaslAuthenticationError("the token is bad")
        return Authenticated(text, self.clock.now_ms() + self.token_life_ms if self.token_life_ms else None)

    def happen(self, name, plain, options):
        try:
            super().happen(name, plain, options)
        except MillraceError as error:
            self.say(f"{error.code.name}: {error}")

    def state(self):
        user = "" if self.table.principal is None else f" {self.table.principal}"
        return f"[{self.table.state.name}{user}{', endless' if self.table.is_endless else ''}]"

    def give(self, token):
        self.challenge, lifetime_ms = self.table.authenticate(token)
        self.say(
            f"challenge of {len(self.challenge)} bytes" + (f", session of {lifetime_ms} ms" if lifetime_ms else "")
        )

    def ask(self, api_key, version):
        self.table.admit(int(api_key), int(version))
        self.say("admitted")

    def on_versions(self, version):
        self.ask(ApiKey.API_VERSIONS, version)

    def on_request(self, api_key):
        self.ask(api_key, 0)

    def on_handshake(self, version, mechanism):
        self.ask(ApiKey.SASL_HANDSHAKE, version)
        self.table.handshake(int(version), mechanism)
        self.say(f"chosen {mechanism}")

    def on_plain(self, user, password):
        self.give(f"\0{user}\0{password}".encode())

    def on_first(self, user):
        self.user = user
        self.client = ScramClient("SCRAM-SHA-256", user, "pencil", nonce="n")
        self.give(self.client.initial_response())

    def on_final(self, password):
        self.client = ScramClient("SCRAM-SHA-256", self.user, password, nonce="n")
        self.client.initial_response()
        self.give(self.client.respond(self.challenge))

    def on_bearer(self, user):
        text = "bad" if user == "-" else user
        self.give(f"n,,\x01auth=Bearer {text}\x01\x01".encode())

    def on_token(self, text):
        self.give(bytes.fromhex(text))

    def on_wait(self, milliseconds):
        self.clock.advance(int(milliseconds))


test_a_transcript_is_what_happens = plays("authentication", Stage)
