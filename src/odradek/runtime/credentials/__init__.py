"""Tokens and credentials that SASL asks for: OIDC, AWS, Kerberos."""
