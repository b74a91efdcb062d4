package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	metadataKey    = 3 // the API key of Metadata
	refreshTimeout = 60 * time.Second
)

// franz-go with its defaults. Set: the partitioner, so that a record can name its partition, and a
// hook that reports when metadata was read.
type franz struct {
	client *kgo.Client
	reads  metadataReads
}

func openFranz(task task) (client, error) {
	reads := make(metadataReads, 1)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(task.bootstrap...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.WithHooks(reads),
	)
	return franz{client, reads}, err
}

func (f franz) send(topic string, partition int32, value string, told func(error)) {
	record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	f.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) { told(err) })
}

// ForceMetadataRefresh only asks for a refresh; a hook reports the response.
func (f franz) refresh(string) error {
	select {
	case <-f.reads: // from an earlier refresh
	default:
	}
	f.client.ForceMetadataRefresh()
	select {
	case <-f.reads:
		return nil
	case <-time.After(refreshTimeout):
		return errors.New("no answer to a refresh within 60 s")
	}
}

// RequestCachedMetadata: no other call of franz-go returns a topic's partitions.
func (f franz) partitions(topic string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &topic
	request.Topics = append(request.Topics, wanted)
	answer, err := f.client.RequestCachedMetadata(ctx, request, 0)
	switch {
	case err != nil:
		return err
	case len(answer.Topics) != 1:
		return fmt.Errorf("asked for one topic, told of %d", len(answer.Topics))
	}
	return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

// Reports every metadata response that was read to a channel.
type metadataReads chan struct{}

var _ kgo.HookBrokerRead = metadataReads(nil)

func (m metadataReads) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == metadataKey && err == nil {
		select {
		case m <- struct{}{}:
		default:
		}
	}
}
