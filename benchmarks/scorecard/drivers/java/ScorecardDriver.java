import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Driver of the scorecard for the Java client: one process, one KafkaProducer.
 *
 * <p>In: {@code MODE --bootstrap … --topic …}, and the line {@code go} on standard input. Out: JSON
 * lines on standard output (see the harness for what they mean). Exits at the end of standard
 * input, at SIGTERM or after --seconds, with status 0 and without closing anything. Must not: set
 * anything in the producer but, in mode call, the bound of the call.
 */
public final class ScorecardDriver {
    private static final long RECORD_EVERY_NS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final long REMAKE_AFTER_MS = 1_000;
    private static final long WARM_UP_NS = TimeUnit.SECONDS.toNanos(30);
    private static final int ERRORS_PER_SECOND = 5;
    private static final long CALLER_STACK_BYTES = 256 * 1024;

    private static final BufferedReader ORDERS =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final Object LINES = new Object();
    private static long second; // the second to which the next field belongs
    private static int inSecond;

    private final Map<String, String> options;
    private final String topic;
    private final KafkaProducer<byte[], byte[]> producer;

    private ScorecardDriver(String mode, Map<String, String> options) throws InterruptedException {
        this.options = options;
        topic = options.get("--topic");
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", options.get("--bootstrap"));
        if (mode.equals("call")) { // partitionsFor takes no timeout
            config.put("max.block.ms", (long) (number("--timeout", 5) * 1000));
        }
        producer = untilMade(config);
    }

    /** Reads the properties file, because the class with the version has a new package from 4.4 on. */
    private static String version() throws java.io.IOException {
        java.util.Properties told = new java.util.Properties();
        try (java.io.InputStream in = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            told.load(in);
        }
        return told.getProperty("version");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i], arguments[i + 1]);
        }
        if (!options.containsKey("--topic") || !options.containsKey("--bootstrap")) {
            fail("usage: produce|idle|metadata|callers|call --bootstrap HOST:PORT --topic T");
        }
        String mode = arguments[0];
        say("ready", "library", "java", "version", version());
        // Without this a SIGTERM would end with status 143.
        Runtime.getRuntime().addShutdownHook(new Thread(ScorecardDriver::leave));
        boolean produces = mode.equals("produce") || mode.equals("idle");
        if (produces) {
            leaveAtTheEnd();
        }
        ScorecardDriver driver = new ScorecardDriver(mode, options);
        driver.leaveAfterSeconds();
        if (!produces) {
            driver.established();
        }
        switch (mode) {
            case "produce", "idle" -> driver.produce();
            case "metadata" -> driver.refresh();
            case "callers" -> driver.allAtOnce();
            case "call" -> driver.call();
            default -> fail("unknown mode " + mode);
        }
        new CountDownLatch(1).await(); // connections stay open until the harness ends this process
    }

    private double number(String option, double otherwise) {
        String given = options.get(option);
        return given == null ? otherwise : Double.parseDouble(given);
    }

    private static KafkaProducer<byte[], byte[]> untilMade(Map<String, Object> config)
            throws InterruptedException {
        while (true) {
            try {
                return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
            } catch (RuntimeException error) { // a name that doesn't resolve, for example
                failed(error);
                Thread.sleep(REMAKE_AFTER_MS);
            }
        }
    }

    private ProducerRecord<byte[], byte[]> record(int partition, int n) {
        byte[] value = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topic, partition, null, value);
    }

    /** Sends a record every 100 ms. send() blocks while the topic is unknown; a late send delays the next. */
    private void produce() throws InterruptedException {
        for (int i = 0; ; i++) {
            int n = i;
            long begin = System.nanoTime();
            try {
                producer.send(record(0, n), (metadata, error) -> {
                    if (error == null) {
                        say("acked", "n", n);
                    } else {
                        failed(error);
                    }
                });
            } catch (RuntimeException error) {
                failed(error);
            }
            TimeUnit.NANOSECONDS.sleep(begin + RECORD_EVERY_NS - System.nanoTime());
        }
    }

    /** Writes a record to each partition, reports it, and waits for the line {@code go}. */
    private void established() throws InterruptedException, IOException {
        long deadline = System.nanoTime() + WARM_UP_NS;
        for (int partition = 0; partition < (int) number("--partitions", 1); partition++) {
            while (true) {
                try {
                    long left = deadline - System.nanoTime();
                    producer.send(record(partition, 0)).get(left, TimeUnit.NANOSECONDS);
                    break;
                } catch (ExecutionException | RuntimeException error) { // the start timed out
                    failed(error);
                    Thread.sleep(REMAKE_AFTER_MS);
                } catch (TimeoutException error) {
                    fail("the client could not be established");
                }
            }
            say("acked", "n", partition);
        }
        say("waiting");
        if (ORDERS.readLine() == null) {
            leave();
        }
        leaveAtTheEnd();
    }

    /** Requests a new topic: no call of the Java client refreshes its metadata. */
    private void refresh() {
        int done = 0;
        for (int i = 0; i < (int) number("--refreshes", 100); i++) {
            if (partitions(i) == null) {
                done++;
            }
        }
        say("done", "n", done);
    }

    /** Requests each topic in a thread of its own, all at the same instant. */
    private void allAtOnce() throws InterruptedException {
        int callers = (int) number("--callers", 1000);
        CountDownLatch ready = new CountDownLatch(callers);
        CountDownLatch start = new CountDownLatch(1);
        CountDownLatch over = new CountDownLatch(callers);
        AtomicInteger answered = new AtomicInteger();
        for (int i = 0; i < callers; i++) {
            int mine = i;
            inThread(() -> {
                ready.countDown();
                start.await();
                if (partitions(mine) == null) {
                    answered.incrementAndGet();
                }
                over.countDown();
            });
        }
        ready.await();
        long begin = System.nanoTime();
        start.countDown();
        over.await();
        say("done", "n", answered.get(), "seconds", (System.nanoTime() - begin) / 1e9);
    }

    private void call() {
        long begin = System.nanoTime();
        RuntimeException error = partitions(0);
        double seconds = (System.nanoTime() - begin) / 1e9;
        say("returned", "seconds", seconds, "what", error == null ? "ok" : describe(error));
        leave();
    }

    /** Requests the partitions of the topic with this number; returns the error or null. */
    private RuntimeException partitions(int number) {
        try {
            producer.partitionsFor(topic + "-" + number);
            return null;
        } catch (RuntimeException error) {
            failed(error);
            return error;
        }
    }

    private interface Work {
        void run() throws InterruptedException, IOException;
    }

    private static void inThread(Work work) {
        Thread thread = new Thread(null, () -> {
            try {
                work.run();
            } catch (InterruptedException | IOException error) {
                failed(error);
            }
        }, "driver", CALLER_STACK_BYTES);
        thread.setDaemon(true);
        thread.start();
    }

    private static void leaveAtTheEnd() {
        inThread(() -> {
            while (ORDERS.readLine() != null) { }
            leave();
        });
    }

    private void leaveAfterSeconds() {
        long limit = (long) (number("--seconds", 600) * 1000);
        inThread(() -> { Thread.sleep(limit); leave(); });
    }

    private static void leave() {
        Runtime.getRuntime().halt(0);
    }

    private static void fail(String text) {
        System.err.println(text);
        Runtime.getRuntime().halt(2);
    }

    private static String describe(Exception error) {
        return error.getClass().getSimpleName() + ": " + error.getMessage();
    }

    /** Reports an error; frequent errors are thinned out. */
    private static void failed(Exception error) {
        synchronized (LINES) {
            long now = System.currentTimeMillis() / 1000;
            if (now != second) {
                second = now;
                inSecond = 0;
            }
            if (++inSecond > ERRORS_PER_SECOND) {
                return;
            }
        }
        say("error", "what", describe(error));
    }

    /** Writes one line: the event, the time, and pairs of names and values. */
    private static void say(String event, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"event\":").append(quoted(event));
        line.append(",\"at\":").append(System.currentTimeMillis() / 1000.0);
        for (int i = 0; i < pairs.length; i += 2) {
            Object value = pairs[i + 1];
            line.append(',').append(quoted((String) pairs[i])).append(':');
            line.append(value instanceof Number ? value.toString() : quoted(value.toString()));
        }
        synchronized (LINES) {
            System.out.println(line.append('}'));
            System.out.flush();
        }
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
