"""Delegation tokens (KIP-48): who may make, renew, end and see them, and how somebody logs in with one."""
