"""What survives: the Store protocol and its backends, with no policy of their own."""
