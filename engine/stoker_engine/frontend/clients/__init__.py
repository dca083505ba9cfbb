"""Clients of an engine core: the same five calls over each way to reach one."""
