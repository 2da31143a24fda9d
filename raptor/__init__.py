"""Raptor runs services on time and keeps them running, the way Erlang/OTP would."""

__version__ = "0.1.0"
