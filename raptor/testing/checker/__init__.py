"""The checker: what a history of services and tasks must be, whatever was killed meanwhile. Pure."""
