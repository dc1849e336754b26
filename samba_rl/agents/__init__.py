"""Agents: told of real trials, asked for the next policy."""
