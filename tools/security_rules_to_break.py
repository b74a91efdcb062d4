"""What `break_rules` breaks of security: SASL, refusals (R-CS-4), TLS, proxies, secrets."""

from __future__ import annotations

from rules_to_break import Breakage, broken

SCRAM = "network/sasl/scram.py"
AUTHENTICATE = "network/sasl/authenticate.py"
REAUTHENTICATION = "network/sasl/reauthentication.py"
SESSION = "network/sasl/session.py"
OAUTHBEARER = "network/sasl/oauthbearer.py"
PROBE = "network/probe.py"
FAILED = "until = self._states.failed(record.address, now, error, connecting=connecting)\n"
REFUSALS = "metadata/refusals.py"
CONTEXT = "runtime/tls/tls_context.py"
KEY_LOG = "runtime/tls/key_log.py"
ALLOWED = "runtime/credentials/allowed_sources.py"

IN_SCRAM = "tests/unit/network/sasl/test_scram.py"
IN_SASL = "tests/simulation/test_sasl.py"
IN_TOKENS = "tests/unit/runtime/test_token_functions.py"
IN_PRINTABLE = "tests/unit/common/test_printable.py"
IN_REFUSALS = "tests/simulation/test_sasl_refusals.py"
IN_CONTEXT = "tests/unit/runtime/test_tls_context.py"
NO_REQUEST_LOST = f"{IN_SASL}::test_no_request_is_lost_while_sessions_end"

SECURITY_BREAKAGES: tuple[Breakage, ...] = (
    # SASL
    broken(
        "the broker's SCRAM signature isn't checked",
        "RFC5802",
        SCRAM,
        "    if not hmac.compare_digest(signature, expected):",
        "    if not text:",
        f"{IN_SCRAM}::test_a_broker_that_does_not_prove_itself_is_left",
    ),
    broken(
        "any SCRAM nonce will do",
        "RFC5802",
        SCRAM,
        "    if not found.startswith(nonce) or len(found) == len(nonce):",
        "    if not found:",
        f"{IN_SCRAM}::test_a_first_message_that_asks_too_much_or_too_little",
    ),
    broken(
        "a broker may ask for one SCRAM iteration, or for a billion",
        "RFC5802",
        SCRAM,
        "not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS",
        "not 0 < iterations",
        f"{IN_SCRAM}::test_a_first_message_that_asks_too_much_or_too_little",
    ),
    broken(
        "challenges may go on for ever",
        "R-CS-5",
        AUTHENTICATE,
        "MAX_TOKENS = 16",
        "MAX_TOKENS = 1 << 40",
        f"{IN_SASL}::test_endless_challenges_of_a_mechanism_that_bears_them_are_counted",
    ),
    broken(
        "a broker's SASL token may have any length",
        "R-CS-5",
        AUTHENTICATE,
        "if len(heard.token) > MAX_CHALLENGE:",
        "if len(heard.token) < 0:",
        "tests/unit/network/sasl/test_authenticate.py"
        "::test_what_a_hostile_broker_says_back_is_in_no_local",
    ),
    broken(
        "a token that is over is shown all the same",
        "KIP-255",
        OAUTHBEARER,
        "if token.expires_at is not None and token.expires_at <= now:",
        "if token.expires_at is not None and token.expires_at <= -now:",
        "tests/unit/network/sasl/test_oauthbearer.py::test_a_token_that_is_over_is_not_sent",
    ),
    broken(
        "a token that was refused is shown again",
        "KIP-255",
        OAUTHBEARER,
        "        self._token = None  # whatever",
        "        # whatever",
        "tests/unit/network/sasl/test_oauthbearer.py"
        "::test_a_refusal_is_answered_and_the_token_forgotten",
    ),
    # Sessions (KIP-368)
    broken(
        "what waited for a re-authentication is lost",
        "KIP-368",
        REAUTHENTICATION,
        "    network.let_go(connection, session.take_held(), now)",
        "    session.take_held()",
        NO_REQUEST_LOST,
    ),
    broken(
        "requests go out in the middle of a re-authentication",
        "KIP-368",
        REAUTHENTICATION,
        "        session.shut()",
        "        pass",
        NO_REQUEST_LOST,
    ),
    broken(
        "requests overtake those that wait for a re-authentication",
        "KIP-368",
        SESSION,
        "if self.gated or self.held or now >= self.ends_at:",
        "if self.gated or now >= self.ends_at:",
        NO_REQUEST_LOST,
        "tests/unit/network/sasl/test_session.py",
        "tests/unit/network/sasl/test_reauthentication.py",
    ),
    broken(
        "a request goes out behind a fetch that may outlast the session",
        "KIP-368",
        SESSION,
        "return in_flight.patience_ends() >= self.ends_at",
        "return False",
        "tests/unit/network/sasl/test_session.py"
        "::test_a_request_waits_behind_a_fetch_that_may_outlast_the_session",
    ),
    broken(
        "all clients authenticate again at the same time",
        "KIP-368",
        SESSION,
        "EARLIEST + (LATEST - EARLIEST) * self._rng.random()",
        "LATEST",
        "tests/unit/network/sasl/test_session.py::test_between_85_and_95_per_cent_and_spread",
    ),
    # Refusals
    broken(
        "a refusal is forgotten before the next attempt",
        "R-CS-4",
        REFUSALS,
        "if last is None or now >= last.until or self._connected():",
        "if last is None or now >= 0.0:",
        f"{IN_REFUSALS}::test_within_the_backoff_calls_get_it_without_a_dial",
    ),
    broken(
        "a refusal is told before others were asked",
        "R-CS-4",
        REFUSALS,
        "        return self._since + GRACE",
        "        return self._since",
        f"{IN_REFUSALS}::test_a_refusal_waits_for_those_that_are_slow",
    ),
    broken(
        "a refusal is told to nobody",
        "R-CS-4",
        REFUSALS,
        "        self.tell(self.last)",
        "        pass",
        f"{IN_REFUSALS}::test_a_wrong_password_is_every_calls_error_within_one_attempt",
    ),
    broken(
        "who refuses is dialled again without a wait",
        "R-CS-4",
        "network/dial_policy.py",
        f"        {FAILED}",
        "        until = now\n        if not getattr(error, 'sticky', False):\n"
        f"            {FAILED}",
        IN_REFUSALS,
    ),
    broken(
        "one address that is recycled is a verdict in an outage",
        "R-CS-4",
        REFUSALS,
        "            if away and (not strong or away >= refusing):",
        "            if away < 0:",
        f"{IN_REFUSALS}::test_a_single_recycled_address_is_no_verdict_while_the_others_are_away",
        f"{IN_REFUSALS}::test_an_outage_isnt_mistaken_for_a_refusal",
    ),
    # TLS
    broken(
        "a certificate may be for any host name",
        "TLS",
        CONTEXT,
        'context.check_hostname = bool(config["ssl.endpoint.identification.algorithm"])',
        "context.check_hostname = False",
        f"{IN_CONTEXT}::test_names_that_do_not",
    ),
    broken(
        "a certificate may be anybody's",
        "TLS",
        CONTEXT,
        '    if not config["enable.ssl.certificate.verification"]:',
        '    if config["enable.ssl.certificate.verification"]:',
        f"{IN_CONTEXT}::test_strangers",
    ),
    broken(
        "certificates that were revoked are taken",
        "TLS",
        CONTEXT,
        "    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF",
        "    pass",
        f"{IN_CONTEXT}::test_revoked",
    ),
    broken(
        "files that change are never read again",
        "TLS",
        CONTEXT,
        "        elif self._files and (found := self._look()) != self._signature:",
        "        elif not self._files and (found := self._look()) != self._signature:",
        f"{IN_CONTEXT}::test_rotated_certificates",
    ),
    broken(
        "the question in plaintext goes on as if it were TLS",
        "TLS",
        PROBE,
        'raise PlaintextPortError("the port answers in plaintext, and this client speaks TLS")',
        "return now",
        "tests/unit/network/test_probe.py",
    ),
    broken(
        "a client whose TLS is cut asks in plaintext unasked",
        "TLS",
        PROBE,
        "        if network.tls and network.asks_in_plaintext:",
        "        if network.tls:",
        "tests/unit/network/test_probe.py",
    ),
    broken(
        "a port that was gone meanwhile is never asked again",
        "TLS",
        PROBE,
        "        connection.record.suspect_of(Suspicion.NONE)",
        "        pass",
        "tests/unit/network/test_probe.py::test_a_port_that_was_gone_meanwhile_is_asked_anew",
    ),
    broken(
        "SSLKEYLOGFILE counts unasked",
        "TLS",
        KEY_LOG,
        "if value == VARIABLE else value",
        "if value in (VARIABLE, None) else value",
        "tests/unit/runtime/test_key_log.py::test_the_variable_counts_only_on_request",
    ),
    broken(
        "the key log is for everybody",
        "TLS",
        "runtime/private_files.py",
        "os.open(path, _FLAGS, 0o600)",
        "os.open(path, _FLAGS, 0o666)",
        "tests/unit/runtime/test_private_files.py",
    ),
    # Proxies and secrets
    broken(
        "what stands behind a proxy's answer is lost",
        "PROXY",
        "runtime/hosts/tunnel.py",
        "            self._take(sock, max(end, 1))",
        "            self._take(sock, LONGEST_HEAD)",
        "tests/unit/runtime/test_tunnel.py",
    ),
    broken(
        "a broker's name is looked up here although the proxy resolves",
        "PROXY",
        "network/handshake.py",
        "first = connection.address if proxy is None or not proxy.resolves else proxy.address",
        "first = connection.address",
        "tests/unit/network/test_proxies.py",
    ),
    broken(
        "a secret shows itself",
        "SECRETS",
        "common/secret.py",
        "    def __repr__(self) -> str:\n        return HIDDEN",
        "    def __repr__(self) -> str:\n        return self._text",
        "tests/unit/common/test_secret.py",
    ),
    # Borders: what comes from people, peers and files
    broken(
        "a text may be a token function",
        "R-IN-2",
        "common/security_values.py",
        "    if isinstance(value, str | Secret | NotText):",
        "    if False:",
        "tests/unit/spark/test_options.py::test_no_option_names_code_to_run",
    ),
    broken(
        "settings alone have a file read",
        "R-IN-2",
        ALLOWED,
        "_listed(ALLOWED_FILES, environment) or ()",
        "_listed(ALLOWED_FILES, environment) or (found,)",
        f"{IN_TOKENS}::test_settings_alone_have_no_file_read_or_signed_with",
    ),
    broken(
        "the list of token servers isn't looked at",
        "R-IN-2",
        ALLOWED,
        "    if listed is not None and _same(url)",
        "    if listed and _same(url)",
        f"{IN_TOKENS}::test_a_token_server_that_the_operator_does_not_list_is_not_asked",
    ),
    broken(
        "the environment's proxies get the client's secret",
        "R-IN-2",
        "runtime/credentials/http_until.py",
        "    for handler in (\n",
        "    for handler in (\n        urllib.request.ProxyHandler(),\n",
        "tests/unit/runtime/test_oidc.py::test_the_environments_proxies_get_no_credentials",
    ),
    broken(
        "a token server that drips is listened to for ever",
        "R-RT-2",
        "runtime/credentials/http_until.py",
        "        until.left()  # a wait that succeeds, again and again, must end as well\n",
        "",
        "tests/unit/runtime/test_oidc.py::test_a_server_that_drips",
    ),
    broken(
        "Arrow follows views that nobody has looked at",
        "R-IN-1",
        "record/arrow_send.py",
        "        array.validate(full=True)  # 1 M rows: 20 ms, beside the 30 of the cast\n",
        "",
        "tests/unit/record/test_arrow_send.py::test_views_are_looked_at_before_they_are_followed",
    ),
    broken(
        "seconds that don't fit wrap around to another time",
        "R-IN-1",
        "record/arrow_send.py",
        'safe=kind.unit == "s"',
        "safe=False",
        "tests/unit/record/test_arrow_send.py::"
        "test_a_number_that_does_not_fit_is_told_with_its_row",
    ),
    broken(
        "a time is taken that no request can carry",
        "R-IN-1",
        "common/group_options.py",
        '"max.poll.interval.ms", milliseconds(1, INT_MAX),',
        '"max.poll.interval.ms", milliseconds(1),',
        "tests/simulation/test_largest_options.py::test_of_a_consumer",
    ),
    broken(
        "errors show what peers say as it is",
        "R-IN-3",
        "common/errors.py",
        "return printable(super().__str__(), limit=self._longest, lines=self.several_lines)",
        "return super().__str__()",
        f"{IN_PRINTABLE}::test_errors_are_printable",
    ),
    broken(
        "events show what peers say as it is",
        "R-IN-3",
        "common/events.py",
        "{name: _shown(value) for name, value in fields.items()}",
        "fields",
        f"{IN_PRINTABLE}::test_events_are_printable",
    ),
    broken(
        "logs show what peers say as it is",
        "R-IN-3",
        "common/log_filter.py",
        "            logger.addFilter(PrintableFilter())",
        "            pass",
        f"{IN_PRINTABLE}::test_logs_are_printable",
    ),
    broken(
        "explain() shows what peers say as it is",
        "R-IN-3",
        "clients/explain/explanation.py",
        "cleaned(_picture(engine, client, now))",
        "_picture(engine, client, now)",
        "tests/property/test_hostile_texts.py",
    ),
    broken(
        "records steer a terminal",
        "R-IN-3",
        "cli/console/formatting.py",
        "return for_terminal(shown) if self._escaped else shown",
        "return shown",
        "tests/unit/cli/console/test_formatting.py::test_records_steer_no_terminal",
    ),
    broken(
        "a server's echo of an encoded secret is shown",
        "SECRETS",
        "common/echoes.py",
        "if len(piece) >= LEAST and piece in words:",
        "if False:",
        "tests/unit/common/test_echoes.py",
    ),
    broken(
        "a common name is a host name",
        "TLS",
        CONTEXT,
        "context.hostname_checks_common_name = False",
        "context.hostname_checks_common_name = True",
        f"{IN_CONTEXT}::test_a_common_name_alone_is_no_host_name",
    ),
    broken(
        "something may stand behind a JSON value",
        "R-SP",
        "serialization/json_lines.py",
        "                if len(doubtful):",
        "                if False:",
        "tests/unit/spark/test_values.py::test_what_stands_behind_a_value_makes_it_malformed",
    ),
)
