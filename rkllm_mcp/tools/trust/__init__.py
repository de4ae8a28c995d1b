"""Policies of tool calls: approvals, switches, call records, cleaning of untrusted text."""
