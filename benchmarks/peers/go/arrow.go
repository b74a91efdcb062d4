package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/franz-go/pkg/kgo"
)

const rowsOfBatch = 50_000

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "key", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "offset", Type: arrow.PrimitiveTypes.Int64},
	{Name: "partition", Type: arrow.PrimitiveTypes.Int32},
	{Name: "timestamp", Type: arrow.FixedWidthTypes.Timestamp_ms},
}, nil)

// franzArrow appends franz-go's records to arrow-go's builders and releases each batch.
func franzArrow(task task) (found, error) {
	watch := start()
	client, err := franzReader(task)
	if err != nil {
		return nil, err
	}
	builder := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	key, value := builder.Field(0).(*array.BinaryBuilder), builder.Field(1).(*array.BinaryBuilder)
	offset, partition := builder.Field(2).(*array.Int64Builder), builder.Field(3).(*array.Int32Builder)
	timestamp := builder.Field(4).(*array.TimestampBuilder)
	var records, size int64
	finish := func() {
		batch := builder.NewRecordBatch()
		records += batch.NumRows()
		for _, column := range []int{0, 1} {
			size += int64(len(batch.Column(column).(*array.Binary).ValueBytes()))
		}
		batch.Release()
	}
	waiting := int64(0)
	for records+waiting < task.records {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		watch.seen()
		fetches.EachRecord(func(record *kgo.Record) {
			key.Append(record.Key)
			value.Append(record.Value)
			offset.Append(record.Offset)
			partition.Append(record.Partition)
			timestamp.Append(arrow.Timestamp(record.Timestamp.UnixMilli()))
			if waiting++; waiting == rowsOfBatch {
				finish()
				waiting = 0
			}
		})
	}
	finish()
	return watch.stop("Arrow record batches (arrow-go), CRC checked", records, size), nil
}
