package main

import (
	"time"

	"github.com/IBM/sarama"
)

// Sarama with its defaults. Set: the partitioner, so that a record can name its partition; that
// it reports acknowledged records; and in mode call Metadata.Timeout, as no call takes a timeout.
type saramaClient struct {
	client   sarama.Client
	producer sarama.AsyncProducer
}

// openSarama fails without a cluster, as NewAsyncProducer does.
func openSarama(task task) (client, error) {
	config := sarama.NewConfig()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	if task.mode == "call" {
		config.Metadata.Timeout = task.timeout
	}
	client, err := sarama.NewClient(task.bootstrap, config)
	if err != nil {
		return nil, err
	}
	producer, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	go func() {
		for message := range producer.Successes() {
			message.Metadata.(func(error))(nil)
		}
	}()
	go func() {
		for failure := range producer.Errors() {
			failure.Msg.Metadata.(func(error))(failure.Err)
		}
	}()
	return saramaClient{client, producer}, nil
}

func (s saramaClient) send(topic string, partition int32, value string, told func(error)) {
	s.producer.Input() <- &sarama.ProducerMessage{
		Topic: topic, Partition: partition, Value: sarama.StringEncoder(value), Metadata: told,
	}
}

func (s saramaClient) refresh(topic string) error {
	return s.client.RefreshMetadata(topic)
}

func (s saramaClient) partitions(topic string, _ time.Duration) error {
	_, err := s.client.Partitions(topic)
	return err
}
