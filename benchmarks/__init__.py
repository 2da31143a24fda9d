"""How fast Raptor is, beside floors that anybody can write in ten lines and beside Erlang/OTP: `make bench`."""
