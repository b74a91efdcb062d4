"""Obtain the credentials and tokens that SASL needs: OIDC, AWS, Kerberos.

In: options, the environment, files, token servers. Out: functions and mechanisms that return
credentials or tokens.
"""
