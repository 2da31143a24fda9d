"""Torture: real nodes on a real store, killed and stopped again and again, and a verdict on what they did."""
