"""Who is at the other end of a connection: the decisions of SASL's server, without network, storage and asyncio."""
