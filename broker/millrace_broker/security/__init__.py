"""Who a client is and what it may do: decisions, without network and storage."""
