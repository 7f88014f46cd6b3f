"""Makes the codecs of Millrace's client ahead, in servers that fork processes, each of which would make its own."""

from millrace.client.connection import CLIENT_VERSIONS
from millrace.wire.cold import Direction, decoder, warm


def make_client_codecs() -> None:
    """Makes the codecs of the newest version of each API that the client asks, for both ends of a connection."""
    for api_key, versions in CLIENT_VERSIONS.items():
        warm(api_key, versions.maximum)
        decoder(api_key, versions.maximum, Direction.RESPONSE)
