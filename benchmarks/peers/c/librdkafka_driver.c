/* Driver of the benchmarks for librdkafka itself: one process, one measurement, one JSON line.
 *
 * In: `driver MODE --bootstrap … --topic …` and a pool of records (for each the lengths of key and
 * value, 4 bytes big endian, then both). Out: one line on standard output. The clock starts before
 * the client is created. It is linked with the library that confluent-kafka's wheel carries; the wheel
 * has no header, so the functions in use are declared here (librdkafka's ABI is stable within 2.x). */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;
enum { PRODUCER = 0, CONSUMER = 1, CONF_OK = 0, QUEUE_FULL = -184, ANY_PARTITION = -1 };

const char *rd_kafka_version_str(void);
rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(
    rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
int rd_kafka_topic_partition_list_set_offset(
    rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t);
int rd_kafka_subscribe(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_produce(
    rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_last_error(void);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);

enum { BATCH = 10000, FLUSH_MS = 120000 };

static double begin, cpu, first;
static long rss_before, acknowledged, failed;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* A line of /proc/self/status in bytes: VmHWM is the peak, VmRSS the current value. */
static long status(const char *name) {
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) found = atol(line + strlen(name)) * 1024;
    if (file) fclose(file);
    return found;
}

static void clock_starts(void) {
    rss_before = status("VmRSS:");
    begin = now();
    cpu = cpu_seconds();
}

static void seen(void) {
    if (first == 0) first = now() - begin;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void finish(const char *mode, const char *delivers, long records, long bytes) {
    printf("{\"library\":\"librdkafka\",\"mode\":\"%s\",\"version\":\"%s\",\"delivers\":\"%s\","
           "\"records\":%ld,\"bytes\":%ld,\"seconds\":%f,\"cpu\":%f,\"first\":%f,"
           "\"rss_before\":%ld,\"peak_rss\":%ld}\n",
           mode, rd_kafka_version_str(), delivers, records, bytes, now() - begin,
           cpu_seconds() - cpu, first, rss_before, status("VmHWM:"));
    fflush(stdout);
    _Exit(0);
}

static const char *option(int count, char **given, const char *name, const char *otherwise) {
    for (int i = 2; i + 1 < count; i += 2)
        if (!strcmp(given[i] + 2, name)) return given[i + 1];
    return otherwise;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != CONF_OK) fail(error);
}

/* Set the broker's address, and TLS if a certificate authority is given. */
static void set_access(rd_kafka_conf_t *conf, int count, char **given) {
    const char *ca = option(count, given, "ca", "");
    set(conf, "bootstrap.servers", option(count, given, "bootstrap", ""));
    if (*ca) {
        set(conf, "security.protocol", "SSL");
        set(conf, "ssl.ca.location", ca);
    }
}

static rd_kafka_t *make(int kind, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *client = rd_kafka_new(kind, conf, error, sizeof error);
    if (!client) fail(error);
    return client;
}

static void consume(int count, char **given) {
    const char *topic = option(count, given, "topic", "");
    const char *crcs = option(count, given, "check-crcs", "false");
    int partitions = atoi(option(count, given, "partitions", "4"));
    long wanted = atol(option(count, given, "records", "1000")), records = 0, bytes = 0;
    clock_starts();
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set_access(conf, count, given);
    set(conf, "group.id", "bench");
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.auto.offset.store", "false");
    set(conf, "fetch.message.max.bytes", "8388608");
    set(conf, "fetch.max.bytes", "52428800");
    set(conf, "queued.min.messages", "1000000");
    set(conf, "queued.max.messages.kbytes", "262144");
    set(conf, "fetch.queue.backoff.ms", "10");
    set(conf, "check.crcs", crcs);
    rd_kafka_t *client = make(CONSUMER, conf);
    rd_kafka_poll_set_consumer(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int p = 0; p < partitions; p++) {
        rd_kafka_topic_partition_list_add(list, topic, p);
        rd_kafka_topic_partition_list_set_offset(list, topic, p, 0);
    }
    rd_kafka_assign(client, list);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t **messages = malloc(sizeof *messages * BATCH);
    while (records < wanted) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 100, messages, BATCH);
        if (n > 0) seen();
        for (ssize_t i = 0; i < n; i++) {
            if (!messages[i]->err) {
                records++;
                bytes += messages[i]->len + messages[i]->key_len;
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    finish("consume", !strcmp(crcs, "true") ? "structs, CRC checked" : "structs, CRC not checked",
           records, bytes);
}

/* Count the entries of a folder of /proc: threads, file descriptors. */
static int entries(const char *folder) {
    int found = 0;
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));) found += entry->d_name[0] != '.';
    if (open) closedir(open);
    return found;
}

static double epoch(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Measure the cost of clients that have read all records and are idle. */
static void idle(int count, char **given) {
    const char *topic = option(count, given, "topic", "");
    const char *pattern = option(count, given, "pattern", "");
    int partitions = atoi(option(count, given, "partitions", "4"));
    int clients = atoi(option(count, given, "clients", "1"));
    long wanted = atol(option(count, given, "records", "1000"));
    double seconds = atof(option(count, given, "idle", "2"));
    double settle = atof(option(count, given, "settle", "0.7"));
    int threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
    char group[32];
    snprintf(group, sizeof group, "g-%d", getpid());
    clock_starts();
    rd_kafka_queue_t **queues = malloc(sizeof *queues * clients);
    for (int c = 0; c < clients; c++) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set_access(conf, count, given);
        set(conf, "group.id", group);
        set(conf, "enable.auto.commit", "false");
        set(conf, "auto.offset.reset", "earliest");
        set(conf, "fetch.message.max.bytes", "8388608");
        set(conf, "fetch.max.bytes", "52428800");
        set(conf, "queued.min.messages", "1000000");
        set(conf, "queued.max.messages.kbytes", "262144");
        set(conf, "fetch.queue.backoff.ms", "10");
        set(conf, "receive.message.max.bytes", "500000000");
        rd_kafka_t *client = make(CONSUMER, conf);
        rd_kafka_poll_set_consumer(client);
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
        if (*pattern) {
            rd_kafka_topic_partition_list_add(list, pattern, -1);
            rd_kafka_subscribe(client, list);
        } else {
            for (int p = 0; p < partitions; p++) {
                rd_kafka_topic_partition_list_add(list, topic, p);
                rd_kafka_topic_partition_list_set_offset(list, topic, p, 0);
            }
            rd_kafka_assign(client, list);
        }
        queues[c] = rd_kafka_queue_get_consumer(client);
    }
    rd_kafka_message_t **messages = malloc(sizeof *messages * BATCH);
    for (int c = 0; c < clients; c++) {
        for (long records = 0; records < wanted;) {
            ssize_t n = rd_kafka_consume_batch_queue(queues[c], 10, messages, BATCH);
            for (ssize_t i = 0; i < n; i++) {
                records += !messages[i]->err;
                rd_kafka_message_destroy(messages[i]);
            }
        }
    }
    usleep((useconds_t)(settle * 1e6));
    double ready = now() - begin, ready_cpu = cpu_seconds() - cpu;
    double from = epoch(), idle_cpu = cpu_seconds();
    usleep((useconds_t)(seconds * 1e6));
    double until = epoch();
    idle_cpu = cpu_seconds() - idle_cpu;
    printf("{\"library\":\"librdkafka\",\"mode\":\"idle\",\"version\":\"%s\",\"ready_ms\":%f,"
           "\"ready_cpu_ms\":%f,\"idle_from\":%f,\"idle_until\":%f,\"idle_cpu_ms\":%f,"
           "\"threads\":%d,\"descriptors\":%d,\"rss_ready\":%ld,\"peak_rss\":%ld}\n",
           rd_kafka_version_str(), 1000 * ready, 1000 * ready_cpu, from, until,
           1000 * idle_cpu / (until - from), entries("/proc/self/task") - threads,
           entries("/proc/self/fd") - descriptors, status("VmRSS:") - rss_before,
           status("VmHWM:"));
    fflush(stdout);
    _Exit(0);
}

static void told(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    seen();
    if (message->err)
        failed++;
    else
        acknowledged++;
}

static char *read_pool(const char *path, long *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail("no pool of records");
    *size = ftell(file);
    rewind(file);
    char *text = malloc(*size);
    if (fread(text, 1, *size, file) != (size_t)*size) fail("the pool can't be read");
    fclose(file);
    return text;
}

static void produce(int count, char **given) {
    long size, wanted = atol(option(count, given, "records", "1000")), bytes = 0;
    char *pool = read_pool(option(count, given, "pool", ""), &size);
    clock_starts();
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set_access(conf, count, given);
    set(conf, "acks", "all");
    set(conf, "enable.idempotence", "true");
    set(conf, "linger.ms", "5");
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    set(conf, "batch.size", option(count, given, "batch-size", "1000000"));
    set(conf, "compression.type", option(count, given, "codec", "none"));
    set(conf, "partitioner", "murmur2_random");
    rd_kafka_conf_set_dr_msg_cb(conf, told);
    rd_kafka_t *client = make(PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, option(count, given, "topic", ""), NULL);
    char *at = pool;
    for (long i = 0; i < wanted; i++) {
        uint32_t lengths[2];
        if (at == pool + size) at = pool;
        memcpy(lengths, at, 8);
        uint32_t key = ntohl(lengths[0]), value = ntohl(lengths[1]);
        /* No copy and no free: the pool outlives every message. */
        while (rd_kafka_produce(topic, ANY_PARTITION, 0, at + 8 + key, value, at + 8, key, NULL)) {
            if (rd_kafka_last_error() != QUEUE_FULL) fail("a record was refused");
            rd_kafka_poll(client, 10);
        }
        if (!(i & 1023)) rd_kafka_poll(client, 0);
        bytes += key + value;
        at += 8 + key + value;
    }
    rd_kafka_flush(client, FLUSH_MS);
    if (failed || acknowledged != wanted) fail("not all records were acknowledged");
    finish("produce", "a callback per record", wanted, bytes);
}

int main(int count, char **given) {
    if (count > 1 && !strcmp(given[1], "consume")) consume(count, given);
    if (count > 1 && !strcmp(given[1], "produce")) produce(count, given);
    if (count > 1 && !strcmp(given[1], "idle")) idle(count, given);
    fail("usage: driver consume|produce|idle --bootstrap HOST:PORT --topic T …");
}
