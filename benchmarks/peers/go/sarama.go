package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	"snappy": sarama.CompressionSnappy, "gzip": sarama.CompressionGZIP,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.ChannelBufferSize = 4096
	config.Consumer.Fetch.Default = 8 << 20
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	return config
}

// saramaProduce sends through the AsyncProducer; its idempotence allows one request in flight.
func saramaProduce(task task) (found, error) {
	pool, err := readPool(task.pool)
	if err != nil {
		return nil, err
	}
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Flush.Bytes = task.batchSize
	config.Producer.Compression = saramaCodecs[task.codec]
	watch := start()
	producer, err := sarama.NewAsyncProducer(task.bootstrap, config)
	if err != nil {
		return nil, err
	}
	var size int64
	var failed error
	var left sync.WaitGroup
	left.Add(1)
	go func() {
		defer left.Done()
		for n := int64(0); n < task.records; n++ {
			select {
			case message := <-producer.Successes():
				watch.seen()
				size += int64(message.Key.Length() + message.Value.Length())
			case failure := <-producer.Errors():
				failed = failure
			}
		}
	}()
	for i := 0; i < int(task.records); i++ {
		n := i % len(pool.keys)
		producer.Input() <- &sarama.ProducerMessage{
			Topic: task.topic, Key: sarama.ByteEncoder(pool.keys[n]), Value: sarama.ByteEncoder(pool.values[n]),
		}
	}
	left.Wait()
	return watch.stop("a message back per record", task.records, size), failed
}

// saramaConsume reads each partition in a goroutine of its own, as Sarama's API requires.
func saramaConsume(task task) (found, error) {
	watch := start()
	consumer, err := sarama.NewConsumer(task.bootstrap, saramaConfig())
	if err != nil {
		return nil, err
	}
	var records, size atomic.Int64
	var left sync.WaitGroup
	var first sync.Once
	for p := range task.partitions {
		partition, err := consumer.ConsumePartition(task.topic, int32(p), sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		left.Add(1)
		go func() {
			defer left.Done()
			var n, bytes int64
			for message := range partition.Messages() {
				if n++; n == 1 {
					first.Do(watch.seen)
				}
				bytes += int64(len(message.Key) + len(message.Value))
				if n == task.records/int64(task.partitions) {
					break
				}
			}
			records.Add(n)
			size.Add(bytes)
		}()
	}
	left.Wait()
	return watch.stop("structs, CRC checked", records.Load(), size.Load()), nil
}

func saramaRoundTrip(task task) (found, error) {
	config := saramaConfig()
	producer, err := sarama.NewAsyncProducer(task.bootstrap, config)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer(task.bootstrap, config)
	if err != nil {
		return nil, err
	}
	partition, err := consumer.ConsumePartition(task.topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	arrived := make(chan time.Time, task.records)
	go func() {
		for range partition.Messages() {
			arrived <- time.Now()
		}
	}()
	go func() {
		for {
			select {
			case <-producer.Successes():
			case failure := <-producer.Errors():
				fail(failure)
			}
		}
	}()
	return roundTrip(task, arrived, func() {
		producer.Input() <- &sarama.ProducerMessage{Topic: task.topic, Value: sarama.StringEncoder("ping")}
	})
}

func saramaStart(task task) (found, error) {
	begin := time.Now()
	producer, err := sarama.NewSyncProducer(task.bootstrap, saramaConfig())
	if err != nil {
		return nil, err
	}
	message := &sarama.ProducerMessage{Topic: task.topic, Value: sarama.StringEncoder("first")}
	if _, _, err := producer.SendMessage(message); err != nil {
		return nil, err
	}
	acknowledged := milliseconds(begin)
	begin = time.Now()
	consumer, err := sarama.NewConsumer(task.bootstrap, saramaConfig())
	if err != nil {
		return nil, err
	}
	partition, err := consumer.ConsumePartition(task.topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	if <-partition.Messages() == nil {
		return nil, fmt.Errorf("no first record")
	}
	return found{"first_acknowledged_ms": acknowledged, "first_read_ms": milliseconds(begin)}, nil
}
