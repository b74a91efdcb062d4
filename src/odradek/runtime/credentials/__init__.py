"""Obtain the credentials and tokens that SASL needs: OIDC, AWS, Kerberos.

In: options, environment variables, files, token servers. Out: functions and mechanisms that return
credentials or tokens.
"""
