"""The breakages of traces: where spans begin and end, what they belong to, what headers hold."""

from __future__ import annotations

from rules_to_break import Breakage, broken

SPANS = "monitoring/spans.py"
CONTEXTS = "monitoring/contexts.py"
SENDING = "clients/calls/record_sending.py"
SYNC = "tests/simulation/test_traces.py"
ASYNC = "tests/simulation/test_traces_async.py"
WORKERS = "tests/simulation/test_traces_workers.py"
UNIT = "tests/unit/monitoring/test_traces.py"

TRACE_BREAKAGES: tuple[Breakage, ...] = (
    broken(
        "a poll without records is a span",
        "traces",
        SPANS,
        "        if runs:\n            self._received",
        "        if runs is not None:\n            self._received",
        f"{SYNC}::test_a_poll_without_records_is_no_span",
    ),
    broken(
        "a context of the program's own is replaced",
        "traces",
        SPANS,
        "            if theirs is not None:\n                kind, links",
        "            if not theirs:\n                kind, links",
        f"{SYNC}::test_a_context_of_the_programs_own_stays",
    ),
    broken(
        "what workers do belongs to whoever runs them",
        "traces",
        SPANS,
        "unspanned(around) if alone else around",
        "around",
        f"{WORKERS}::test_tasks",
    ),
    broken(
        "a record is refused for its context's size",
        "traces",
        "clients/calls/producer_calls.py",
        "headers = without_carried(headers)",
        "headers = tuple(headers)",
        "tests/simulation/test_traces_unusual.py"
        "::test_what_has_no_room_for_its_context_is_serialized_and_sent_once",
    ),
    broken(
        "a dead letter is in no trace",
        "traces",
        SPANS,
        "attach(extracted(record.headers, unspanned(get_current())))",
        "attach(get_current())",
        f"{WORKERS}::test_tasks",
    ),
    broken(
        "a header that is there gets a twin",
        "traces",
        CONTEXTS,
        "            carrier.pop(name.lower(), None)",
        "            carrier.get(name.lower(), None)",
        f"{UNIT}::test_what_is_injected_takes_no_place",
    ),
    broken(
        "automatic commits belong to whoever set the timer",
        "traces",
        SPANS,
        "context = get_current() if asked else Context()",
        "context = get_current()",
        f"{SYNC}::test_automatic_commits_are_traces_of_their_own",
    ),
    broken(
        "suppressed sends make spans",
        "traces",
        SPANS,
        "(context := get_current()).get(SUPPRESSED):",
        "(context := get_current()) is None:",
        f"{SYNC}::test_what_is_suppressed_is_no_span",
    ),
    broken(
        "a record's span isn't current while it is processed",
        "traces",
        SPANS,
        "        token = attach(trace.set_span_in_context(span, context))",
        "        token = attach(context)",
        f"{ASYNC}::test_the_body_of_a_loop_belongs_to_its_record",
        f"{SYNC}::test_what_is_done_with_a_record_belongs_to_its_trace",
    ),
    broken(
        "callbacks run in whichever context calls them",
        "traces",
        SENDING,
        "on_delivery if refused else partial(run, on_delivery)",
        "on_delivery",
        f"{ASYNC}::test_a_thousand_senders_at_once",
    ),
    broken(
        "an interrupted send leaves its span open",
        "traces",
        SPANS,
        "            except BaseException as error:\n                span.failed(error)\n",
        "            except BaseException:\n",
        f"{SYNC}::test_a_send_that_raises",
        f"{UNIT}::test_an_interrupted_send_ends_its_span",
    ),
    broken(
        "a Ctrl-C leaves spans open",
        "traces",
        SPANS,
        "            try:\n                if error is not None:\n"
        "                    failed(span, error)\n"
        "            finally:\n                span.end(over)",
        "            if error is not None:\n                failed(span, error)\n"
        "            over = self.now()\n            if over:\n                span.end(over)",
        "tests/property/test_traced_ctrl_c.py",
    ),
    broken(
        "each record of an outage keeps an open span",
        "traces",
        SPANS,
        "if len(self._traces.open) < MOST_OPEN:",
        "if len(self._traces.open) >= 0:",
        f"{SYNC}::test_so_many_records_wait_with_an_open_span",
    ),
    broken(
        "a cancelled send leaves its span open",
        "traces",
        SPANS,
        "            span.sent(found, report)\n        except BaseException as error:",
        "            span.sent(found, report)\n        except Exception as error:",
        f"{ASYNC}::test_a_wait_that_is_cancelled_ends_no_span_and_a_send_does",
    ),
    broken(
        "a batch is looked at to its end for links",
        "traces",
        CONTEXTS,
        "for record in islice(records, MOST_LINKS):",
        "for record in records:",
        f"{SYNC}::test_a_batch_is_one_span_with_so_many_links_at_most",
    ),
    broken(
        "a send that lets the loop go on is serialized and traced twice",
        "traces",
        "api/asyncio_producer.py",
        "        put: Any = RecordSending.send(\n"
        "            self, topic, record[1], record[0], record[2], partition, record[3]\n"
        "        )",
        "        put: Any = self._put(\n"
        "            topic, record[1], record[0], record[2], partition, record[3]\n"
        "        )",
        f"{ASYNC}::test_a_send_that_lets_the_loop_go_on_is_one_span_and_serialized_once",
    ),
    broken(
        "a processor of spans that fails ends a client",
        "traces",
        CONTEXTS,
        "if not isinstance(error, Exception):",
        "if error is not None:",
        f"{SYNC}::test_what_fails_in_opentelemetry_costs_no_call",
    ),
    broken(
        "of clients of which one can't be traced the others are",
        "traces",
        "monitoring/opentelemetry_traces.py",
        "            client._calls.check_untraced()",
        "            client._calls.check_open",
        f"{SYNC}::test_who_can_be_traced",
    ),
    broken(
        "a traced producer is kept alive by its own send",
        "traces",
        SENDING,
        "partial(_of, ref(self), getattr(type(self), name))",
        "getattr(self, name)",
        f"{SYNC}::test_traces_keep_no_client_alive",
    ),
)
