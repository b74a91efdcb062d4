package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	"snappy": kgo.SnappyCompression(), "gzip": kgo.GzipCompression(),
}

// franzAccess sets the broker's address, and TLS if a certificate authority is given.
func franzAccess(task task, more ...kgo.Opt) []kgo.Opt {
	options := append([]kgo.Opt{kgo.SeedBrokers(task.bootstrap...)}, more...)
	if task.ca == "" {
		return options
	}
	text, err := os.ReadFile(task.ca)
	if err != nil {
		fail(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		fail(fmt.Errorf("no certificate in %s", task.ca))
	}
	return append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
}

// franzProduce sends records with a promise each. Mode load chooses the partition itself, round-robin,
// so that a topic has the same records in every partition.
func franzProduce(task task) (found, error) {
	pool, err := readPool(task.pool)
	if err != nil {
		return nil, err
	}
	options := franzAccess(
		task, kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchMaxBytes(int32(task.batchSize)),
		kgo.MaxBufferedRecords(200_000), kgo.ProducerBatchCompression(codecs[task.codec]),
	)
	if task.mode == "load" {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	watch := start()
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var left sync.WaitGroup
	var failures, size atomic.Int64
	told := func(record *kgo.Record, err error) {
		watch.once(&failures, err)
		size.Add(int64(len(record.Key) + len(record.Value)))
		left.Done()
	}
	left.Add(int(task.records))
	ctx := context.Background()
	for i := 0; i < int(task.records); i++ {
		n := i % len(pool.keys)
		record := &kgo.Record{
			Topic: task.topic, Key: pool.keys[n], Value: pool.values[n], Partition: int32(i % task.partitions),
		}
		client.Produce(ctx, record, told)
	}
	left.Wait()
	if failures.Load() > 0 {
		return nil, fmt.Errorf("%d records failed", failures.Load())
	}
	return watch.stop("a promise per record", task.records, size.Load()), nil
}

// once counts a failure; promises are called one after the other.
func (w *watch) once(failures *atomic.Int64, err error) {
	w.seen()
	if err != nil {
		failures.Add(1)
	}
}

func franzReader(task task, more ...kgo.Opt) (*kgo.Client, error) {
	offsets := map[int32]kgo.Offset{}
	for p := range task.partitions {
		offsets[int32(p)] = kgo.NewOffset().AtStart()
	}
	options := append(more,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{task.topic: offsets}),
		kgo.FetchMaxPartitionBytes(8<<20), kgo.FetchMaxBytes(50<<20),
	)
	return kgo.NewClient(franzAccess(task, options...)...)
}

func franzConsume(task task) (found, error) {
	watch := start()
	client, err := franzReader(task)
	if err != nil {
		return nil, err
	}
	var records, size int64
	for records < task.records {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		watch.seen()
		fetches.EachRecord(func(record *kgo.Record) {
			records++
			size += int64(len(record.Key) + len(record.Value))
		})
	}
	return watch.stop("structs, CRC checked", records, size), nil
}

func franzRoundTrip(task task) (found, error) {
	reader, err := franzReader(task)
	if err != nil {
		return nil, err
	}
	writer, err := kgo.NewClient(franzAccess(
		task, kgo.DefaultProduceTopic(task.topic), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)...)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	arrived := make(chan time.Time, task.records)
	go func() {
		for {
			fetches := reader.PollFetches(ctx)
			now := time.Now()
			fetches.EachRecord(func(*kgo.Record) { arrived <- now })
		}
	}()
	return roundTrip(task, arrived, func() {
		writer.Produce(ctx, &kgo.Record{Value: []byte("ping")}, func(_ *kgo.Record, err error) {
			if err != nil {
				fail(err)
			}
		})
	})
}

// roundTrip sends at the task's rate and waits for each record to come back.
func roundTrip(task task, arrived <-chan time.Time, send func()) (found, error) {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / task.rate))
	defer ticker.Stop()
	var times []time.Duration
	for range task.records {
		<-ticker.C
		begin := time.Now()
		send()
		times = append(times, (<-arrived).Sub(begin))
	}
	return latencies(times), nil
}

func franzStart(task task) (found, error) {
	ctx := context.Background()
	begin := time.Now()
	writer, err := kgo.NewClient(franzAccess(task, kgo.DefaultProduceTopic(task.topic))...)
	if err != nil {
		return nil, err
	}
	if err := writer.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr(); err != nil {
		return nil, err
	}
	acknowledged := milliseconds(begin)
	begin = time.Now()
	reader, err := franzReader(task)
	if err != nil {
		return nil, err
	}
	for fetches := reader.PollFetches(ctx); fetches.NumRecords() == 0; {
		fetches = reader.PollFetches(ctx)
	}
	return found{"first_acknowledged_ms": acknowledged, "first_read_ms": milliseconds(begin)}, nil
}
