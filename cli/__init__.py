"""The command line: click commands and rich views over a connection, nothing more."""
